"""The first to see a request and the last to see its answer: who asks, whether there is room, what came of it."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from contextlib import suppress
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transpect.serve.http.errors import ApiError, busy, explained, unavailable
from transpect.serve.http.keys import ANYONE, Account
from transpect.serve.http.service import Call, Service
from transpect.serve.http.streams import Json, abort

__all__ = ["Gate"]

_OPEN: Final = frozenset({"/health"})
_ALWAYS: Final = frozenset({"/health", "/ready", "/metrics"})
"""Answered also when the server is about to stop."""
_LOCAL: Final = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?", re.IGNORECASE)
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HANG_UP: Final = 499
_LINGER: Final = 2.0
"""Seconds for the rest of a request that is refused."""


class Gate:
    """An ASGI app around another.

    A request of a foreign web page is refused: its ``Origin`` is not this server. Without keys, so is one whose
    ``Host`` is no name of this machine, by which a web page could get around that (DNS rebinding).

    Args:
        app: the app inside.
        service: the server.
        routes: the paths that it has, for metrics.
        local: whether it listens on the loopback interface only.
    """

    def __init__(self, app: ASGIApp, service: Service, routes: frozenset[str], *, local: bool) -> None:
        self._app, self._service, self._routes, self._local = app, service, routes, local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        asked = headers.get("x-request-id", "")
        call = Call(asked if _ID.fullmatch(asked) else f"req-{secrets.token_hex(12)}", Account(ANYONE))
        call.span = self._service.tracing.begin(headers, scope["method"], self._route(scope))
        scope["transpect.call"], scope["transpect.service"] = call, self._service
        scope["app"] = self  # the router then raises what it can't route, instead of answering by itself
        status, unread = 0, True

        async def received() -> Message:
            nonlocal unread
            message = await receive()
            unread = unread and message.get("more_body", False)
            return message

        async def answered(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                out = MutableHeaders(scope=message)
                out["x-request-id"] = call.id
                out["x-content-type-options"] = "nosniff"
            await send(message)

        try:
            try:
                await self._let_in(scope, headers, call, received, answered)
            except Exception as error:
                problem = self._problem(error, scope, call)
                if status or problem.status == _HANG_UP:
                    abort(scope)
                elif unread and (headers.get("content-length", "0") != "0" or "transfer-encoding" in headers):
                    await _refuse(problem, received, answered)
                else:
                    await Json(problem.body(), problem.status, problem.headers)(scope, receive, answered)
        finally:
            self._tell(scope, call, status or _HANG_UP)

    async def _let_in(self, scope: Scope, headers: Headers, call: Call, receive: Receive, send: Send) -> None:
        path, service = scope["path"], self._service
        if _head_bytes(scope) > service.limits.header_bytes:  # h11 bounds only heads that it has to wait for
            message = f"The head of a request may have at most {service.limits.header_bytes} bytes."
            raise ApiError(431, message, code="headers_too_large", headers={"Connection": "close"})
        if path not in _OPEN:
            self._check_place(headers)
            call.account = service.keys.account(headers.get("authorization"))
        if service.draining and path not in _ALWAYS:
            error = unavailable("The server is shutting down.", "shutting_down")
            error.headers["Connection"] = "close"
            raise error
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        if service.active >= service.limits.active:
            raise busy("The server has as many requests as it can take.", 1, "server_busy")
        with call.account.admitted():
            service.active += 1
            try:
                await self._app(scope, receive, send)
            finally:
                service.active -= 1

    def _problem(self, error: Exception, scope: Scope, call: Call) -> ApiError:
        """An exception as an answer; one that nobody expected is logged."""
        if isinstance(error, ApiError):
            return error
        if isinstance(error, HTTPException):
            where = f"{scope['method']} {scope['path'][:200]}"
            message = f"{where} is not allowed." if error.status_code == 405 else f"There is no {where}."
            return ApiError(error.status_code, message, code="not_found", headers=error.headers)
        self._service.log.fail("request failed", error, id=call.id, path=scope["path"])
        return explained(error)

    def _check_place(self, headers: Headers) -> None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._local and not len(self._service.keys) and not _LOCAL.fullmatch(host):
            raise ApiError(403, "The Host header is no name of this machine.", code="forbidden_host")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            raise ApiError(403, "Requests of other web pages are not answered.", code="forbidden_origin")

    def _route(self, scope: Scope) -> str:
        return scope["path"] if scope["path"] in self._routes else "other"

    def _tell(self, scope: Scope, call: Call, status: int) -> None:
        path, seconds, route = scope["path"], time.monotonic() - call.started, self._route(scope)
        self._service.tracing.end(call, status)
        self._service.metrics.requests.labels(route, call.model, str(status)).inc()
        self._service.metrics.seconds.labels(route).observe(seconds)
        self._service.log.tell(
            "request",
            id=call.id,
            method=scope["method"],
            path=path[:200],
            status=status,
            seconds=round(seconds, 4),
            key=call.account.key.name if len(self._service.keys) else None,
            model=call.model or None,
            prompt_tokens=call.prompt_tokens or None,
            completion_tokens=call.completion_tokens or None,
            first_token=None if call.first_token is None else round(call.first_token, 4),
            ended=call.ended or None,
        )


async def _refuse(problem: ApiError, receive: Receive, send: Send) -> None:
    """Answer a request before its end. A connection that is closed on a sender loses the answer, so the rest is taken
    and dropped for a while."""
    answer = Json(problem.body(), problem.status, {**problem.headers, "Connection": "close"})
    await send({"type": "http.response.start", "status": answer.status_code, "headers": answer.raw_headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER):
            while (await receive()).get("more_body", False):
                pass
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _head_bytes(scope: Scope) -> int:
    headers = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    return headers + len(scope["raw_path"]) + len(scope["query_string"])
