"""Where connections come in. While the process is short of descriptors they wait in the system's queue.

Each connection is a descriptor of the process, and so is whatever else it opens: files, the pipes of a helper, what it
asks other processes by. A server that takes all of them for connections can do nothing for those that it took. So the
last ones are kept: a new descriptor is always the lowest free number, which tells how many are left.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Final

__all__ = ["KEPT", "Listener", "bound", "room_for"]

KEPT: Final = 64
"""Descriptors that are not for connections; a quarter where there are few."""
_AT_A_TIME: Final = 64
"""Connections that are taken before anything else has its turn."""
_LOOK: Final = 0.1
"""Seconds between two looks for free descriptors."""


class Listener:
    """Takes connections from listening sockets, as an `asyncio.Server` does, but leaves some descriptors free.

    Args:
        sockets: that listen; they are closed with it.
        made: the protocol of a connection.
        tell: is told when it stops taking connections, and when it goes on.
        limit: descriptors that the process may have; None is without end.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        made: Callable[[], asyncio.Protocol],
        tell: Callable[..., object],
        limit: int | None,
    ) -> None:
        self.sockets, self._made, self._tell, self._limit = tuple(sockets), made, tell, limit
        self._beginning = set[asyncio.Task[None]]()
        self._accepting = [asyncio.create_task(self._accept(own)) for own in self.sockets]

    def close(self) -> None:
        """Take no more."""
        for task in self._accepting:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until nothing is being taken any more."""
        await asyncio.gather(*self._accepting, *self._beginning, return_exceptions=True)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listening:
            while True:
                for _ in range(_AT_A_TIME):
                    try:
                        connection, _ = await loop.sock_accept(listening)
                    except ConnectionAbortedError:  # it has gone again
                        continue
                    except OSError as error:
                        await self._wait(listening, str(error))
                        continue
                    number = connection.fileno()
                    task = loop.create_task(self._begin(connection))
                    self._beginning.add(task)
                    task.add_done_callback(self._beginning.discard)
                    if self._is_short(number):
                        await self._wait(listening, f"{number + 1} of {self._limit} descriptors are in use")
                await asyncio.sleep(0)

    async def _begin(self, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._made, connection)
        except OSError:  # it has gone again
            connection.close()

    async def _wait(self, listening: socket.socket, why: str) -> None:
        """Until enough descriptors are free."""
        self._tell("connections wait", level="error", error=why)
        while True:
            await asyncio.sleep(_LOOK)
            with suppress(OSError):
                lowest = os.dup(listening.fileno())
                os.close(lowest)
                if not self._is_short(lowest):
                    break
        self._tell("connections are taken again")

    def _is_short(self, number: int) -> bool:
        return self._limit is not None and number >= self._limit - min(KEPT, self._limit // 4)


def bound(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Sockets that listen at the addresses of a name; where the port is 0, at a free one of the first address.

    Raises:
        OSError: the port is taken, or the name is unknown.
    """
    found: list[socket.socket] = []
    with ExitStack() as opened:
        for family, *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE):
            try:
                own = opened.enter_context(socket.create_server(address, family=family, backlog=backlog))
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:  # a machine without IPv6 may still have a name for it
                    raise
                continue
            own.setblocking(False)
            found.append(own)
            if not port:
                break
        if not found:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        opened.pop_all()
    return found


def room_for(connections: int) -> int | None:
    """Let the process have as many descriptors as so many connections need, each with one to a replica, as far as the
    system lets it.

    Returns:
        how many it may have now; None is without end, or on a system that does not say.
    """
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * connections + 4 * KEPT
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return None if soft == resource.RLIM_INFINITY else soft
