"""Where the coroutines of all requests meet: what they read is merged into one pass, again and again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from transpect.base.errors import ConfigError
from transpect.cache import DENSE
from transpect.cache.block_pool import BlockPool
from transpect.core import Transformer
from transpect.decode.program_steps import Runtime, check_runtime
from transpect.decode.stepper import ReadsAhead
from transpect.serve.config import EngineConfig
from transpect.serve.errors import Expired
from transpect.serve.handle import Handle, wake
from transpect.serve.plan import Entry, Limits
from transpect.serve.prefixes import Prefixes
from transpect.serve.reading import InTurn, Reading
from transpect.serve.request import Stats
from transpect.serve.runner import Runner
from transpect.serve.scheduler import Scheduler
from transpect.serve.sizing import Size
from transpect.serve.task import Asked, Echo, Task
from transpect.serve.team import ALONE, Team

CHUNK: Final = 64
"""Tokens of a prompt from which on a pass of many rows is quicker than those of few."""

AHEAD: Final = 4
"""Passes of a prompt budget that those who write wait for once, where most have a prompt to read."""


def why_in_turn(model: Transformer, runtime: Runtime) -> str | None:
    """Why requests of a model can't share passes; None where they can."""
    if runtime == "torch":
        return "runtime=torch"
    try:
        check_runtime("program", model, DENSE)
    except ConfigError as error:
        return str(error)
    return None


class Hub:
    """All requests that an engine has taken. Of one thread.

    Args:
        model: that there is a program for, where they share passes.
        config: of the engine.
        size: of the engine.
        shares: whether they share passes; otherwise each reads by itself, in turn.
        team: who computes what those read.
    """

    def __init__(
        self, model: Transformer, config: EngineConfig, size: Size, *, shares: bool, team: Team = ALONE
    ) -> None:
        self._model, self._team = model, team
        self._pool = BlockPool(size.block, size.blocks)
        self._prefixes = Prefixes(self._pool) if config.prefix_cache and shares else None
        alone = config.prompt_budget
        limits = Limits(size.rows, config.token_budget, config.overcommit, alone, min(CHUNK, alone), AHEAD * alone)
        self._scheduler = Scheduler(self._pool, limits, self._prefixes)
        self._runner = Runner(model, size.rows, size.context, size.block, size.blocks) if shares else None
        self._tasks: dict[Entry, Task] = {}
        self._entries: dict[Handle, Entry] = {}
        self._expiring: set[Entry] = set()
        self._read = self._written = self._finished = self._failed = self._cancelled = 0

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, handle: Handle, asked: Asked) -> None:
        """Let a request wait for its turn."""
        task = Task(handle, asked, self._steps(asked))
        entry = asked.entry
        if self._runner is None:
            entry.lines = []
        self._tasks[entry], self._entries[handle] = task, entry
        if handle.job.deadline is not None:
            self._expiring.add(entry)
        self._scheduler.add(entry)

    def cancel(self, handle: Handle) -> None:
        """Forget a request whose handle has ended; what it held is free."""
        if handle in self._entries:
            self._cancelled += 1
            self._remove(self._tasks[self._entries[handle]])

    def turn(self) -> list[tuple[Handle, Exception | None]]:
        """One pass, and what the requests do with it; those that have ended, and with what."""
        self._ended: list[tuple[Handle, Exception | None]] = []
        self._gone_on: list[Handle] = []
        self._expire()
        scheduler = self._scheduler
        for entry in scheduler.admit():
            if not self._tasks[entry].begun:
                self._tasks[entry].handle.times.begun = time.monotonic()
                self._go_on(self._tasks[entry])
        plan = scheduler.plan()
        for entry in plan.aside:
            if entry in self._tasks:
                self._tasks[entry].void()
        going = dict.fromkeys(read.entry for read in plan.reads)
        if self._runner is not None and plan.reads:
            for output in self._runner.run(plan, lambda entry, line: self._tasks[entry].asked.whole(line)):
                steps = self._tasks[output.entry].steps
                assert isinstance(steps, Reading)
                steps.take(*output[1:])
            self._read += sum(read.stop - read.start for read in plan.reads)
        scheduler.commit(plan)
        for entry in going:
            if not entry.left:
                self._go_on(self._tasks[entry])
        if plan.turn is not None:
            self._go_on(self._tasks[plan.turn])
        wake(self._gone_on)
        return self._ended

    def end_all(self, error: Exception) -> None:
        """End all requests with an error."""
        for task in list(self._tasks.values()):
            task.handle.end(error)
            self._remove(task)

    def stats(self) -> Stats:
        """What there is and what was done."""
        scheduler, pool = self._scheduler, self._pool
        cached = self._prefixes.idle if self._prefixes else 0
        return Stats(
            "ready",
            running=len(scheduler.running),
            waiting=scheduler.waiting,
            blocks_used=pool.used - cached,
            blocks_cached=cached,
            blocks_total=pool.limit or 0,
            block=pool.block,
            prefix_hits=scheduler.hits,
            prefix_queries=scheduler.queries,
            preemptions=scheduler.preemptions,
            passes=scheduler.passes,
            tokens_read=self._read,
            tokens_written=self._written,
            finished=self._finished,
            failed=self._failed,
            cancelled=self._cancelled,
        )

    def _steps(self, asked: Asked) -> Callable[[Callable[[], None], Echo | None], ReadsAhead]:
        if self._runner is None:
            return lambda wait, echo: InTurn(self._alone(asked), wait)
        entry, scheduler, size = asked.entry, self._scheduler, self._model.config.vocab_size
        return lambda wait, echo: Reading(entry, asked.line_of, scheduler, size, wait, echo)

    def _alone(self, asked: Asked) -> ReadsAhead:
        """What reads the rows of a request by itself."""
        requests = asked.requests
        return self._team.steps(
            self._model,
            [own.read for own in requests],
            [len(own.prompt) + own.params.max_new_tokens for own in requests],
            [own.source or () for own in requests] if self._model.config.encoder else None,
        )

    def _go_on(self, task: Task) -> None:
        before = task.handle.usage.completion_tokens
        task.go_on()
        self._gone_on.append(task.handle)
        self._written += task.handle.usage.completion_tokens - before
        if not task.over:
            return
        if task.error is None:
            self._finished += 1
        else:
            self._failed += 1
        self._end(task, task.error)

    def _expire(self) -> None:
        now = time.monotonic()
        for entry in [own for own in self._expiring if (self._tasks[own].handle.job.deadline or 0) < now]:
            self._failed += 1
            self._end(self._tasks[entry], Expired())

    def _end(self, task: Task, error: Exception | None) -> None:
        task.handle.count(cached_tokens=task.entry.cached)
        self._remove(task)
        self._ended.append((task.handle, error))

    def _remove(self, task: Task) -> None:
        task.kill()
        self._scheduler.remove(task.entry)
        if self._runner is not None:
            self._runner.forget(task.entry)
        self._expiring.discard(task.entry)
        del self._tasks[task.entry], self._entries[task.handle]
