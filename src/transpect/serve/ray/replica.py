"""What answers in a cluster: a server without a port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from typing import Any

from ray import serve
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from transpect.base.codec import from_data
from transpect.serve.errors import EngineDead
from transpect.serve.http.app import ROUTES, application
from transpect.serve.http.keys import ANYONE, Account
from transpect.serve.http.opening import ServerConfig, open_service
from transpect.serve.http.replicas.fleet import Asked
from transpect.serve.http.replicas.inside import Head, answered
from transpect.serve.http.service import Call

__all__ = ["Replica"]


class Replica:
    """All models of a configuration, each with its engine.

    Args:
        data: a `ServerConfig`.

    Raises:
        ConfigError, CheckpointError, TokenizerError: as `open_service`.
    """

    async def __init__(self, data: dict[str, Any]) -> None:  # type: ignore[misc] # Ray awaits it
        self._service = await asyncio.to_thread(open_service, from_data(ServerConfig, data))
        self._app, self._routes = application(self._service), Router(ROUTES, redirect_slashes=False)
        self._name = serve.get_replica_context().replica_id.unique_id
        log = self._service.log
        for own in self._service.models.all:
            log.tell("opened", replica=self._name, model=own.id, notes=list(own.engine.notes))
        self._keeper = asyncio.create_task(self._service.models.keep_alive(log.tell))

    async def answer(self, asked: Asked, tried: Collection[str]) -> AsyncGenerator[Head | bytes, None]:
        """The answer to a request, piece by piece; ``tried`` is for the router."""
        async for piece in answered(self._app, asked, self._name):
            yield piece

    async def look(self, path: str) -> tuple[str, int, bytes]:
        """What it says of itself at a path: its name, a status and a page. Nobody from outside asks here."""
        pieces = [piece async for piece in answered(self._inner, Asked("GET", path, []), self._name)]
        head, *body = pieces
        assert isinstance(head, Head)
        return self._name, head.status, b"".join(own for own in body if isinstance(own, bytes))

    async def check_health(self) -> None:
        """Of Ray: a replica that fails again and again is replaced.

        Raises:
            EngineDead: an engine has failed, and has not been started again.
        """
        if dead := self._service.models.dead:
            raise EngineDead(f"the engine of {', '.join(own.id for own in dead)} has failed")

    async def _inner(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["transpect.call"], scope["transpect.service"] = Call("look", Account(ANYONE)), self._service
        await self._routes(scope, receive, send)
