"""The machine that is measured on: its name, and what it gives at most while the others are measured."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from transpect.base.devices import allowed_cores
from transpect.bench.worker import SCRIPTS, PeerError, Worker, ticks

__all__ = ["Machine", "Neighbours"]

DTYPES = ("float32", "bfloat16", "int8")
LIMITS = "limits"


class Machine:
    """Limits of this machine with so many threads.

    Attributes:
        reads: GB/s from memory, measured before each round.
        gemm: dtype → 10⁹ operations a second, a multiplication and an addition being two.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.reads: list[float] = []
        self.gemm: dict[str, float] = {}
        self._worker: Worker | None = None

    def measure(self) -> None:
        """Begin: the matrices once, the memory once.

        Raises:
            PeerError: torch can't measure even float32.
        """
        self._worker = Worker(LIMITS, SCRIPTS / f"{LIMITS}.py", threads=self.threads)
        self._worker.load(threads=self.threads)
        for dtype in DTYPES:
            try:
                self.gemm[dtype] = self._worker.run(what="gemm", dtype=dtype, times=3)["gemm"]
            except PeerError:
                if dtype == "float32":
                    raise
        self.look()

    def look(self) -> float:
        """Measure the memory again, GB/s."""
        assert self._worker is not None, "measure() begins"
        self.reads.append(self._worker.run(what="read", times=3)["read"])
        return self.reads[-1]

    def close(self) -> None:
        """End the process that measures."""
        if self._worker is not None:
            self._worker.close()

    @property
    def pids(self) -> list[int]:
        """Of the process that measures, while there is one."""
        return [] if self._worker is None else [self._worker.pid]

    def facts(self) -> dict[str, Any]:
        """What a report says of the machine."""
        return {
            "cpu": _cpu(),
            "products": products_of(),
            "system": platform.platform(),
            "python": platform.python_version(),
            "cores": allowed_cores(),
            "threads": self.threads,
            "read GB/s": {"median": median(self.reads), "lowest": min(self.reads), "highest": max(self.reads)},
            "gemm G/s": self.gemm,
        }


class Neighbours:
    """How much of the machine other processes than those that are measured take, from its making on.

    Args:
        own: ids of processes that are measured.
    """

    def __init__(self, own: Iterable[int]) -> None:
        self._own = tuple(own)
        self._before = self._look()

    def share(self) -> float | None:
        """0 … 1 of all cores; None where the system doesn't say, or too little time has gone by."""
        now, before = self._look(), self._before
        if now is None or before is None or now[0] - before[0] < LEAST_TICKS:
            return None
        everything, busy, own = (a - b for a, b in zip(now, before, strict=True))
        return max(0.0, busy - own) / everything

    def _look(self) -> tuple[int, int, int] | None:
        """Ticks of all cores, those that were busy, those that the processes used."""
        try:
            cores = [
                int(word) for word in Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:9]
            ]
        except OSError:
            return None
        used = [ticks(pid) or 0 for pid in (os.getpid(), *self._own)]
        return sum(cores), sum(cores) - cores[3] - cores[4], sum(used)


LEAST_TICKS = 20
"""Of all cores, under which a share means nothing."""


def products_of() -> str:
    """The line of `transpect.runtime.products` that our decode programs run by on this CPU."""
    from transpect.runtime.products import name  # numba takes half a second

    return name()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
