"""A plan carried out by a decode program.

Axes: R tokens, W tokens whose logits are asked for, D model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from torch import Tensor

from transpect.core import Transformer
from transpect.decode.stepper import Stepper
from transpect.runtime import Layout, Program
from transpect.serve.plan import Entry, Line, Plan, Read


class Output(NamedTuple):
    """Of one request after a pass: which tokens, the logits after each [W, V], and what the head read there [W, D]."""

    entry: Entry
    places: list[tuple[Line, int]]
    logits: Tensor
    hidden: Tensor


class Whole(NamedTuple):
    """What is read in one piece besides a line's tokens: the source of an encoder–decoder, and how long the line will
    become."""

    source: Sequence[int] | None
    horizon: int


class Runner:
    """A model and its program.

    Args:
        model: that there is a program for.
        rows: how many lines there are at a time.
        context: how long one becomes.
        block: tokens of a block.
        blocks: how many there are.
    """

    def __init__(self, model: Transformer, rows: int, context: int, block: int, blocks: int) -> None:
        sources = 0 if model.config.encoder is None else model.config.context_length
        self._model = model
        self._program = Program(model, rows, context, sources, Layout(block), blocks)
        self._shown: list[tuple[list[int], int]] = [([], -1)] * rows
        self._sources: dict[tuple[int, int], int] = {}
        self._unused = list(range(rows))

    def run(self, plan: Plan, whole: Callable[[Entry, Line], Whole]) -> Iterator[Output]:
        """Read what a plan says."""
        self._program.copy(plan.copies)
        for read in plan.reads:
            if read.stop <= read.line.whole:
                yield from self._in_one_piece(read, whole(read.entry, read.line))
        rest = [read for read in plan.reads if read.stop > read.line.whole]
        # a line's first tokens are those of passes of many rows, its last ones those that some layers go ahead with
        for many, layers in sorted({(read.many, read.layers) for read in rest}, key=_in_turn):
            yield from self._pass([read for read in rest if (read.many, read.layers) == (many, layers)], layers, many)

    def forget(self, entry: Entry) -> None:
        """The sources of a request are not needed any more."""
        for key in [key for key in self._sources if key[0] == entry.number]:
            self._unused.append(self._sources.pop(key))

    def _pass(self, reads: Sequence[Read], layers: int | None, many: bool) -> Iterator[Output]:
        tokens, slots, positions, wanted = list[int](), list[int](), list[int](), list[int]()
        places: list[tuple[Entry, Line, int]] = []
        for entry, line, start, stop, *_ in reads:
            self._show(entry, line)
            first = len(tokens) - start
            tokens += line.tokens[start:stop]
            slots += [line.slot] * (stop - start)
            positions += range(start, stop)
            for place in range(max(start, line.wanted), stop):
                wanted.append(first + place)
                places.append((entry, line, place))
        if many:
            logits, hidden = self._program.step_many(tokens, slots, positions, wanted)
        else:
            logits, hidden = self._program.step(tokens, slots, positions, wanted, layers)
        at = 0
        for _, group in groupby(places, key=lambda own: own[0].number):
            own = list(group)
            part = slice(at, at + len(own))
            at += len(own)
            yield Output(own[0][0], [(line, place) for _, line, place in own], logits[part], hidden[part])

    def _in_one_piece(self, read: Read, whole: Whole) -> Iterator[Output]:
        entry, line = read.entry, read.line
        key = entry.number, line.source
        if whole.source is not None and key not in self._sources:
            self._sources[key] = self._unused.pop()
        self._show(entry, line)
        every = line.wanted < read.stop - 1
        stepper = Stepper(
            self._model,
            [line.tokens[: read.stop]],
            horizons=[whole.horizon],
            sources=None if whole.source is None else [whole.source],
        )
        logits = stepper.prefill(every=every)
        into = [self._sources[key]] if whole.source is not None else None
        self._program.fill(stepper.cache, stepper.source_tags, [line.slot], into)
        if line.wanted < read.stop:
            places = [(line, place) for place in range(line.wanted, read.stop)]
            # nobody asks what follows tokens before the last one
            yield Output(
                entry, places, logits.float().expand(len(places), -1), stepper.hidden[0, -len(places) :].float()
            )

    def _show(self, entry: Entry, line: Line) -> None:
        """Let the program know where a line's tokens lie, if that has changed."""
        source = self._sources.get((entry.number, line.source), 0)
        if self._shown[line.slot] != (line.table.blocks, source):
            self._program.lend(line.slot, line.table, source)
            self._shown[line.slot] = list(line.table.blocks), source


def _in_turn(kind: tuple[bool, int | None]) -> tuple[bool, bool, int]:
    many, layers = kind
    return not many, layers is not None, layers or 0
