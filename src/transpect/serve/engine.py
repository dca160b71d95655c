"""The engine: requests from any thread in, events out, until it is told to stop."""

from __future__ import annotations

import atexit
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import replace
from itertools import count
from threading import Condition, Thread
from typing import Any, Final
from weakref import WeakSet

import torch

from transpect.base.errors import GenerationError
from transpect.core import CausalLM
from transpect.decode.row import Row
from transpect.lm import LanguageModel
from transpect.serve.calls import CALLS, Call, batched
from transpect.serve.config import EngineConfig
from transpect.serve.errors import Busy, Draining, EngineDead
from transpect.serve.handle import Handle
from transpect.serve.hub import Hub, why_in_turn
from transpect.serve.request import Job, State, Stats
from transpect.serve.sizing import sized
from transpect.serve.task import Asked, asked, nothing, seeded
from transpect.serve.team import ALONE, Team

_CONFIG: Final = EngineConfig()
LOOKED_AT: Final = 0.25
"""Seconds after which the numbers of `Engine.stats` are counted anew while an engine works."""


_BEGUN: Final[WeakSet[Engine]] = WeakSet()


@atexit.register
def _stop_all() -> None:
    """A thread that the interpreter leaves in the middle of a pass would abort the process."""
    for engine in tuple(_BEGUN):
        engine.stop()


class Engine:
    """A model that serves many requests. It has one thread, which alone touches the model.

    It is ``starting`` until its program is built (requests are taken already), ``ready``, ``draining`` after `drain`,
    and ``dead`` after `stop`, or when something but a request has failed; `restart` begins anew.

    Args:
        lm: the model.
        config: how large.
        team: who computes; those who share out the model's matrices, or this process alone.

    Attributes:
        state: see above.
        failure: what it has died of; None where it lives, or was stopped.
        notes: lines to be said at the start: how large it is, and what it can't do.

    Raises:
        ConfigError: a cache that does not fit the machine's memory.
    """

    def __init__(self, lm: LanguageModel, config: EngineConfig = _CONFIG, team: Team = ALONE) -> None:
        self.lm, self.config, self._team = lm, config, team
        model = lm.model
        self.notes: tuple[str, ...] = ()
        self.writes = isinstance(model.config.head, CausalLM) and model.config.decoder is not None
        self._shares = False
        if self.writes:
            self._size = sized(config, model.config)
            why = team.why_in_turn or why_in_turn(model, lm.runtime)
            self._shares = why is None
            self.notes = (str(self._size),)
            if why is not None:
                self.notes += (f"requests do not share passes, each reads by itself in turn: {why}",)
        self._changed = Condition()
        self._numbers = count()
        self._start()

    def _start(self) -> None:
        self.state: State = "starting"
        self.failure: Exception | None = None
        self._arrived: deque[tuple[Handle, Asked]] = deque()
        self._cancelled: deque[Handle] = deque()
        self._calls: deque[Call] = deque()
        self._failure: Exception | None = None
        self._open: dict[Handle, int] = {}  # those that have not ended, and what they cost
        self._asked = 0  # what all of them cost
        self._stats = Stats("starting")
        self._thread = Thread(target=self._work, daemon=True, name="transpect-engine")
        _BEGUN.add(self)
        self._thread.start()

    def submit(self, job: Job) -> Handle:
        """Take a request, from any thread, or refuse it at once.

        Raises:
            Busy: too much waits already.
            Draining, EngineDead: no new requests are taken.
            GenerationError, ContextLengthError, ConfigError: as `transpect.decode.stream`.
        """
        self._check_open()
        if not self.writes:
            raise GenerationError("this model reads texts and writes none", remedy=f"Ask it to {', '.join(CALLS)}.")
        job = seeded(job)
        handle = Handle(job, self._cancel)
        made = asked(job, next(self._numbers), self.lm.model, self.lm.tokenizer, self._size, self.config.prefix_cache)
        if nothing(job.request.params, job):
            _end_empty(handle, made.rows[0], job.request.params.n)
            return handle
        with self._changed:
            self._check_open()
            self._check_room(made.entry.cost)
            self._open[handle] = made.entry.cost
            self._asked += made.entry.cost
            self._arrived.append((handle, made))
            self._changed.notify_all()
        return handle

    def call(self, name: str, inputs: Any, **options: Any) -> Future[Any]:
        """Ask a model that reads: ``embed``, ``classify``, ``classify_tokens`` or ``fill_mask`` of `LanguageModel`,
        from any thread. Texts of calls that wait together are read together; one whose future is cancelled is not
        read to its end.

        Raises:
            Busy, Draining, EngineDead: as `submit`.
            GenerationError: another name. What is wrong with the inputs the future raises.
        """
        self._check_open()
        if name not in CALLS:
            raise GenerationError(f"an engine is asked for {', '.join(CALLS)}", value=name)
        call = Call(name, inputs, options)
        with self._changed:
            self._check_open()
            if len(self._calls) >= self.config.max_waiting:
                raise Busy("too many requests wait", value=len(self._calls))
            self._calls.append(call)
            self._changed.notify_all()
        return call.future

    def stats(self) -> Stats:
        """What it does and has done. While it works the numbers are up to `LOOKED_AT` old."""
        with self._changed:
            return replace(self._stats, state=self.state, waiting=self._stats.waiting + len(self._arrived))

    def drain(self, timeout: float | None = None) -> bool:
        """Take nothing new and wait for what there is, at most so many seconds; whether all has ended."""
        with self._changed:
            if self.state in ("starting", "ready"):
                self.state = "draining"
            return self._changed.wait_for(lambda: self.state == "dead" or not (self._open or self._calls), timeout)

    def stop(self) -> None:
        """End all requests with `EngineDead`, and the thread."""
        with self._changed:
            self.state = "dead"
            self._changed.notify_all()
        self._thread.join()

    def restart(self) -> None:
        """Begin anew after a failure or a stop, with the same model and nothing else."""
        self.stop()
        self._start()

    def _check_open(self) -> None:
        if self.state == "dead":
            raise EngineDead
        if self.state == "draining":
            raise Draining

    def _check_room(self, cost: int) -> None:
        waiting = self._stats.waiting + len(self._arrived)
        limit, tokens = self.config.max_waiting_tokens, self._asked
        if waiting >= self.config.max_waiting or (limit is not None and tokens and tokens + cost > limit):
            passed = time.monotonic() - self._began
            speed = (self._stats.tokens_read + 1) / max(passed, 1e-3)
            raise Busy(
                "too much waits to be written",
                value=f"{waiting} requests, {tokens} tokens altogether",
                retry_after=min(60.0, max(1.0, tokens / speed / 2)),
            )

    def _fail(self, failure: Exception) -> None:
        """Of the team, from any thread: it can't go on."""
        with self._changed:
            self._failure = self._failure or failure
            self._changed.notify_all()

    def _cancel(self, handle: Handle) -> None:
        with self._changed:
            self._cancelled.append(handle)
            self._changed.notify_all()

    def _work(self) -> None:
        error = EngineDead()
        hub = None
        self._began = time.monotonic()
        try:
            with torch.inference_mode():
                self._team.begin(self._fail)
                if self.writes:
                    hub = Hub(self.lm.model, self.config, self._size, shares=self._shares, team=self._team)
                with self._changed:
                    self.state = "ready" if self.state == "starting" else self.state
                while self._turn(hub):
                    pass
        except Exception as cause:
            error = EngineDead(f"the engine has failed: {type(cause).__name__}: {cause}")
            error.__cause__ = self.failure = cause
        finally:
            self._end(hub, error)
            self._team.end()

    def _turn(self, hub: Hub | None) -> bool:
        """What there is to do now, or to wait for; whether there may be more."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.state == "dead" or self._failure or self._arrived or self._cancelled or self._calls or hub
            )
            if self.state == "dead":
                return False
            if self._failure is not None:
                raise self._failure
            arrived, cancelled, calls = list(self._arrived), list(self._cancelled), list(self._calls)
            self._arrived.clear()
            self._cancelled.clear()
        if calls:
            together = batched(calls)
            self._team.answer(self.lm, together, self.config.batch_size)
            with self._changed:
                for call in [own for own in self._calls if own.over]:
                    self._calls.remove(call)
                self._changed.notify_all()
        if hub is not None:
            for handle, made in arrived:
                hub.add(handle, made)
            for handle in cancelled:
                hub.cancel(handle)
            self._close(cancelled)
            self._count(hub, anew=bool(arrived))
        ended = hub.turn() if hub else []
        self._count(hub, anew=bool(arrived or cancelled or ended))
        for handle, error in ended:  # after the count: who sees an end sees what it has freed
            handle.end(error)
        if ended:
            self._close(handle for handle, _ in ended)
        return True

    def _count(self, hub: Hub | None, *, anew: bool) -> None:
        now = time.monotonic()
        with self._changed:
            if hub is not None and (anew or not hub or now - self._counted > LOOKED_AT):
                self._stats, self._counted = hub.stats(), now

    def _close(self, handles: Iterable[Handle]) -> None:
        with self._changed:
            for handle in handles:
                self._asked -= self._open.pop(handle, 0)
            self._changed.notify_all()

    _began = _counted = 0.0

    def _end(self, hub: Hub | None, error: EngineDead) -> None:
        with self._changed:
            self.state = "dead"
            left, calls = [*self._open], list(self._calls)
            self._open.clear()
            self._arrived.clear()
            self._calls.clear()
            self._stats = replace(self._stats, running=0, waiting=0, blocks_used=0, blocks_cached=0)
            self._changed.notify_all()
        for handle in left:
            handle.end(error)
        for call in calls:
            call.end(error)
        if hub is not None:
            hub.end_all(error)


def _end_empty(handle: Handle, row: Row, n: int) -> None:
    """Outputs of no tokens."""
    for choice in range(n):
        handle.put(row.twin(choice).nothing())
    handle.end()
