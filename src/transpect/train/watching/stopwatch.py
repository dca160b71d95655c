"""Time spent on updates, with evaluation and saving left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter


class Stopwatch:
    """Runs from the start; stands still inside `paused`.

    Args:
        clock: seconds from some moment on.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._since = clock()

    def lap(self) -> float:
        """Seconds since the last lap, or since the start."""
        now = self._clock()
        passed, self._since = now - self._since, now
        return passed

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What happens inside takes no time."""
        begun = self._clock()
        try:
            yield
        finally:
            self._since += self._clock() - begun
