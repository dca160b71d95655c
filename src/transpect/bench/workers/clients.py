"""A load on a server of OpenAI's API: some clients, each with one request after another, all streamed.

Python's own library alone: it runs in the environments of peers.
"""

from __future__ import annotations

import atexit
import http.client
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count, pairwise
from typing import Any

_TURNS = count(1)
"""A prompt begins with the number of its turn, the same for all servers, so that none has read it before."""
STARTING, ANSWERING = 300.0, 1800.0
"""Seconds until a server must be ready, and until a request must be answered."""


def started(
    command: Callable[[int], Sequence[str]], threads: int, environ: Mapping[str, str] | None = None
) -> tuple[int, int]:
    """Start a server on a free port and wait until it lists its models; it ends with this process.

    Args:
        command: of a port.
        threads: how many cores it gets, which the clients share.
        environ: more for its environment.

    Returns:
        its port, and the id of its process.

    Raises:
        RuntimeError: it ends instead, or is not ready in time.
    """
    if hasattr(os, "sched_setaffinity"):  # elsewhere a server counts its threads by the environment alone
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    said = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 # as long as the server
    whole = {**os.environ, **(environ or {})}
    server = subprocess.Popen(
        list(command(port)), stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=whole, start_new_session=True
    )
    atexit.register(_end, server)
    until = time.monotonic() + STARTING
    while time.monotonic() < until:
        if server.poll() is not None:
            said.seek(0)
            lines = [line.strip() for line in said.read().splitlines() if line.strip()]
            raise RuntimeError(f"the server ended with {server.returncode}: {' / '.join(lines[-3:])[:400]}")
        if _ready(port):
            return port, server.pid
        time.sleep(0.2)
    raise RuntimeError(f"the server is not ready after {STARTING:g} s")


def _end(server: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def _ready(port: int) -> bool:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/v1/models")
        return connection.getresponse().status in (200, 401)  # or wants a key
    except OSError:
        return False


def load(port: int, model: str, asked: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Let clients ask, and tell what they saw.

    Args:
        port: of the server.
        model: what it calls the model.
        asked: ``prompts``, a list of texts for each client; ``new``, how many tokens each answer has.
        more: fields that make an answer as long as it is to be.

    Returns:
        an answer for the loop: of all requests the tokens and the time from the first to the last, and the median and
        the 99th percentile of seconds to a first token and between two.
    """
    new, turn = asked["new"], next(_TURNS)

    def client(prompts: Sequence[str]) -> list[list[float]]:
        fields = {"model": model, "max_tokens": new, "temperature": 0, "stream": True, **more}
        return [_asked(port, {**fields, "prompt": f"{turn}. {prompt}"}) for prompt in prompts]

    begun = time.perf_counter()
    with ThreadPoolExecutor(len(asked["prompts"])) as pool:
        times = [own for answers in pool.map(client, asked["prompts"]) for own in answers]
    seconds = time.perf_counter() - begun
    first = sorted(own[1] - own[0] for own in times)
    between = sorted(b - a for own in times for a, b in pairwise(own[1:]))
    return {
        "count": {"throughput": new * len(times)},
        "seconds": {"throughput": seconds},
        "sizes": {
            "first token p50": _share(first, 0.5),
            "first token p99": _share(first, 0.99),
            "between p50": _share(between, 0.5),
            "between p99": _share(between, 0.99),
        },
        "pieces": sum(len(own) - 1 for own in times) / len(times),
    }


def _asked(port: int, fields: Mapping[str, Any]) -> list[float]:
    """When a request was sent, and when each piece of its answer came.

    Raises:
        RuntimeError: another status, or an answer that breaks off.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWERING)
    times = [time.perf_counter()]
    connection.request("POST", "/v1/completions", json.dumps(fields), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(f"status {answer.status}: {answer.read(300).decode('utf-8', 'replace')}")
    done = False
    for line in answer:
        if not line.startswith(b"data:"):
            continue
        piece = line[5:].strip()
        if piece == b"[DONE]":
            done = True
            break
        data = json.loads(piece)
        if "error" in data:
            raise RuntimeError(str(data["error"])[:300])
        if data.get("choices"):
            times.append(time.perf_counter())
            done = bool(data["choices"][0].get("finish_reason"))  # not all say [DONE] after it
    connection.close()
    if not done or len(times) < 2:
        raise RuntimeError("an answer broke off")
    return times


def _share(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0
