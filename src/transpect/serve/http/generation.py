"""The jobs of one request: handed to the engine, their events taken, their end seen to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from transpect.decode import Event, Request
from transpect.decode.request import Result, collect
from transpect.serve import Handle, Job
from transpect.serve.http.errors import explained
from transpect.serve.http.models import Served, alive
from transpect.serve.http.service import Call, Service

__all__ = ["Generation", "Prepared", "begin"]


@dataclass(frozen=True)
class Prepared:
    """What one request asks the engine for.

    Attributes:
        requests: of decoding, one for each prompt.
        echoes: the texts of the prompts, where they are to be given out; else none.
        score_prompts: whether the log-probabilities of the prompts are wanted too.
    """

    requests: Sequence[Request]
    echoes: Sequence[str] = ()
    score_prompts: bool = False


async def begin(
    service: Service, call: Call, model: Served, prepare: Callable[[], Prepared], *, param: str
) -> Generation:
    """Hand a request to the engine of its model.

    Args:
        service: the server.
        call: the request.
        model: that it is for.
        prepare: makes it; it runs in another thread, for tokenizing takes time.
        param: the field that holds the prompt.

    Raises:
        ApiError: it can't be done, or not now.
    """
    call.model = model.id

    def submit() -> Generation:
        prepared = prepare()
        handles: list[Handle] = []
        key = call.account.key
        deadline = call.started + service.limits.request_seconds
        try:
            for request in prepared.requests:
                job = Job(request, key.priority, key.name, deadline, prepared.score_prompts)
                handles.append(alive(model).engine.submit(job))
        except BaseException:
            for handle in handles:
                handle.cancel()
            raise
        return Generation(service, call, model, prepared, handles)

    try:
        return await service.aside(submit, Generation.close)
    except Exception as error:
        known = explained(error, param)
        if known.status == 500:
            service.log.fail("request failed", error, id=call.id)
        raise known from error


class Generation:
    """A request that is being answered. It must be closed."""

    def __init__(
        self, service: Service, call: Call, model: Served, prepared: Prepared, handles: Sequence[Handle]
    ) -> None:
        self.service, self.call, self.model, self.prepared = service, call, model, prepared
        self.handles = handles
        call.times = [handle.times for handle in handles]

    async def events(self) -> AsyncIterator[tuple[int, Event]]:
        """The events of all outputs as they come, each with its output's place among all."""
        last: dict[int, float] = {}
        label = self.model.id
        async for number, event in self._merged():
            place = number * self.prepared.requests[number].params.n + event.choice
            now = time.monotonic()
            if event.token is not None:
                if self.call.first_token is None:
                    self.call.first_token = now - self.call.started
                    self.service.metrics.first_token.labels(label).observe(self.call.first_token)
                if place in last:
                    self.service.metrics.between_tokens.labels(label).observe(now - last[place])
                last[place] = now
            if event.finish_reason is not None:
                self.call.ended = event.finish_reason
            yield place, event

    async def results(self) -> list[Result]:
        """All outputs, in their order."""
        found: list[list[Event]] = [[] for _ in self.handles]
        async for number, event in self._merged():
            found[number].append(event)
            if event.token is not None and self.call.first_token is None:
                self.call.first_token = time.monotonic() - self.call.started
                self.service.metrics.first_token.labels(self.model.id).observe(self.call.first_token)
        results = [result for events in found for result in collect(events)]
        self.call.ended = results[-1].finish_reason
        return results

    def usage(self) -> dict[str, Any]:
        """Tokens read and written so far."""
        self._count()
        read, written = self.call.prompt_tokens, self.call.completion_tokens
        cached = sum(handle.usage.cached_tokens for handle in self.handles)
        return {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def close(self) -> None:
        """End what has not ended, and count what was used."""
        for handle in self.handles:
            handle.cancel()
        self._count()
        self.call.account.tokens.take(self.call.prompt_tokens + self.call.completion_tokens)
        self.service.metrics.tokens.labels(self.model.id, "prompt").inc(self.call.prompt_tokens)
        self.service.metrics.tokens.labels(self.model.id, "completion").inc(self.call.completion_tokens)

    def _count(self) -> None:
        usages = [handle.usage for handle in self.handles]
        self.call.prompt_tokens = sum(own.prompt_tokens for own in usages)
        self.call.completion_tokens = sum(own.completion_tokens for own in usages)

    async def _merged(self) -> AsyncIterator[tuple[int, Event]]:
        """The events of all jobs, each with its job's place."""
        if len(self.handles) == 1:
            async for event in self.handles[0]:
                yield 0, event
            return
        queue: asyncio.Queue[tuple[int, Event] | BaseException | None] = asyncio.Queue()

        async def take(number: int) -> None:
            try:
                async for event in self.handles[number]:
                    queue.put_nowait((number, event))
            except Exception as error:
                queue.put_nowait(error)
            else:
                queue.put_nowait(None)

        tasks = [asyncio.create_task(take(number)) for number in range(len(self.handles))]
        try:
            left = len(tasks)
            while left:
                item = await queue.get()
                if isinstance(item, BaseException):
                    raise item
                if item is None:
                    left -= 1
                else:
                    yield item
        finally:
            for task in tasks:
                task.cancel()
