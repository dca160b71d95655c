"""The listener before the replicas of one machine, which are started with it and end with it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from transpect.serve.errors import ServeError
from transpect.serve.http.app import ROUTES
from transpect.serve.http.gate import Gate
from transpect.serve.http.replicas.front import Front
from transpect.serve.http.replicas.local import Local
from transpect.serve.http.replicas.replica import Replica
from transpect.serve.http.server import Server, is_loopback
from transpect.serve.http.service import Service

__all__ = ["FrontServer", "front_server"]


class FrontServer(Server):
    """A server before replicas, which are started with it and end with it; see `front_server`."""

    def __init__(self, fleet: Local, service: Service, app: Any, **options: Any) -> None:
        super().__init__(service, app=app, **options)
        self.fleet = fleet

    async def startup(self, sockets: Any = None) -> None:
        """See `Server`: replicas first, so that who connects is answered.

        Raises:
            ServeError: none has started.
        """
        tried, some = set[str](), asyncio.Event()

        def note(replica: Replica) -> None:
            self.fleet.router.forget(replica.name)
            tried.add(replica.name)
            if replica.port is not None or len(tried) == len(self.fleet.replicas):
                some.set()

        self._keeping = [asyncio.create_task(own.keep(note)) for own in self.fleet.replicas]
        await some.wait()
        if all(own.port is None for own in self.fleet.replicas):
            await self._end()
            raise ServeError("no replica has started", remedy="See what they wrote before.")
        await super().startup(sockets)

    async def shutdown(self, sockets: Any = None) -> None:
        """See `Server`."""
        await self._end()
        await super().shutdown(sockets)

    async def _end(self) -> None:
        seconds = self._service.limits.drain_seconds
        await asyncio.gather(*(own.stop(seconds) for own in self.fleet.replicas))
        for task in self._keeping:
            task.cancel()


def front_server(
    service: Service, replicas: Sequence[Replica], secret: str = "", *, host: str = "127.0.0.1", **options: Any
) -> FrontServer:
    """A server whose requests replicas answer; they are started with it, and end with it.

    Args:
        service: without models.
        replicas: not started yet.
        secret: see `Local`.
        host: see `Server`, as the other options.
    """
    fleet = Local(replicas, secret)
    app = Gate(Front(service, fleet), service, frozenset(route.path for route in ROUTES), local=is_loopback(host))
    return FrontServer(fleet, service, app, host=host, **options)
