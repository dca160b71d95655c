"""That every process of a run still lives, and a named end for the others where one does not."""

from __future__ import annotations

import os
import sys
import threading
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from transpect.base.errors import one_line
from transpect.train.errors import TrainingError

STATUS = 1
"""The exit status of a process that ends because another one is gone."""

_SIGNS = ("gloo", "Connection closed", "Connection reset", "Broken pipe", "NCCL", "Socket", "TCPStore")


def gone(what: str) -> TrainingError:
    """The error of a run that lost one of its processes."""
    return TrainingError(
        "a process of this run is gone, and the others can't go on without it",
        value=what,
        remedy="Look for the first error above; go on from the last saved state with --resume auto.",
    )


def is_loss(error: BaseException) -> bool:
    """Whether an error is what communication with a process that is gone ends with."""
    if isinstance(error, dist.DistBackendError | dist.DistNetworkError | dist.DistStoreError):
        return True
    if error.__cause__ is not None and is_loss(error.__cause__):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)


class Heartbeat:
    """Gives signs of life by the store that `torchrun` holds, and looks for those of the next process.

    A process that is killed closes its connections, which ends a collective of gloo at once. One that is stopped, or
    waits for a GPU for ever, closes nothing: for that, each process watches one other, and whoever misses a sign tells
    all. A thread does this, since the main one may wait inside a collective; so it ends its process itself.

    Args:
        rank: of this process.
        size: how many there are.
        seconds: without a sign after which a process counts as dead.
    """

    def __init__(self, rank: int, size: int, seconds: float) -> None:
        self._rank, self._next, self._seconds = rank, (rank + 1) % size, seconds
        self._life = f"transpect/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        # a connection of its own, which no collective waits on
        self._store = TCPStore(
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            is_master=False,
            timeout=timedelta(seconds=seconds),
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """The run is over."""
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        pause = self._seconds / 10.0
        seen, missed = -1, 0
        while not self._over.wait(pause):
            try:
                self._store.add(f"{self._life}/{self._rank}", 1)
                signs = self._store.add(f"{self._life}/{self._next}", 0)
                dead = self._store.add(f"{self._life}/dead", 0) - 1
                missed = missed + 1 if signs == seen else 0
                seen = signs
                if missed >= 10 and dead < 0:
                    dead = self._store.add(f"{self._life}/dead", self._next + 1) - 1
            except RuntimeError:
                self._end("the one that holds the store")
            else:
                if dead >= 0:
                    self._end(f"process {dead}, silent for {self._seconds:g} s")

    def _end(self, what: str) -> None:
        if not self._over.is_set():
            sys.stderr.write(f"transpect: {one_line(gone(what))}\n")
            sys.stderr.flush()
            os._exit(STATUS)
