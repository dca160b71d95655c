"""Steps of a decode program: the model reads the prompts, the program goes on.

Axes: B batch, k tokens read at once, V vocabulary, D model.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, cast, get_args

import torch
from torch import Tensor, nn

from transpect.base.errors import ConfigError
from transpect.cache import CacheKind, Dense, Paged, Sliding, Static
from transpect.core import ModelConfig, Transformer
from transpect.decode.stepper import Read, ReadsAhead, Stepper
from transpect.quant.linear import Quantised

if TYPE_CHECKING:
    from transpect.runtime import Layout

Runtime = Literal["auto", "torch", "program"]
"""What computes the steps after a prompt: PyTorch, a decode program (`transpect.runtime`), or what suits a model."""

LARGE_ENOUGH = 1_000_000
"""Parameters from which on ``auto`` takes a program. A smaller model is quick by any way, and compiling the loops for
the first time takes seconds. From here on a program was quicker with every batch and number of beams that was tried."""

SHORT = 32
"""Tokens of a prompt that a program still reads sooner than PyTorch, which needs as long for one token as for many.
A program reads all prompts of a model whose weights are in a format, as PyTorch would restore the weights first, and of
one in bfloat16 where the CPU has no instructions for it."""


def known_runtime(name: str) -> Runtime:
    """The runtime of a name.

    Raises:
        ConfigError: there is none.
    """
    if name not in get_args(Runtime):
        raise ConfigError(f"runtime must be one of {', '.join(get_args(Runtime))}", value=name)
    return cast(Runtime, name)


def check_runtime(runtime: Runtime, model: Transformer, kind: CacheKind) -> None:
    """Refuse a runtime that can't serve a model with a cache.

    Raises:
        ConfigError: an unknown one; a program that there is none of.
    """
    if known_runtime(runtime) != "program":
        return
    held = _held(kind, model.config)
    from transpect.runtime import Layout, Program  # numba takes half a second

    Program(model, 1, 1, layout=Layout(*held))


def _held(kind: CacheKind, config: ModelConfig) -> tuple[int | None, int | None]:
    """How a program holds what a cache of this kind does: tokens of a block, and how many of the last ones (`Layout`).

    Raises:
        ConfigError: it can't.
    """
    if isinstance(kind, Dense | Static):
        return None, None
    if isinstance(kind, Paged):
        return kind.block, None
    if isinstance(kind, Sliding):
        return None, kind.limit(config)
    raise ConfigError(
        "a decode program remembers keys and values as they are, of all tokens or the last ones",
        value=f"cache {kind.kind}",
        remedy="Decode with runtime=torch, or with another cache.",
    )


SPARE = 4
"""Rows that one block of a product takes: its weights are read once for all of them, and reading them is most of the
time of a step. Of weights below 8 bits it is not, and four rows take more than twice the time of one
(``benchmarks/step.py --rows``)."""


def _spare(first: Stepper, layout: Layout) -> int:
    narrow = any(isinstance(own, Quantised) and own.format.bits(own.shape[1]) < 8 for own in first.modules)
    return 1 if narrow or layout.memory is not None else SPARE


@contextmanager
def steps_by(runtime: Runtime, first: Stepper, capacity: int, longest_source: int = 0) -> Iterator[ReadsAhead]:
    """Who computes the steps of a batch: ``first`` itself, or a program after it.

    ``auto`` takes a program where there is one and the model is large enough. That is asked anew with each batch, since
    a model may have been changed or moved.

    Args:
        first: reads the prompts.
        capacity, longest_source: see `ProgramSteps`.

    Raises:
        ConfigError: ``program``, where there is none.
    """
    if runtime == "torch" or (runtime == "auto" and weights_of(first.modules) < LARGE_ENOUGH):
        yield first
        return
    try:
        steps = ProgramSteps(first, capacity, longest_source)
    except ConfigError:
        if runtime == "program":
            raise
        yield first
        return
    try:
        yield steps
    finally:
        steps.close()


def weights_of(modules: Iterable[nn.Module]) -> int:
    """How many numbers there are in parameters, and in buffers, as formats are."""
    held = {id(own): own for part in modules for own in (*part._parameters.values(), *part._buffers.values())}
    return sum(own.numel() for own in held.values() if own is not None)


def _slow_by_torch(first: Stepper) -> bool:
    from transpect.runtime.products import multiplies_bfloat16

    if any(isinstance(own, Quantised) for own in first.modules):
        return True
    return first.model.token.weight.dtype == torch.bfloat16 and not multiplies_bfloat16()


class ProgramSteps:
    """See `Steps`.

    Args:
        first: reads the prompts.
        capacity: how long the longest row will become.
        longest_source: of an encoder–decoder, in tokens.

    Raises:
        ConfigError: a program can't do what the model does.
    """

    def __init__(self, first: Stepper, capacity: int, longest_source: int) -> None:
        from transpect.runtime import Layout, Loan

        self._first: Stepper | None = first
        self.vocab_size, self.device = first.vocab_size, first.device
        layout = Layout(*_held(first.kind, first.model.config))
        self._loan = Loan(first.model, first.rows, capacity, longest_source, layout)
        self._program = self._loan.program
        self.spare = _spare(first, layout)
        # with a memory a prompt is more than its tokens one after another, unless it is one piece
        self._most = sys.maxsize if layout.memory is None else min(SHORT, first.piece or SHORT)
        self._hidden = torch.empty(0)
        self._real = torch.empty(0, 0, dtype=torch.bool)

    def close(self) -> None:
        """No more steps are taken: the next batch may have the program."""
        self._loan.give_back()

    def prefill(self, *, every: bool = False) -> Tensor:
        """See `Steps.prefill`."""
        assert self._first is not None, "called once"
        first, self._first = self._first, None
        # decided for each row by itself, as the two ways round differently
        most = sys.maxsize if _slow_by_torch(first) else SHORT
        short = [len(prompt) <= min(most, self._most) and first.plain and not every for prompt in first.prompts]
        by_torch = [row for row, own in enumerate(short) if not own]
        by_program = {row: first.prompts[row] for row, own in enumerate(short) if own}
        parts = []
        if by_torch:
            reader = first.part(by_torch) if by_program else first
            logits = reader.prefill(every=every)
            self._program.fill(reader.cache, reader.source_tags, by_torch)
            parts.append((logits.float(), reader.hidden.float()))
        if by_program:
            logits, hidden = self._program.begin(by_program)
            parts.append((logits, hidden[:, None]))
        if len(parts) == 1:
            logits, self._hidden = parts[0]
            return logits
        place = torch.tensor([*by_torch, *by_program]).argsort()
        logits, self._hidden = (torch.cat(both)[place] for both in zip(*parts, strict=True))
        return logits

    @property
    def hidden(self) -> Tensor:
        """See `Steps.hidden`."""
        return self._hidden

    def advance(self, token: Tensor) -> Tensor:
        """See `Steps.advance`."""
        return self.extend(token[:, None])[:, 0]

    def extend(self, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        """See `Steps.extend`."""
        self._real = torch.ones_like(tokens, dtype=torch.bool) if real is None else real
        logits, self._hidden = self._read(tokens, real, None)
        return logits

    def _read(self, tokens: Tensor, real: Tensor | None, n_layers: int | None) -> tuple[Tensor, ...]:
        """Logits [B, k, V] and hidden [B, k, D]; 0 where there is no token."""
        if real is None or bool(real.all()):
            rows = [row for row in range(len(tokens)) for _ in range(tokens.shape[1])]
            read = self._program.read(tokens.flatten(), rows, n_layers)
            return tuple(flat.view(*tokens.shape, -1) for flat in read)
        read = self._program.read(tokens[real], real.nonzero()[:, 0].tolist(), n_layers)
        both = tuple(flat.new_zeros(*real.shape, flat.shape[-1]) for flat in read)
        for placed, flat in zip(both, read, strict=True):
            placed[real] = flat
        return both

    @contextmanager
    def ahead(self, n_layers: int) -> Iterator[Read]:
        """See `ReadsAhead.ahead`."""
        before = self._program.lengths

        def read(tokens: Tensor, real: Tensor | None) -> Tensor:
            return self._read(tokens, real, n_layers)[0]

        try:
            yield read
        finally:
            self._program.forget((self._program.lengths - before).tolist())

    def forget(self, keep: Tensor) -> None:
        """See `Steps.forget`."""
        assert keep.shape == self._real.shape, "of the columns read last, before rows were selected"
        self._program.forget((self._real & ~keep).sum(1).tolist())

    def select(self, rows: Sequence[int]) -> None:
        """See `Steps.select`."""
        self._program.select(rows)
        self._hidden = self._hidden[list(rows)]
