"""The engine: requests from any thread in, events out, until it is told to stop."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from threading import Condition, Thread
from typing import Any, Final

from transpect.base.errors import GenerationError
from transpect.cache import Dense
from transpect.decode import Row
from transpect.decode.engine import stream
from transpect.decode.fitting import constraint_of, fit
from transpect.decode.resuming import check_resumes
from transpect.lm import LanguageModel
from transpect.serve.config import EngineConfig
from transpect.serve.errors import Busy, Draining, EngineDead, Expired
from transpect.serve.handle import Handle
from transpect.serve.request import Job, State, Stats

_CONFIG: Final = EngineConfig()
CALLS: Final = ("embed", "classify", "classify_tokens", "fill_mask")
"""What an encoder is asked by `Engine.call`."""


class Engine:
    """A model that serves many requests. It has one thread, which alone touches the model.

    Args:
        lm: the model.
        config: how large.

    Attributes:
        state: ``starting``, ``ready``, ``draining`` or ``dead``.
        notes: lines that say how large it is, and what it can't do.
    """

    def __init__(self, lm: LanguageModel, config: EngineConfig = _CONFIG) -> None:
        self.lm, self.config = lm, config
        self.state: State = "starting"
        self.notes: tuple[str, ...] = ()
        self._changed = Condition()
        self._waiting: deque[Handle] = deque()
        self._calls: deque[tuple[str, Any, dict[str, Any], Future[Any]]] = deque()
        self._running: Handle | None = None
        self._stats = Stats("starting")
        self._thread = Thread(target=self._work, daemon=True, name="transpect-engine")
        self.state = "ready"
        self._thread.start()

    def submit(self, job: Job) -> Handle:
        """Take a request, from any thread, or refuse it at once.

        Raises:
            Busy: too much waits already.
            Draining, EngineDead: no new requests are taken.
            GenerationError, ContextLengthError, ConfigError: as `transpect.decode.stream`.
        """
        self._check_open()
        model = self.lm.model
        request = fit(model.config, job.request.seeded())
        check_resumes(request, model.config, Dense())
        Row(0, request, self.lm.tokenizer, constraint=constraint_of(model.config, request, self.lm.tokenizer))
        handle = Handle(replace(job, request=request), lambda _: None)
        with self._changed:
            self._check_open()
            if len(self._waiting) >= self.config.max_waiting:
                raise Busy("too many requests wait", value=len(self._waiting))
            self._waiting.append(handle)
            self._changed.notify_all()
        return handle

    def call(self, name: str, inputs: Any, **options: Any) -> Future[Any]:
        """Ask an encoder: ``embed``, ``classify``, ``classify_tokens`` or ``fill_mask`` of `LanguageModel`."""
        self._check_open()
        if name not in CALLS:
            raise GenerationError(f"an engine is asked for {', '.join(CALLS)}", value=name)
        future: Future[Any] = Future()
        with self._changed:
            if len(self._calls) >= self.config.max_waiting:
                raise Busy("too many requests wait", value=len(self._calls))
            self._calls.append((name, inputs, options, future))
            self._changed.notify_all()
        return future

    def stats(self) -> Stats:
        """What it does."""
        running = int(self._running is not None)
        return replace(self._stats, state=self.state, running=running, waiting=len(self._waiting))

    def drain(self, timeout: float | None = None) -> bool:
        """Take nothing new, and wait for what there is; whether all has ended in time."""
        with self._changed:
            if self.state == "ready":
                self.state = "draining"
            return self._changed.wait_for(lambda: not self._waiting and self._running is None, timeout)

    def stop(self) -> None:
        """End all requests with `EngineDead`, and the thread."""
        self._die(EngineDead())
        self._thread.join()

    def restart(self) -> None:
        """Begin anew after a failure or a stop, with the same model."""
        if self.state != "dead":
            self.stop()
        self.__init__(self.lm, self.config)  # type: ignore[misc]

    def _check_open(self) -> None:
        if self.state == "dead":
            raise EngineDead
        if self.state == "draining":
            raise Draining

    def _die(self, error: EngineDead) -> None:
        with self._changed:
            self.state = "dead"
            left = [*self._waiting, *([self._running] if self._running else [])]
            self._waiting.clear()
            self._changed.notify_all()
        for handle in left:
            handle.end(error)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._calls or self.state == "dead")
                if self.state == "dead":
                    return
                call = self._calls.popleft() if self._calls else None
                self._running = self._waiting.popleft() if self._waiting else None
            if call is not None:
                name, inputs, options, future = call
                try:
                    future.set_result(getattr(self.lm, name)(inputs, **options))
                except Exception as error:
                    future.set_exception(error)
            if self._running is not None:
                self._serve(self._running)
            with self._changed:
                self._running = None
                self._changed.notify_all()

    def _serve(self, handle: Handle) -> None:
        job = handle.job
        try:
            requests: Sequence[Any] = [job.request]
            for event in stream(self.lm.model, requests, tokenizer=self.lm.tokenizer, runtime=self.lm.runtime):
                if job.deadline is not None and time.monotonic() > job.deadline:
                    raise Expired
                if handle.done:
                    break
                handle.put(event)
                handle.wake()
            handle.end()
        except Exception as error:
            handle.end(error)
