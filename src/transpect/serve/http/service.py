"""What all routes share, and what is known of one request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.types import Receive

from transpect.serve.http.errors import unavailable
from transpect.serve.http.guard import Guard
from transpect.serve.http.keys import Account, Keys
from transpect.serve.http.limits import Limits
from transpect.serve.http.logs import Log
from transpect.serve.http.metrics import Metrics
from transpect.serve.http.models import Models
from transpect.serve.http.schemas import SchemaCheck
from transpect.serve.http.tracing import NO_TRACING, Tracing
from transpect.serve.request import Times

__all__ = ["Call", "Service", "call_of", "service_of"]

T = TypeVar("T")


@dataclass
class Call:
    """One request, for logs and metrics.

    Attributes:
        id: of the request, in its answer's header and in the log.
        account: whose it is.
        started: in seconds of `time.monotonic`.
        model: the name of the model that it is for.
        prompt_tokens: so many were read for it.
        completion_tokens: so many were written.
        first_token: seconds until the first was there.
        ended: why its answer ended.
        times: of what the engine did for it.
        span: what stands for it in `Tracing`.
    """

    id: str
    account: Account
    started: float = field(default_factory=time.monotonic)
    model: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    first_token: float | None = None
    ended: str = ""
    times: Sequence[Times] = ()
    span: Any = None


class Service:
    """A server's state.

    Args:
        models: what is served.
        limits: of requests.
        keys: who may ask.
        log: where it is told what happens.
        log_prompts: whether prompts are written to the log.
        tracing: is told of requests.
    """

    def __init__(
        self,
        models: Models,
        *,
        limits: Limits | None = None,
        keys: Keys | None = None,
        log: Log | None = None,
        log_prompts: bool = False,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self.models, self.limits, self.keys = models, limits or Limits(), keys or Keys(())
        self.tracing = tracing
        self.log, self.log_prompts = log or Log(), log_prompts
        self.metrics = Metrics(models)
        self.schemas = SchemaCheck(self.limits)
        self.draining = False
        self.active = 0
        self._stopped = False
        self._guards: set[Guard] = set()
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="transpect-prepare")

    @asynccontextmanager
    async def guarded(self, receive: Receive) -> AsyncIterator[Guard]:
        """See `Guard`; the end of the server ends what is inside."""
        guard = Guard(receive, self.limits.request_seconds)
        if self._stopped:
            raise unavailable("The server is shutting down.", "shutting_down")
        self._guards.add(guard)
        try:
            async with guard:
                yield guard
        finally:
            self._guards.discard(guard)

    async def aside(self, work: Callable[[], T], undo: Callable[[T], object] = lambda _: None) -> T:
        """Do something that takes time in another thread.

        Args:
            work: what.
            undo: what becomes of its result where nobody waits for it any more.
        """
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(lambda done: done.cancelled() or done.exception() or undo(done.result()))
            raise

    async def drain(self, seconds: float) -> None:
        """Take nothing new; give what runs so many seconds to end, then end it with an error."""
        self.draining = True
        self.log.tell("draining", running=self.active, seconds=seconds)
        end = time.monotonic() + seconds
        while self.active and time.monotonic() < end:
            await asyncio.sleep(0.05)
        self._stopped = True
        for guard in list(self._guards):
            guard.stop("shutdown")
        end = time.monotonic() + min(seconds, 2.0)
        while self.active and time.monotonic() < end:
            await asyncio.sleep(0.05)
        self.log.tell("drained", left=self.active)

    async def close(self) -> None:
        """Stop the engines and the helpers."""
        await self.schemas.close()
        for own in self.models.all:
            await asyncio.to_thread(own.engine.stop)
        self._pool.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self.tracing.close)


def service_of(request: Request) -> Service:
    """The server's state."""
    service = request.scope["transpect.service"]
    assert isinstance(service, Service)
    return service


def call_of(request: Request) -> Call:
    """What is known of a request."""
    call = request.scope["transpect.call"]
    assert isinstance(call, Call)
    return call
