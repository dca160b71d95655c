"""Trainings one after the other in this process, or several at once in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing.synchronize import Event
from queue import Empty
from typing import TYPE_CHECKING, Any, Protocol

from transpect.compare.results import Result
from transpect.compare.runs import Task, run_task
from transpect.train.interrupt import Interruption

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess
    from multiprocessing.queues import Queue

POLL = 0.2
"""Seconds between looks at what other processes have said."""

Done = tuple[Task, list[Result] | None]


class Watcher(Protocol):
    """Who is told how trainings go."""

    def begin(self, task: Task) -> None:
        """A training begins, or goes on."""

    def advance(self, task: Task, step: int) -> None:
        """It has made so many updates."""

    def end(self, task: Task, results: list[Result] | None) -> None:
        """It is over; None is interrupted."""


def run_all(tasks: Sequence[Task], watcher: Watcher, jobs: int = 1) -> Iterator[Done]:
    """Run every task, and give each with its results as it ends; after one that was interrupted, no other begins.

    Args:
        jobs: how many at once. One runs in this process.
    """
    yield from (_in_turn(tasks, watcher) if jobs == 1 else _at_once(tasks, watcher, jobs))


def _in_turn(tasks: Sequence[Task], watcher: Watcher) -> Iterator[Done]:
    for task in tasks:
        watcher.begin(task)
        results = run_task(task, advance=_teller(watcher, task))
        watcher.end(task, results)
        yield task, results
        if results is None:
            return


def _teller(watcher: Watcher, task: Task) -> Callable[[int], None]:
    return lambda step: watcher.advance(task, step)


def _at_once(tasks: Sequence[Task], watcher: Watcher, jobs: int) -> Iterator[Done]:
    context = multiprocessing.get_context("spawn")
    stop, said = context.Event(), context.Queue()
    with (
        Interruption() as interruption,
        ProcessPoolExecutor(jobs, context, initializer=_enter, initargs=(stop, said)) as pool,
    ):
        running: dict[Future[list[Result] | None], Task] = {
            pool.submit(_in_process, number, task): task for number, task in enumerate(tasks)
        }
        try:
            while running:
                finished, _ = wait(running, timeout=POLL, return_when=FIRST_COMPLETED)
                _pass_on(said, tasks, watcher)
                if interruption.requested is not None:
                    stop.set()
                for future in finished:
                    task, results = running.pop(future), future.result()
                    watcher.end(task, results)
                    yield task, results
        finally:
            stop.set()  # what still runs saves itself, and what waits does not begin


def _pass_on(said: Queue[tuple[int, int]], tasks: Sequence[Task], watcher: Watcher) -> None:
    while True:
        try:
            number, step = said.get_nowait()
        except Empty:
            return
        if step < 0:
            watcher.begin(tasks[number])
        else:
            watcher.advance(tasks[number], step)


# in the other processes

_shared: dict[str, Any] = {}


def _enter(stop: Event, said: Queue[tuple[int, int]]) -> None:
    # killed, the first process stops nobody, and whoever calls it again would train in the same directories
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C reaches all of us, and the first process tells the others
    _shared.update(stop=stop, said=said)


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _in_process(number: int, task: Task) -> list[Result] | None:
    stop, said = _shared["stop"], _shared["said"]
    if stop.is_set():
        return None
    said.put((number, -1))
    return run_task(task, advance=lambda step: said.put((number, step)), should_stop=stop.is_set, handle_signals=False)
