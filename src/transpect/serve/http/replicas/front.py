"""The one that listens: it lets requests in as a single server does, and has replicas answer them.

What a replica held when it died is asked again of another one, as long as nothing of its answer has been sent on: a
request changes nothing, and with its seed it gives the same. A stream that has begun ends with an error event, and
without ``[DONE]``. Nothing is lost in silence.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final

from prometheus_client import generate_latest
from prometheus_client.core import CollectorRegistry
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from transpect.serve.http.body import read_bytes
from transpect.serve.http.errors import ApiError, unavailable
from transpect.serve.http.guard import StoppedError
from transpect.serve.http.replicas.fleet import Answer, Asked, Fleet, LostError, NobodyError
from transpect.serve.http.replicas.numbers import Numbers
from transpect.serve.http.service import Service, call_of
from transpect.serve.http.streams import Json, abort
from transpect.serve.http.tracing import Tracing

__all__ = ["Front"]

TRIES: Final = 3
"""Replicas that are asked for one request at most."""
_DROPPED: Final = frozenset({b"host", b"content-length", b"connection", b"transfer-encoding", b"expect", b"origin"})
"""Headers that are about one connection, or were looked at here."""
_LOST: Final = "The replica that answered this request has failed."


class Front:
    """An ASGI app that has replicas answer.

    Args:
        service: of this process: limits, keys, log; it has no models.
        fleet: who answer.
    """

    def __init__(self, service: Service, fleet: Fleet) -> None:
        self._service, self._fleet = service, fleet
        self.retries = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = Request(scope, receive)
        if scope["path"] in _OWN:
            await (await _OWN[scope["path"]](self))(scope, receive, send)
            return
        body = b"" if scope["method"] != "POST" else await read_bytes(request, self._service.limits)
        try:
            async with self._service.guarded(receive):
                await self._answer(_asked(scope, body, self._service.tracing), scope["transpect.call"].id, send)
        except StoppedError as stopped:
            call_of(request).ended = stopped.reason
            if stopped.reason == "hung_up":
                abort(scope)
            else:
                raise stopped.error() from None

    async def _answer(self, asked: Asked, number: str, send: Send) -> None:
        """The answer of a replica; of another where that one has gone, has failed, or is about to stop."""
        tried: list[str] = []
        refusal: Answer | None = None
        for _ in range(TRIES):
            try:
                async with self._fleet.ask(asked, tried) as answer, aclosing(answer.parts()) as parts:
                    if tried:
                        self.retries += 1
                        self._service.log.tell("asked again", level="warning", id=number, replica=answer.name)
                    if answer.status != 503:
                        await self._pass_on(answer, parts, send)
                        return
                    refusal, said = answer, b"".join([part async for part in parts])
                    tried.append(answer.name)
            except LostError as lost:
                tried.append(lost.name)
            except NobodyError:
                break
        if refusal is None:
            raise unavailable("No replica can answer now.", "no_replica")
        await _send_whole(refusal, said, send)

    async def _pass_on(self, answer: Answer, parts: AsyncGenerator[bytes, None], send: Send) -> None:
        """Send what a replica answers.

        Raises:
            LostError: it has gone, and nothing was sent on.
        """
        if not answer.streams:
            await _send_whole(answer, b"".join([part async for part in parts]), send)
            return
        events = _whole(parts)
        first = await anext(events, b"")  # what is lost before the first event is asked again
        await send({"type": "http.response.start", "status": answer.status, "headers": _kept(answer)})
        await self._stream(first, events, send)

    async def _stream(self, first: bytes, events: AsyncGenerator[bytes, None], send: Send) -> None:
        async def on(data: bytes, more: bool = True) -> None:
            async with asyncio.timeout(self._service.limits.send_seconds):
                await send({"type": "http.response.body", "body": data, "more_body": more})

        await on(first)
        try:
            async for some in events:
                await on(some)
        except LostError:
            problem = json.dumps(ApiError(503, _LOST, code="replica_lost").body())
            await on(b"data: " + problem.encode() + b"\n\n")
        await on(b"", more=False)

    async def health(self) -> Response:
        """Whether each replica, and each engine of it, is well; 503 where none is."""
        said = await self._fleet.each("/health")
        states = {name: status == 200 for name, (status, _) in said.items()}
        status = "ok" if states and all(states.values()) else "degraded" if any(states.values()) else "dead"
        counts = {"up": sum(states.values()), "all": len(states)}
        return Json({"status": status, "replicas": counts}, 200 if counts["up"] else 503)

    async def ready(self) -> Response:
        """Whether a replica takes requests."""
        states = {name: status == 200 for name, (status, _) in (await self._fleet.each("/ready")).items()}
        takes = any(states.values()) and not self._service.draining
        return Json({"ready": takes, "replicas": states}, 200 if takes else 503)

    async def metrics(self) -> Response:
        """The numbers of all replicas, each with its name, and of this process."""
        registry = CollectorRegistry()
        registry.register(Numbers(await self._fleet.each("/metrics"), self._fleet.numbers(), self.retries))
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4; charset=utf-8")


_OWN: Final[Mapping[str, Callable[[Front], Any]]] = {
    "/health": Front.health,
    "/ready": Front.ready,
    "/metrics": Front.metrics,
}


def _asked(scope: Scope, body: bytes, tracing: Tracing) -> Asked:
    call = scope["transpect.call"]
    own = {b"x-request-id": call.id.encode(), **dict(tracing.onward(call.span))}
    headers = [(name, value) for name, value in scope["headers"] if name not in _DROPPED | own.keys()]
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    return Asked(
        scope["method"],
        (scope["raw_path"] + query).decode("latin-1"),
        [*headers, *own.items()],
        body,
        call.account.key.name.encode(),
    )


async def _send_whole(answer: Answer, body: bytes, send: Send) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": _kept(answer, body)})
    await send({"type": "http.response.body", "body": body})


async def _whole(parts: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """A stream in whole events; one that breaks off is dropped."""
    held = b""
    async for part in parts:
        some, end, held = (held + part).rpartition(b"\n\n")
        if end:
            yield some + end
    if held:
        yield held


def _kept(answer: Answer, whole: bytes | None = None) -> list[tuple[bytes, bytes]]:
    headers = [pair for pair in answer.headers if pair[0] not in _DROPPED | {b"x-request-id", b"date"}]
    return headers if whole is None else [*headers, (b"content-length", b"%d" % len(whole))]
