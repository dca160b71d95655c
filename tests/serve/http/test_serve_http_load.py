"""Many at once: none lost, none doubled, none crossed; those who leave or dribble cost nobody anything."""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import Any

import pytest

from transpect.serve.http.limits import Limits

pytestmark = pytest.mark.slow


def request(body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


async def whole(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    found = await reader.read()
    writer.close()
    return found


def body_of(number: int) -> dict[str, Any]:
    """A request that is known by its number; about half of them stream."""
    return {
        "prompt": f"fox {number % 40}",
        "max_tokens": 1 + number % 7,
        "temperature": number % 2,
        "seed": number % 10,
        "stream": number % 4 > 1,
        "user": str(number),
    }


def text_of(answer: bytes, stream: bool) -> str:
    assert answer.startswith(b"HTTP/1.1 200"), answer[:300]
    if not stream:
        return str(json.loads(answer.partition(b"\r\n\r\n")[2])["choices"][0]["text"])
    assert answer.count(b"data: [DONE]") == 1
    lines = [line[6:] for line in answer.split(b"\n") if line.startswith(b"data: {")]
    return "".join(json.loads(line)["choices"][0]["text"] for line in lines)


def test_mixed_requests_get_their_own_answers(build: Any, listen: Any) -> None:
    service = build()
    engine = service.models.all[0].engine
    numbers = random.Random(1).sample(range(4000), 2000)
    with listen(service) as server:

        async def all_of_them() -> dict[int, str]:
            room = asyncio.Semaphore(64)

            async def one(number: int) -> tuple[int, str]:
                async with room:
                    answer = await whole(server.port, request(body_of(number)))
                return number, text_of(answer, bool(body_of(number)["stream"]))

            return dict(await asyncio.gather(*map(one, numbers)))

        found = asyncio.run(all_of_them())
        alone: dict[str, str] = {}
        for number in numbers:
            own = {**body_of(number), "stream": False}
            del own["user"]
            key = json.dumps(own)
            if key not in alone:
                alone[key] = text_of(asyncio.run(whole(server.port, request(own))), False)
            assert found[number] == alone[key], number
        stats = engine.stats()
        assert (stats.running, stats.waiting, stats.blocks_used) == (0, 0, 0)


def test_clients_that_leave_give_back_what_they_held(build: Any, listen: Any) -> None:
    service = build()
    engine = service.models.all[0].engine
    chance = random.Random(2)
    long = {"prompt": "The", "max_tokens": 400, "temperature": 1, "ignore_eos": True}
    with listen(service) as server:

        async def leave() -> None:
            stream = chance.random() < 0.5
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(request({**long, "stream": stream, "seed": chance.randrange(10**6)}))
            if stream and chance.random() < 0.5:
                await reader.read(1 + chance.randrange(2000))
            else:
                await asyncio.sleep(chance.random() * 0.5)
            writer.transport.abort()

        async def all_of_them() -> float:
            await asyncio.gather(*(leave() for _ in range(200)))
            started = time.monotonic()
            while engine.stats().running or engine.stats().waiting or engine.stats().blocks_used:
                assert time.monotonic() < started + 30
                await asyncio.sleep(0.01)
            return time.monotonic() - started

        assert asyncio.run(all_of_them()) < 1.0
        assert service.active == 0


def test_dribbling_connections_do_not_harm_streams(build: Any, listen: Any) -> None:
    service = build(limits=Limits(receive_seconds=2.0))
    data = request(
        {"prompt": "The", "max_tokens": 100, "temperature": 1, "seed": 1, "ignore_eos": True, "stream": True}
    )
    with listen(service) as server:

        async def dribble(place: int) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            try:
                for byte in data[: 20 + place % 100]:
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(0.05)
            except ConnectionError:
                return b"cut"
            return await reader.read()

        async def both() -> tuple[list[bytes], list[bytes]]:
            slow = [asyncio.create_task(dribble(place)) for place in range(300)]
            await asyncio.sleep(0.3)
            streams = await asyncio.gather(*(whole(server.port, data) for _ in range(20)))
            return streams, list(await asyncio.gather(*slow))

        streams, dribbled = asyncio.run(both())
        assert len({text_of(own, True) for own in streams}) == 1
        assert all(own == b"cut" or own.startswith(b"HTTP/1.1 408") for own in dribbled)


def test_an_overload_is_refused_at_once(build: Any, listen: Any) -> None:
    service = build(limits=Limits(active=32))
    data = request({"prompt": "The", "max_tokens": 300, "temperature": 1, "ignore_eos": True})
    with listen(service) as server:

        async def timed() -> tuple[bytes, float]:
            started = time.monotonic()
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(data)
            found = await reader.read()
            writer.close()
            return found, time.monotonic() - started

        async def all_of_them() -> list[tuple[bytes, float]]:
            return list(await asyncio.gather(*(timed() for _ in range(64))))

        found = asyncio.run(all_of_them())
        refused = [own for own, _ in found if own.startswith(b"HTTP/1.1 429")]
        assert len(refused) >= 16 and all(b"retry-after: " in own.lower() for own in refused)
        assert all(own.startswith((b"HTTP/1.1 200", b"HTTP/1.1 429")) for own, _ in found)
