"""Where requests come in: keys and bounds are looked at here, and replicas anywhere in the cluster answer."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError, RayServeException
from ray.serve.handle import DeploymentHandle
from starlette.types import ASGIApp, Receive, Scope, Send

from transpect.base.codec import from_data
from transpect.serve.http.app import ROUTES
from transpect.serve.http.errors import busy
from transpect.serve.http.gate import Gate
from transpect.serve.http.logs import Log
from transpect.serve.http.models import Models
from transpect.serve.http.opening import ServerConfig, keys_of
from transpect.serve.http.replicas.fleet import Answer, Asked, LostError, Page
from transpect.serve.http.replicas.front import Front as App
from transpect.serve.http.replicas.inside import Head
from transpect.serve.http.service import Service

__all__ = ["Cluster", "Entrance", "Front"]

PATIENCE: Final = 5.0
"""Seconds in which replicas have to say how they are."""


class Cluster:
    """See `Fleet`: the replicas of a deployment. Its router says which one answers (`BeginningsRouter`); where there is
    none yet, a request waits for the first.

    Args:
        handle: of the deployment.
    """

    def __init__(self, handle: DeploymentHandle) -> None:
        self._handle, self._answers = handle, handle.options(method_name="answer", stream=True)

    @asynccontextmanager
    async def ask(self, asked: Asked, tried: Collection[str] = ()) -> AsyncIterator[Answer]:
        """See `Fleet.ask`."""
        pieces = self._answers.remote(asked, tuple(tried))
        try:
            head = await _next(pieces)
            if not isinstance(head, Head):
                raise LostError
            yield Answer(head.name, head.status, head.headers, _body(head.name, pieces))
        finally:
            pieces.cancel()  # which is nothing to one that has ended

    async def each(self, path: str) -> Mapping[str, Page]:
        """See `Fleet.each`."""
        try:
            asked = self._handle.broadcast("look", path)
            said = await asked.results_async(timeout_s=PATIENCE, return_exceptions=True)
        except (RayError, RayServeException, TimeoutError):
            return {}
        gone = {f"gone-{n}": (503, b"") for n, own in enumerate(said) if isinstance(own, BaseException)}
        there = [own for own in said if not isinstance(own, BaseException)]
        return {**{name: (status, page) for name, status, page in there}, **gone}

    def numbers(self) -> Mapping[str, Mapping[str, float]]:
        """See `Fleet.numbers`: Ray itself tells of loads and restarts."""
        return {}


class Entrance:
    """An ASGI app around another that knows HTTP alone.

    Args:
        app: answers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or begin and end as Ray says."""
        if scope["type"] == "http":
            await self._app(scope, receive, send)
        elif scope["type"] == "lifespan":
            for _ in range(2):
                kind = (await receive())["type"]
                await send({"type": f"{kind}.complete"})
        else:
            await send({"type": "websocket.close", "code": 1003})


class Front:
    """The ingress deployment.

    Args:
        data: a `ServerConfig`.
        handle: of `Replica`.
    """

    def __init__(self, data: dict[str, Any], handle: DeploymentHandle) -> None:
        config = from_data(ServerConfig, data)
        keys = keys_of(config, os.environ)
        assert len(keys), "looked at when the application was built"
        service = Service(Models(()), limits=config.limits, keys=keys, log=Log())
        routes = frozenset(own.path for own in ROUTES)
        self._app = Entrance(Gate(App(service, Cluster(handle)), service, routes, local=False))

    def __serve_build_asgi_app__(self) -> ASGIApp:  # Ray's name
        return self._app


async def _next(pieces: Any) -> Head | bytes | None:
    """The next piece; None where there is none."""
    try:
        piece: Head | bytes = await anext(pieces)
    except StopAsyncIteration:
        return None
    except BackPressureError as error:
        raise busy("Too many requests wait for a replica.", error.retry_after_s or 1, "server_busy") from None
    except (RayError, RayServeException) as error:
        raise LostError(type(error).__name__) from error
    return piece


async def _body(name: str, pieces: Any) -> AsyncGenerator[bytes, None]:
    try:
        while (piece := await _next(pieces)) is not None:
            assert isinstance(piece, bytes)
            yield piece
    except LostError:
        raise LostError(name) from None
