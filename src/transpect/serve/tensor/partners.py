"""The first of the processes that share out a model: it starts the others, and tells them what it computes itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any, Final
from weakref import finalize

import torch
from torch import Tensor

from transpect.core import Transformer
from transpect.core.parts import keep_part
from transpect.decode.stepper import Read, ReadsAhead, Stepper
from transpect.lm import LanguageModel
from transpect.serve.calls import Call, answer
from transpect.serve.errors import EngineDead
from transpect.serve.tensor.group import Total, joined
from transpect.serve.tensor.orders import written

__all__ = ["Partners", "TensorParallelError", "shared"]

_LAST_SECONDS: Final = 5.0
_THREADS: Final = "OMP_NUM_THREADS"


class TensorParallelError(EngineDead):
    """One of the processes that share out a model has gone, or does not answer. The engine ends, and begins anew with
    new ones."""


def shared(lm: LanguageModel, path: str, dtype: str | None, size: int) -> Partners:
    """Keep the first part of a model that has been opened, in place; others are to keep the rest.

    Args:
        lm: by ``load(path, "cpu", dtype, runtime="torch")``, as the others will open it.
        path: see `transpect.lm.load`.
        dtype: likewise.
        size: how many processes, this one included.

    Raises:
        ConfigError: as `keep_part`.
    """
    partners = Partners(path, dtype, size)
    keep_part(lm.model, 0, size, partners.total)
    return partners


class Partners:
    """See `Team`.

    Args:
        path: of the model.
        dtype: of its weights.
        size: how many processes, this one included.
    """

    why_in_turn = "processes share out the model's matrices"

    def __init__(self, path: str, dtype: str | None, size: int) -> None:
        self._path, self._dtype, self.size = path, dtype, size
        self._processes: list[subprocess.Popen[bytes]] = []
        self._threads = max(1, torch.get_num_threads() // size)  # of what a replica was given, not of the machine
        self._numbers, self._over = count(), deque[int]()
        self._ending = True
        self._lost: Callable[[Exception], None] = lambda _: None

    @property
    def pids(self) -> list[int]:
        """Of the other processes."""
        return [own.pid for own in self._processes]

    def begin(self, lost: Callable[[Exception], None]) -> None:
        """Start the others, and wait until each has its part.

        Raises:
            TensorParallelError: one has ended before.
        """
        self._lost, self._ending = lost, False
        self._over.clear()
        torch.set_num_threads(self._threads)
        self._folder = tempfile.TemporaryDirectory(prefix="transpect-")
        file = Path(self._folder.name) / "met"
        environ = {**os.environ, _THREADS: str(self._threads)}
        command = [sys.executable, "-m", "transpect.serve.tensor.partner"]
        self._processes = [
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, start_new_session=True
            )
            for _ in range(1, self.size)
        ]
        for rank, process in enumerate(self._processes, 1):
            given = {"path": self._path, "dtype": self._dtype, "rank": rank, "size": self.size, "file": str(file)}
            self._write(process, json.dumps(given).encode() + b"\n")
        for process in self._processes:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise self._gone()
        try:
            self._sum: Total = joined(file, 0, self.size)
        except RuntimeError as error:
            raise self._gone() from error
        for process in self._processes:
            Thread(target=self._watch, args=(process,), daemon=True, name="transpect-partner").start()

    def total(self, term: Tensor) -> Tensor:
        """The sum over all processes.

        Raises:
            TensorParallelError: one is gone.
        """
        try:
            return self._sum(term)
        except RuntimeError as error:
            gone = self._gone()
            self._lost(gone)
            raise gone from error

    def steps(
        self,
        model: Transformer,
        prompts: Sequence[Sequence[int]],
        horizons: Sequence[int],
        sources: Sequence[Sequence[int]] | None,
    ) -> ReadsAhead:
        """See `Team.steps`."""
        own = Stepper(model, prompts, horizons=horizons, sources=sources)
        number, over = next(self._numbers), [self._over.popleft() for _ in range(len(self._over))]
        many = {"prompts": _lists(prompts), "horizons": list(horizons)}
        self.tell("open", number, over=over, sources=None if sources is None else _lists(sources), **many)
        return _Told(own, self, number, self._over.append)

    def answer(self, lm: LanguageModel, calls: Sequence[Call], batch_size: int) -> None:
        """See `Team.answer`."""
        answer(_Reader(lm, self), calls, batch_size)  # type: ignore[arg-type] # of which it asks abilities alone

    def end(self) -> None:
        """End the other processes."""
        self._ending = True
        for process in self._processes:
            with suppress(OSError):
                assert process.stdin is not None and process.stdout is not None
                process.stdin.close()
                process.stdout.close()
        for process in self._processes:
            try:
                process.wait(_LAST_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._processes:
            self._folder.cleanup()
        self._processes = []

    def tell(self, order: str, number: int = -1, **given: Any) -> None:
        """Have the others do what is about to be done here.

        Raises:
            TensorParallelError: one is gone.
        """
        line = written(order, number, **given)
        for process in self._processes:
            self._write(process, line)

    def _write(self, process: subprocess.Popen[bytes], line: bytes) -> None:
        assert process.stdin is not None
        try:
            process.stdin.write(line)
            process.stdin.flush()
        except (OSError, ValueError) as error:
            gone = self._gone()
            self._lost(gone)
            raise gone from error

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        if not self._ending:
            self._lost(self._gone())

    def _gone(self) -> TensorParallelError:
        """Who, as far as it can be told."""
        with suppress(subprocess.TimeoutExpired):
            for process in self._processes:
                process.wait(1 / self.size)
        ended = [f"{rank} ({_how(own)})" for rank, own in enumerate(self._processes, 1) if own.poll() is not None]
        which = f"process {', '.join(ended)}" if ended else "a process"
        does = "has gone" if ended else "does not answer"
        return TensorParallelError(f"{which} of the {self.size} that share out the model {does}")


class _Told:
    """Steps that the other processes make too. See `ReadsAhead`."""

    def __init__(self, own: Stepper, partners: Partners, number: int, over: Callable[[int], None]) -> None:
        self._own, self._number = own, number
        self._tell = partners.tell
        self.vocab_size, self.device = own.vocab_size, own.device
        finalize(self, over, number)

    @property
    def spare(self) -> int:
        return self._own.spare

    def prefill(self, *, every: bool = False) -> Tensor:
        self._tell("prefill", self._number, every=every)
        return self._own.prefill(every=every)

    def advance(self, token: Tensor) -> Tensor:
        return self.extend(token[:, None])[:, 0]

    def extend(self, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        self._tell("extend", self._number, tokens=tokens, real=real)
        return self._own.extend(tokens, real)

    def forget(self, keep: Tensor) -> None:
        self._tell("forget", self._number, keep=keep)
        self._own.forget(keep)

    @property
    def hidden(self) -> Tensor:
        return self._own.hidden

    def select(self, rows: Sequence[int]) -> None:
        self._tell("select", self._number, rows=list(rows))
        self._own.select(rows)

    @contextmanager
    def ahead(self, n_layers: int) -> Iterator[Read]:
        self._tell("ahead", self._number, layers=n_layers)
        with self._own.ahead(n_layers) as read:

            def told(tokens: Tensor, real: Tensor | None) -> Tensor:
                self._tell("go_ahead", self._number, tokens=tokens, real=real)
                return read(tokens, real)

            try:
                yield told
            finally:
                self._tell("back", self._number)


class _Reader:
    """A language model whose abilities the other processes are asked too."""

    def __init__(self, lm: LanguageModel, partners: Partners) -> None:
        self._lm, self._partners = lm, partners

    def __getattr__(self, name: str) -> Callable[..., Any]:
        ability: Callable[..., Any] = getattr(self._lm, name)

        def told(inputs: Any, **options: Any) -> Any:
            self._partners.tell("call", name=name, inputs=inputs, options=options)
            return ability(inputs, **options)

        return told


def _lists(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    return [[int(token) for token in row] for row in rows]


def _how(process: subprocess.Popen[bytes]) -> str:
    return f"signal {-process.returncode}" if process.returncode < 0 else f"exit status {process.returncode}"
