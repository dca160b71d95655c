"""Batches made ahead of their turn, by threads beside the one that trains."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Final, final

from transpect.data.batch import Batch
from transpect.data.loader import Batches, Place

AHEAD: Final = 2
"""How many batches each worker may be ahead."""


@final
class Prefetched:
    """The batches of a loader, bit for bit, made by ``workers`` threads.

    Which rows a batch has is told by the loader, one batch after the other; what is made of them is a function of the
    rows alone, so the workers share that. The state is that of the batches that were given out, not of those ahead.

    Args:
        batches: the loader; it belongs to this object from now on.
        workers: threads, at least 1.
    """

    def __init__(self, batches: Batches, workers: int) -> None:
        self._batches, self._workers = batches, workers
        self._place = batches.place
        self._crew: _Crew | None = None

    @property
    def epoch(self) -> int:
        """See `Batches.epoch`."""
        return self._batches.epoch_at(self._place)

    @property
    def told(self) -> str:
        """See `Batches.told`."""
        return self._batches.told_at(self._place)

    def state(self) -> dict[str, Any]:
        """See `Batches.state`."""
        return self._batches.state_at(self._place)

    def load_state(self, state: dict[str, Any]) -> None:
        """See `Batches.load_state`."""
        self.close()
        self._batches.load_state(state)
        self._place = self._batches.place

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._crew is None:
            self._batches.place = self._place
            self._crew = _Crew(self._batches, self._workers)
        batch, self._place = self._crew.next()
        return batch

    def close(self) -> None:
        """Send the workers home; the next batch calls others."""
        if self._crew is not None:
            self._crew.end()
            self._crew = None


class _Crew:
    """Threads at work on one loader."""

    def __init__(self, batches: Batches, workers: int) -> None:
        self._batches = batches
        self._turn = threading.Lock()  # whoever holds it asks the loader for rows
        self._changed = threading.Condition()
        self._made: dict[int, tuple[Batch, Place] | BaseException] = {}
        self._asked = self._given = 0
        self._ahead, self._ended = AHEAD * workers, False
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    def next(self) -> tuple[Batch, Place]:
        """The next batch and where the loader stands after it.

        Raises:
            BaseException: what making it raised.
        """
        with self._changed:
            while self._given not in self._made:
                self._changed.wait()
            made = self._made.pop(self._given)
            self._given += 1
            self._changed.notify_all()
        if isinstance(made, BaseException):
            raise made
        return made

    def end(self) -> None:
        """Wait until every thread has stopped."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while self._has_room():
            with self._turn:
                number, self._asked = self._asked, self._asked + 1
                try:
                    taken = self._batches.take()
                    place = self._batches.place
                except BaseException as error:  # it is raised where the batch is asked for
                    self._tell(number, error)
                    return
            try:
                self._tell(number, (self._batches.made(taken), place))
            except BaseException as error:
                self._tell(number, error)
                return

    def _has_room(self) -> bool:
        with self._changed:
            while not self._ended and self._asked - self._given >= self._ahead:
                self._changed.wait()
            return not self._ended

    def _tell(self, number: int, made: tuple[Batch, Place] | BaseException) -> None:
        with self._changed:
            self._made[number] = made
            self._changed.notify_all()
