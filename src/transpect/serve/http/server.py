"""A server that listens, and that ends as it should: nothing new is taken, what runs is finished or told why not."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from types import FrameType
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from transpect.serve.errors import ServeError
from transpect.serve.http.app import application
from transpect.serve.http.listener import Listener, bound, room_for
from transpect.serve.http.logs import quieten
from transpect.serve.http.protocol import GuardedProtocol
from transpect.serve.http.service import Service

__all__ = ["Server", "check_address", "is_loopback", "serve"]

_LAST_SECONDS = 5


class Server(uvicorn.Server):
    """Listens, and stops at SIGTERM or SIGINT: at the first in good order, at the second at once. SIGHUP reloads.

    Args:
        service: what is served.
        host: where to listen; loopback is 127.0.0.1, ::1 or localhost.
        port: likewise; 0 is any free one.
        reload: what SIGHUP does.
        started: is told the address once it listens.
        app: answers; None is the service's own routes.
    """

    def __init__(
        self,
        service: Service,
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        reload: Callable[[], Awaitable[None]] | None = None,
        started: Callable[[str], object] = lambda _: None,
        app: ASGIApp | None = None,
    ) -> None:
        limits = service.limits
        config = uvicorn.Config(
            application(service, local=is_loopback(host)) if app is None else app,
            host=host,
            port=port,
            http=GuardedProtocol,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=limits.header_bytes,
            timeout_keep_alive=cast(int, limits.idle_seconds),
            timeout_graceful_shutdown=_LAST_SECONDS,
            backlog=2048,
        )
        super().__init__(config)
        self._service, self._reload, self._started = service, reload, started
        self._stopping: asyncio.Task[None] | None = None
        self._reloading: asyncio.Task[None] | None = None
        self._changed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        quieten(service.log)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        found: tuple[str, int] = self.servers[0].sockets[0].getsockname()[:2]
        return found

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """See `uvicorn.Server`: begin to stop, or stop at once."""
        if self._loop is None or self._service.draining:
            self.should_exit = self.force_exit = True
        else:
            self.stop()

    def stop(self) -> None:
        """Begin to stop in good order, from any thread."""
        self._service.draining = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._begin_to_stop)

    def _begin_to_stop(self) -> None:
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop())

    async def startup(self, sockets: Any = None) -> None:
        """See `uvicorn.Server`; who listens is a `Listener`.

        Raises:
            ServeError: the address is taken, or none of this machine.
        """
        self._loop, limits, log = asyncio.get_running_loop(), self._service.limits, self._service.log
        config = self.config
        listening = _bound(config.host, config.port, config.backlog)
        made = partial(GuardedProtocol, limits, config, self.server_state, {})
        limit = room_for(limits.connections)
        self.servers = [cast(asyncio.Server, Listener(listening, made, log.tell, limit))]
        self.started = True
        if self._reload is not None and hasattr(signal, "SIGHUP"):
            self._loop.add_signal_handler(signal.SIGHUP, self._start_reload)
        self._keeper = asyncio.create_task(self._service.models.keep_alive(log.tell))
        host, port = self.address
        names = [own.id for own in self._service.models.all]
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        log.tell("listening", address=address, models=names)
        self._started(address)

    async def shutdown(self, sockets: Any = None) -> None:
        """See `uvicorn.Server`."""
        self._keeper.cancel()
        await super().shutdown(sockets)
        await self._service.close()
        self._service.log.tell("stopped")

    async def _stop(self) -> None:
        await self._service.drain(self._service.limits.drain_seconds)
        self.should_exit = True

    def _start_reload(self) -> None:
        self._changed = True
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.ensure_future(self._reload_changed())

    async def _reload_changed(self) -> None:
        """Once more, where it has changed again meanwhile."""
        while self._changed and self._reload is not None:
            self._changed = False
            await self._reload()


def check_address(host: str, port: int) -> None:
    """Refuse an address that can't be listened at, before models are opened for it.

    Raises:
        ServeError: it is taken, or none of this machine.
    """
    for own in _bound(host, port):
        own.close()


def _bound(host: str, port: int, backlog: int = 1) -> list[socket.socket]:
    try:
        return bound(host, port, backlog)
    except OSError as error:
        remedy = "Choose another --host or --port."
        raise ServeError(f"can't listen: {error}", value=f"{host}:{port}", remedy=remedy) from None


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect."""
    return host in ("localhost", "::1") or host.startswith("127.")


def serve(service: Service, **options: Any) -> None:
    """Listen until a signal comes. See `Server` for the options."""
    Server(service, **options).run()
