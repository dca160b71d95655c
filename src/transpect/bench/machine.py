"""The machine that is measured on: its name, and what it gives at most while the others are measured."""

from __future__ import annotations

import platform
from pathlib import Path
from statistics import median
from typing import Any

from transpect.base.devices import allowed_cores
from transpect.bench.worker import SCRIPTS, PeerError, Worker

__all__ = ["Machine"]

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
