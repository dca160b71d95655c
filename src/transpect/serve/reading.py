"""What a strategy of decoding reads from when it shares its passes with others.

Axes: B rows of a strategy, k tokens read at once, R tokens whose logits are asked for, D model, V vocabulary.

A strategy calls `Steps` and waits for logits; here it notes which tokens are known now and hands over to the hub, which
comes back when all of them have been read: by one pass or by many, beside whatever else, put aside and read again or
not. None of it can be told from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor

from transpect.decode.stepper import Read, ReadsAhead
from transpect.serve.plan import Entry, Line
from transpect.serve.scheduler import Scheduler

Place = tuple[Line, int]
"""A token of a line."""


class Reading:
    """See `Steps` and `ReadsAhead`.

    Args:
        entry: whose lines are the rows, those that begin alike once.
        rows: which of its lines each row begins with.
        scheduler: that knows the entry.
        vocab_size: V.
        wait: hands over until all that the entry's lines know has been read.
        listens: is told of the logits of the prompt's tokens, and wants all of them.
    """

    device = torch.device("cpu")
    spare = 1  # a pass is for others too

    def __init__(
        self,
        entry: Entry,
        rows: Sequence[int],
        scheduler: Scheduler,
        vocab_size: int,
        wait: Callable[[], None],
        listens: Callable[[int, Tensor], None] | None = None,
    ) -> None:
        self._entry, self._rows, self._scheduler, self._wait = entry, list(rows), scheduler, wait
        self.vocab_size, self._listens = vocab_size, listens
        self._every = False
        self._got: list[tuple[list[Place], Tensor, Tensor]] = []
        self._hidden = torch.empty(0)
        self._real = torch.empty(0, 0, dtype=torch.bool)

    def take(self, places: list[Place], logits: Tensor, hidden: Tensor) -> None:
        """Of the hub: logits [R, V] and what the head read [R, D] after tokens that are asked for."""
        first = self._entry.lines[0]
        if self._listens is not None and places[0][0] is first:
            mine = sum(line is first for line, _ in places)
            self._listens(places[0][1], logits[:mine])
            if not self._every:  # a prompt's logits can be gigabytes: the last ones are all that is kept of them
                done = mine - (places[mine - 1][1] == len(first.tokens) - 1)
                places, logits, hidden = places[done:], logits[done:].clone(), hidden[done:].clone()
        if places:
            self._got.append((places, logits, hidden))

    def void(self) -> None:
        """Of the hub: what was taken since it was last handed over to will come again."""
        self._got.clear()

    def prefill(self, *, every: bool = False) -> Tensor:
        """See `Steps.prefill`."""
        lines, self._every = self._entry.lines, every
        for line in lines:
            if every or (self._listens is not None and line is lines[0]):
                self._scheduler.read_again(self._entry, line)
        counts = [len(line.tokens) if every else 1 for line in lines]
        logits, hidden = self._read()
        self._listens = None
        last = torch.tensor(counts).cumsum(0) - 1
        logits = logits[last]
        if every:
            longest = max(counts)
            padded = hidden.new_zeros(len(counts), longest, hidden.shape[-1])
            for row, own in zip(padded, torch.split(hidden, counts), strict=True):
                row[longest - len(own) :] = own
            self._hidden = padded
        else:
            self._hidden = hidden[:, None]
        if self._rows != list(range(len(lines))):
            self.select(self._rows)
            logits = logits[self._rows]
        return logits

    def advance(self, token: Tensor) -> Tensor:
        """See `Steps.advance`."""
        return self.extend(token[:, None])[:, 0]

    def extend(self, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        """See `Steps.extend`."""
        self._real = torch.ones_like(tokens, dtype=torch.bool) if real is None else real
        logits, self._hidden = self._on(tokens, real)
        return logits

    def forget(self, keep: Tensor) -> None:
        """See `Steps.forget`."""
        assert keep.shape == self._real.shape, "of the columns read last, before rows were selected"
        for line, count in zip(self._entry.lines, (self._real & ~keep).sum(1).tolist(), strict=True):
            if count:
                self._scheduler.cut(line, len(line.tokens) - count)

    @property
    def hidden(self) -> Tensor:
        """See `Steps.hidden`."""
        return self._hidden

    def select(self, rows: Sequence[int]) -> None:
        """See `Steps.select`."""
        self._scheduler.select(self._entry, rows)
        self._hidden = self._hidden[list(rows)]

    @contextmanager
    def ahead(self, n_layers: int) -> Iterator[Read]:
        """See `ReadsAhead.ahead`."""
        lines = list(self._entry.lines)
        for line in lines:
            line.deep, line.layers = len(line.tokens), n_layers
        try:
            yield lambda tokens, real: self._on(tokens, real)[0]
        finally:
            for line in lines:
                self._scheduler.cut(line, line.settled)
                line.deep = line.layers = None

    def _on(self, tokens: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        """Logits [B, k, V] and hidden [B, k, D] of these tokens; 0 where there is none."""
        present = [[True] * tokens.shape[1]] * len(tokens) if real is None else real.tolist()
        for line, own, there in zip(self._entry.lines, tokens.tolist(), present, strict=True):
            line.wanted = len(line.tokens)
            line.tokens += [token for token, is_there in zip(own, there, strict=True) if is_there]
        read = self._read()
        if real is None:
            return read[0].view(*tokens.shape, -1), read[1].view(*tokens.shape, -1)
        logits, hidden = (flat.new_zeros(*tokens.shape, flat.shape[-1]) for flat in read)
        logits[real], hidden[real] = read
        return logits, hidden

    def _read(self) -> tuple[Tensor, Tensor]:
        """Of all tokens that are asked for, line by line: logits [R, V] and hidden [R, D]."""
        assert self._entry.left, "something is to be read"
        self._wait()
        got, self._got = self._got, []
        if len(got) == 1:
            return got[0][1:]
        number = {id(line): n for n, line in enumerate(self._entry.lines)}
        places = [(number[id(line)], token) for part, _, _ in got for line, token in part]
        order = sorted(range(len(places)), key=places.__getitem__)
        logits, hidden = torch.cat([part[1] for part in got]), torch.cat([part[2] for part in got])
        return (logits, hidden) if order == list(range(len(order))) else (logits[order], hidden[order])


class InTurn:
    """Steps that read by themselves, each time when it is their turn. See `Steps` and `ReadsAhead`.

    Args:
        steps: of one request.
        wait: hands over until it is.
    """

    def __init__(self, steps: ReadsAhead, wait: Callable[[], None]) -> None:
        self._steps, self._wait = steps, wait
        self.vocab_size, self.device = steps.vocab_size, steps.device

    @property
    def spare(self) -> int:
        """See `Steps.spare`."""
        return self._steps.spare

    def prefill(self, *, every: bool = False) -> Tensor:
        """See `Steps.prefill`."""
        self._wait()
        return self._steps.prefill(every=every)

    def advance(self, token: Tensor) -> Tensor:
        """See `Steps.advance`."""
        self._wait()
        return self._steps.advance(token)

    def extend(self, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        """See `Steps.extend`."""
        self._wait()
        return self._steps.extend(tokens, real)

    def forget(self, keep: Tensor) -> None:
        """See `Steps.forget`."""
        self._steps.forget(keep)

    @property
    def hidden(self) -> Tensor:
        """See `Steps.hidden`."""
        return self._steps.hidden

    def select(self, rows: Sequence[int]) -> None:
        """See `Steps.select`."""
        self._steps.select(rows)

    def ahead(self, n_layers: int) -> AbstractContextManager[Read]:
        """See `ReadsAhead.ahead`."""
        return self._steps.ahead(n_layers)
