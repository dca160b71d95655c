"""The one that listens: it lets requests in as a single server does, and has replicas answer them.

What a replica held when it died is asked again of another one, as long as nothing of its answer has been sent on: a
request changes nothing, and with its seed it gives the same. A stream that has begun ends with an error event, and
without ``[DONE]``. Nothing is lost in silence.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from prometheus_client import generate_latest
from prometheus_client.core import CollectorRegistry, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from transpect.serve.errors import ServeError
from transpect.serve.http.app import ROUTES
from transpect.serve.http.body import read_bytes
from transpect.serve.http.errors import ApiError, unavailable
from transpect.serve.http.gate import Gate
from transpect.serve.http.guard import StoppedError
from transpect.serve.http.replicas.replica import Answer, LostError, Replica
from transpect.serve.http.replicas.routing import Router
from transpect.serve.http.server import Server, is_loopback
from transpect.serve.http.service import Service, call_of
from transpect.serve.http.streams import Json, abort

__all__ = ["Front", "FrontServer", "front_server"]

TRIES: Final = 3
"""Replicas that are asked for one request at most."""
_DROPPED: Final = frozenset({b"host", b"content-length", b"connection", b"transfer-encoding", b"expect", b"origin"})
"""Headers that are about one connection, or were looked at here."""
_LOST: Final = "The replica that answered this request has failed."


class Front:
    """An ASGI app that has replicas answer.

    Args:
        service: of this process: limits, keys, log; it has no models.
        replicas: who answer.
        secret: a key of the replicas, by which they are asked how they are; empty where they have none.
    """

    def __init__(self, service: Service, replicas: Sequence[Replica], secret: str = "") -> None:
        self.replicas, self.router, self._service = tuple(replicas), Router(), service
        self._key = [(b"authorization", b"Bearer " + secret.encode())] if secret else []
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
                await self._answer(scope, body, send)
        except StoppedError as stopped:
            call_of(request).ended = stopped.reason
            if stopped.reason == "hung_up":
                abort(scope)
            else:
                raise stopped.error() from None

    async def _answer(self, scope: Scope, body: bytes, send: Send) -> None:
        key = scope["transpect.call"].account.key.name.encode()
        left = list(self.replicas)
        for _ in range(TRIES):
            loads = {own.name: own.load for own in left if own.port is not None}
            if not loads:
                break
            name = self.router.choose(body, key, loads)
            replica = next(own for own in left if own.name == name)
            try:
                await self._of(replica, scope, body, send, last=len(loads) == 1)
                return
            except LostError:
                left.remove(replica)
                self.retries += 1
                self._service.log.tell("asked again", level="warning", id=scope["transpect.call"].id, replica=name)
        raise unavailable("No replica can answer now.", "no_replica")

    async def _of(self, replica: Replica, scope: Scope, body: bytes, send: Send, *, last: bool) -> None:
        """The answer of one replica.

        Raises:
            LostError: it has gone, and nothing was sent on.
        """
        headers = [(name, value) for name, value in scope["headers"] if name not in _DROPPED | {b"x-request-id"}]
        headers.append((b"x-request-id", scope["transpect.call"].id.encode()))
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        target = (scope["raw_path"] + query).decode("latin-1")
        async with replica.ask(scope["method"], target, headers, body) as answer, aclosing(answer.parts()) as parts:
            if answer.status == 503 and not last:  # its engine has failed, or it is about to stop
                raise LostError(replica.name)
            if not answer.streams:
                whole = b"".join([part async for part in parts])
                await send({"type": "http.response.start", "status": answer.status, "headers": _kept(answer, whole)})
                await send({"type": "http.response.body", "body": whole})
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
        """Whether each replica is there; 503 where none is."""
        up = sum(own.port is not None for own in self.replicas)
        status = "ok" if up == len(self.replicas) else "degraded" if up else "dead"
        return Json({"status": status, "replicas": {"up": up, "all": len(self.replicas)}}, 200 if up else 503)

    async def ready(self) -> Response:
        """Whether a replica takes requests."""
        said = await asyncio.gather(*(self._of_each(own, "/ready") for own in self.replicas))
        states = {own.name: status == 200 for own, (status, _) in zip(self.replicas, said, strict=True)}
        takes = any(states.values()) and not self._service.draining
        return Json({"ready": takes, "replicas": states}, 200 if takes else 503)

    async def metrics(self) -> Response:
        """The numbers of all replicas, each with its name, and of this process."""
        pages = await asyncio.gather(*(self._of_each(own, "/metrics") for own in self.replicas))
        registry = CollectorRegistry()
        registry.register(_Pages(self, [page.decode() for _, page in pages]))
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _of_each(self, replica: Replica, path: str) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(5), replica.ask("GET", path, self._key) as answer:
                return answer.status, b"".join([part async for part in answer.parts()])
        except (LostError, TimeoutError):
            return 503, b""


class _Pages(Collector):
    def __init__(self, front: Front, pages: Sequence[str]) -> None:
        self._front, self._pages = front, pages

    def collect(self) -> list[Metric]:
        """One family a number."""
        families: dict[str, Metric] = {}
        for replica, page in zip(self._front.replicas, self._pages, strict=True):
            for found in text_string_to_metric_families(page):
                family = families.setdefault(found.name, Metric(found.name, found.documentation, found.type))
                for sample in found.samples:
                    labels = {**sample.labels, "replica": replica.name}
                    family.add_sample(sample.name, labels, sample.value)
        numbers: Mapping[str, Callable[[Replica], float]] = {
            "up": lambda own: float(own.port is not None),
            "load": lambda own: own.load,
            "restarts": lambda own: own.restarts,
        }
        for name, of in numbers.items():
            gauge = GaugeMetricFamily(f"transpect_replica_{name}", f"{name} of a replica.", labels=("replica",))
            for own in self._front.replicas:
                gauge.add_metric((own.name,), of(own))
            families[gauge.name] = gauge
        families["asked"] = GaugeMetricFamily(
            "transpect_front_retries", "Requests asked of another replica.", value=self._front.retries
        )
        return list(families.values())


_OWN: Final[Mapping[str, Callable[[Front], Any]]] = {
    "/health": Front.health,
    "/ready": Front.ready,
    "/metrics": Front.metrics,
}


class FrontServer(Server):
    """A server before replicas, which are started with it and end with it; see `front_server`."""

    def __init__(self, front: Front, service: Service, app: Any, **options: Any) -> None:
        super().__init__(service, app=app, **options)
        self.front = front

    async def startup(self, sockets: Any = None) -> None:
        """See `Server`: replicas first, so that who connects is answered.

        Raises:
            ServeError: none has started.
        """
        tried, some = set[str](), asyncio.Event()

        def note(replica: Replica) -> None:
            self.front.router.forget(replica.name)
            tried.add(replica.name)
            if replica.port is not None or len(tried) == len(self.front.replicas):
                some.set()

        self._keeping = [asyncio.create_task(own.keep(note)) for own in self.front.replicas]
        await some.wait()
        if all(own.port is None for own in self.front.replicas):
            await self._end()
            raise ServeError("no replica has started", remedy="See what they wrote before.")
        await super().startup(sockets)

    async def shutdown(self, sockets: Any = None) -> None:
        """See `Server`."""
        await self._end()
        await super().shutdown(sockets)

    async def _end(self) -> None:
        seconds = self._service.limits.drain_seconds
        await asyncio.gather(*(own.stop(seconds) for own in self.front.replicas))
        for task in self._keeping:
            task.cancel()


def front_server(
    service: Service, replicas: Sequence[Replica], secret: str = "", *, host: str = "127.0.0.1", **options: Any
) -> FrontServer:
    """A server whose requests replicas answer; they are started with it, and end with it.

    Args:
        service: without models.
        replicas: not started yet.
        secret: see `Front`.
        host: see `Server`, as the other options.
    """
    front = Front(service, replicas, secret)
    app = Gate(front, service, frozenset(route.path for route in ROUTES), local=is_loopback(host))
    return FrontServer(front, service, app, host=host, **options)


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
