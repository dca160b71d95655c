"""What holds the outputs of a request for who waits for them, in another thread or on an event loop."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from threading import Condition

from transpect.decode.request import Event, Result, collect
from transpect.serve.request import Job, PromptToken, Times, Usage


class Handle:
    """A request on its way through an engine. Its events are taken by ``for`` in a thread or by ``async for`` on an
    event loop, by one taker, once.

    An engine never waits for a taker: events that nobody takes stay here, at most as many as the request asks for.

    Args:
        job: whose it is.
        cancel: tells the engine that nobody waits any more.

    Attributes:
        times: when it was taken, begun and ended.

    Raises:
        TranspectError: while events are taken, what ended the request (`EngineDead`, `Expired`, an error of its own).
    """

    def __init__(self, job: Job, cancel: Callable[[Handle], None]) -> None:
        self.job = job
        self._cancel, self._cancelled = cancel, False
        self._changed = Condition()
        self._events: deque[Event] = deque()
        self._over = False
        self._error: BaseException | None = None
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        asked = job.request.prompt if job.request.source is None else job.request.source
        self._usage = Usage(len(asked))
        self.times = Times(time.monotonic())
        self._prompt: tuple[PromptToken, ...] = ()

    @property
    def usage(self) -> Usage:
        """So far; that of the whole request when it has ended."""
        return self._usage

    @property
    def prompt(self) -> tuple[PromptToken, ...]:
        """The prompt's tokens as the model reads them, where the job asks for an echo: there before the first event."""
        return self._prompt

    @property
    def done(self) -> bool:
        """Whether it has ended, whichever way; events may be left to take."""
        return self._over

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled before it ended."""
        return self._cancelled

    def cancel(self) -> None:
        """End the request, from any thread: it has no more events, and what it holds is free before the next pass.
        One that has ended, or is cancelled, may be cancelled."""
        with self._changed:
            if self._over:
                return
            self._cancelled = True
            self._events.clear()
        self.end()
        self._cancel(self)

    def result(self) -> list[Result]:
        """Wait for all outputs, in their order."""
        return collect(self)

    def __iter__(self) -> Iterator[Event]:
        while True:
            with self._changed:
                while not self._events and not self._over:
                    self._changed.wait()
                if not self._events:
                    self._finish()
                    return
                event = self._events.popleft()
            yield event

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            waiter = None
            with self._changed:
                taken = list(self._events)
                self._events.clear()
                if not taken:
                    if self._over:
                        self._finish()
                        return
                    loop = asyncio.get_running_loop()
                    waiter = loop.create_future()
                    self._waiters.append((loop, waiter))
            if waiter is not None:
                await waiter
            for event in taken:
                if self._cancelled:
                    return
                yield event

    def put(self, event: Event) -> None:
        """Of the engine: an event, seen by takers at the next `wake`."""
        with self._changed:
            if not self._over:
                if self.times.first_token is None and event.token is not None:
                    self.times.first_token = time.monotonic()
                self._events.append(event)
                self.count(completion_tokens=self._usage.completion_tokens + (event.token is not None))

    def count(self, **changes: int) -> None:
        """Of the engine: numbers of `usage`."""
        self._usage = Usage(**{**vars(self._usage), **changes})

    def echo(self, prompt: tuple[PromptToken, ...]) -> None:
        """Of the engine: what `prompt` is."""
        self._prompt = prompt

    def end(self, error: BaseException | None = None) -> None:
        """Of the engine: there are no more events; the first end counts."""
        with self._changed:
            if not self._over:
                self._over, self._error = True, error
                self.times.ended = time.monotonic()
        self.wake()

    def wake(self) -> None:
        """Of the engine: let takers look."""
        wake([self])

    def _woken(self) -> list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]]:
        """Takers in threads look; those on event loops are to be told."""
        with self._changed:
            self._changed.notify_all()
            waiters, self._waiters = self._waiters, []
        return waiters

    def _finish(self) -> None:
        if self._error is not None:
            raise self._error


def wake(handles: Iterable[Handle]) -> None:
    """Of the engine: let the takers of all these look. An event loop is told once, for to tell it is a call of the
    system, after which the engine would wait for the interpreter's lock each time."""
    waiting: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for handle in handles:
        for loop, waiter in handle._woken():
            waiting.setdefault(loop, []).append(waiter)
    for loop, waiters in waiting.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_release, waiters)


def _release(waiters: Iterable[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
