"""What ends a request before its time: a client that hangs up, a deadline, a server that must stop."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Literal, Self

from starlette.types import Receive

from transpect.serve.http.errors import ApiError, unavailable

__all__ = ["Guard", "Reason", "StoppedError"]

Reason = Literal["hung_up", "deadline", "shutdown", "unread"]


class StoppedError(Exception):
    """A request was ended.

    Args:
        reason: why.
    """

    def __init__(self, reason: Reason) -> None:
        self.reason: Reason = reason
        super().__init__(reason)

    def error(self) -> ApiError:
        """As an answer."""
        if self.reason == "shutdown":
            return unavailable("The server is shutting down and could not finish this request.", "shutting_down")
        if self.reason == "deadline":
            return ApiError(504, "The request took longer than this server allows.", code="request_deadline")
        return ApiError(499, "The client hung up.", code="client_closed_request")


class Guard:
    """Watches over one request: the body of ``async with`` is cancelled, and `StoppedError` raised in its place, when
    the client hangs up, when the time is over, or when somebody calls `stop`.

    The body of the request must have been read before.

    Args:
        receive: of the request, which says when the client hangs up.
        seconds: from now on.
    """

    def __init__(self, receive: Receive, seconds: float) -> None:
        self._receive, self._seconds = receive, seconds
        self._task: asyncio.Task[object] | None = None
        self._reason: Reason | None = None

    def stop(self, reason: Reason) -> None:
        """End the request, if it has not ended."""
        if self._task is not None and self._reason is None:
            self._reason = reason
            self._task.cancel()

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._seconds, self.stop, "deadline")
        self._watcher = loop.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        self._timer.cancel()
        self._watcher.cancel()
        if self._reason is not None and task is not None:
            task.uncancel()
            if kind is not None and issubclass(kind, asyncio.CancelledError):
                raise StoppedError(self._reason) from None

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.stop("hung_up")
