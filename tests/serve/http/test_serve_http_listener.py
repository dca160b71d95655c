"""Where connections come in: a process that is short of descriptors lets them wait, and goes on with what it has."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from transpect.serve.http.limits import Limits
from transpect.serve.http.listener import KEPT, Listener, bound
from transpect.serve.http.protocol import GuardedProtocol


class Echo(asyncio.Protocol):
    """Gives back what it gets."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


def lowest() -> int:
    """The number of the next descriptor."""
    number = os.dup(0)
    os.close(number)
    return number


async def answered(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"x")
    assert await reader.readexactly(1) == b"x"
    return reader, writer


@pytest.mark.parametrize("failing", [False, True], ids=["before the last ones", "none at all"])
def test_short_of_descriptors_it_lets_connections_wait(failing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> list[str]:
        told: list[str] = []
        sockets = bound("127.0.0.1", 0, 100)
        port = sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        free = lowest() + 10
        limit = free + min(KEPT, (free + KEPT) // 4)
        listener = Listener(sockets, Echo, lambda event, **_: told.append(event), limit)
        if failing:  # others have taken what it leaves
            accept = loop.sock_accept

            async def fails(own: socket.socket) -> Any:
                if lowest() >= free:
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                return await accept(own)

            monkeypatch.setattr(loop, "sock_accept", fails)
        first = await answered(port)
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        await until(lambda: told)
        await asyncio.sleep(0.3)
        assert told == ["connections wait"], "once, not at each try"
        first[1].write(b"y")
        assert await first[0].readexactly(1) == b"y", "who is there is answered"
        for own in held:
            own.close()
        await until(lambda: told[-1] == "connections are taken again")
        await answered(port)
        listener.close()
        await listener.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        return told

    assert asyncio.run(run()).count("connections wait") < 20


def test_it_listens_at_every_address_of_a_name() -> None:
    (one,) = bound("127.0.0.1", 0, 5)
    with one:
        assert one.getsockname()[0] == "127.0.0.1"
        with pytest.raises(OSError, match="in use"):
            bound("127.0.0.1", one.getsockname()[1], 5)


def test_a_connection_that_is_gone_leaves_nothing(build: Any, listen: Any) -> None:
    """Not even until the time is over that its reader would have had."""
    with listen(build(limits=Limits(send_seconds=600))) as server:
        made = weakref.WeakSet[GuardedProtocol]()
        for way in ("close", "keep-alive"):
            with socket.create_connection(("127.0.0.1", server.port)) as own:
                own.sendall(f"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: {way}\r\n\r\n".encode())
                assert own.recv(100).startswith(b"HTTP/1.1 200")
                made.update(server.server.server_state.connections)
        end = time.monotonic() + 20
        while made:
            assert time.monotonic() < end
            time.sleep(0.01)
            gc.collect()
