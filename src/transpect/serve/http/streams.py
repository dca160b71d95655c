"""Answers: whole ones as JSON, and streams of server-sent events, both within bounds and with an honest end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from transpect.serve.http.errors import ApiError, explained
from transpect.serve.http.generation import Generation
from transpect.serve.http.guard import StoppedError
from transpect.serve.http.service import call_of, service_of

__all__ = ["Json", "Stream", "whole"]


class Json(Response):
    """A value as JSON."""

    media_type = "application/json"

    def __init__(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(_dumped(value), status, headers)


async def whole(request: Request, generation: Generation, answer: Callable[[], Awaitable[Any]]) -> Response:
    """An answer in one piece.

    Args:
        request: what is answered.
        generation: is closed at the end, whichever it is.
        answer: makes it.

    Raises:
        ApiError: what went wrong.
    """
    service, call = service_of(request), call_of(request)
    try:
        async with service.guarded(request.receive):
            return Json(await answer())
    except StoppedError as stopped:
        call.ended = stopped.reason
        raise stopped.error() from None
    except ApiError:
        raise
    except Exception as error:
        known = explained(error, running=True)
        call.ended = known.code or "error"
        if known.status == 500:
            service.log.fail("request failed", error, id=call.id)
        raise known from error
    finally:
        generation.close()


class Stream(Response):
    """An answer in pieces: each a ``data:`` event, and ``[DONE]`` where all went well.

    What goes wrong on the way is an event with an error object, after which the stream ends without ``[DONE]``. A
    reader that leaves what was sent unread for too long is cut off.

    Args:
        request: what is answered.
        generation: is closed at the end, whichever it is.
        pieces: the events; text stands as it is, anything else becomes JSON. A pair is an event with a name.
        done: whether ``[DONE]`` ends the stream.
    """

    def __init__(
        self, request: Request, generation: Generation, pieces: AsyncIterator[Any], *, done: bool = True
    ) -> None:
        super().__init__(
            headers={
                "content-type": "text/event-stream; charset=utf-8",
                "cache-control": "no-store",
                "x-accel-buffering": "no",
            }
        )
        self.raw_headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"]
        self._service, self._call = service_of(request), call_of(request)
        self._generation, self._pieces, self._done = generation, pieces, done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await self._send(send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            error = await self._body(receive, send)
            if error is not None:
                self._call.ended = error.code or "error"
                await self._send(send, _body(_event(self.problem(error))))
            await self._send(send, {"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            self._call.ended = "unread"
            abort(scope)
        finally:
            self._generation.close()

    def problem(self, error: ApiError) -> Any:
        """What went wrong, as an event."""
        return error.body()

    async def _body(self, receive: Receive, send: Send) -> ApiError | None:
        """All events; what went wrong, if something did."""
        try:
            async with self._service.guarded(receive):
                async for piece in self._pieces:
                    await self._send(send, _body(_event(piece)))
                if self._done:
                    await self._send(send, _body(b"data: [DONE]\n\n"))
        except StoppedError as stopped:
            return stopped.error()
        except TimeoutError:
            raise
        except Exception as error:
            known = explained(error, running=True)
            if known.status == 500:
                self._service.log.fail("request failed", error, id=self._call.id)
            return known
        return None

    async def _send(self, send: Send, message: dict[str, Any]) -> None:
        async with asyncio.timeout(self._service.limits.send_seconds):
            await send(message)


def abort(scope: Scope) -> None:
    """Cut a connection off, with what was not sent yet."""
    connection = scope.get("state", {}).get("connection")
    if connection is not None:
        connection.abort()


def _body(data: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": True}


def _event(piece: Any) -> bytes:
    if isinstance(piece, tuple):
        name, value = piece
        return f"event: {name}\n".encode() + _event(value)
    return b"data: " + _dumped(piece) + b"\n\n"


def _dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
