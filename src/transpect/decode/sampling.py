"""From logits to tokens: the filters in their order, then a choice by noise that belongs to the request.

Axes: B batch, V vocabulary.

The noise of a request is a function of its seed and of how many tokens it has written: one uniform number a token. It
depends on no generator's state, so a request draws the same tokens alone or in a batch, in any row of it, and after
having been put aside and taken up again.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from transpect.base.errors import GenerationError
from transpect.decode.filters import PROCESSORS, WARPERS, Filter
from transpect.decode.filters.bans import Rules
from transpect.decode.filters.places import quick

if TYPE_CHECKING:
    from transpect.decode.params import GenerationParams
    from transpect.decode.trace import Trace


LONG = 1024
"""Tokens of a vocabulary that compiled code goes through, to sum their probabilities and to find the best, in half of
PyTorch's time or less on one thread."""


def around(seed: int) -> int:
    """A seed of 64 bits that may have been counted on beyond the last one."""
    return seed if seed < 2**64 else seed - 2**64


def uniform(seed: int, step: int) -> float:
    """A number in [0, 1) with 53 random bits, from a hash of (seed, step).

    Args:
        seed: a whole number of 64 bits; a negative one is read as two's complement.
        step: how many numbers this seed has given before.
    """
    digest = blake2b(struct.pack("<QQ", seed % 2**64, step), digest_size=8, person=b"transpect").digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


@dataclass(frozen=True)
class Choice:
    """What was chosen in each row.

    Attributes:
        token: [B] int64.
        logprob: [B] float32 at least, log softmax(logits)[token]: by the model itself, before every filter.
    """

    token: Tensor
    logprob: Tensor


def check_minimum(params: GenerationParams, vocab_size: int) -> None:
    """Refuse what leaves no token to choose, and biases of tokens that there are not.

    Raises:
        GenerationError: every token is banned; ``min_new_tokens`` or ``min_length`` where every one that is not ends
            the output; an id of a bias or a bad word outside the vocabulary.
    """
    banned = {token for token in params.banned if token < vocab_size}
    if len(banned) == vocab_size:
        raise GenerationError(
            "a token must be left to choose", value=f"all {vocab_size} are banned", remedy="Take some out of banned."
        )
    waits = params.min_new_tokens or params.min_length
    if waits and len(banned | {token for token in params.ends if token < vocab_size}) == vocab_size:
        raise GenerationError(
            "min_new_tokens and min_length need a token that is not in eos_ids",
            value=f"all {vocab_size} tokens end the output",
            remedy="Pass min_new_tokens=0 and min_length=0.",
        )
    for name, ids in (
        ("logit_bias", [token for token, _ in params.logit_bias]),
        ("sequence_bias", [token for own, _ in params.sequence_bias for token in own]),
        ("bad_words", [token for own in params.bad_words for token in own]),
        ("forced_eos_token_id", params.forced_eos_token_id),
        ("dry_sequence_breakers", [token for own in params.dry_sequence_breakers for token in own]),
    ):
        worst = max(ids, default=0)
        if worst >= vocab_size:
            raise GenerationError(
                f"each id of {name} must be below the model's vocab_size={vocab_size}",
                value=worst,
                remedy="Take it out, or encode with the tokenizer of this model.",
            )


@dataclass(frozen=True)
class _Stage:
    """A filter as a batch uses it."""

    filter: Filter
    rows: Sequence[int]
    index: Tensor | None  # of the rows that ask; None: all of them
    values: Any

    def apply(self, logits: Tensor, traces: Sequence[Trace]) -> Tensor:
        """Logits [B, V], of which the rows that ask are changed."""
        if self.index is None:
            return self.filter.apply(logits, self.values, traces)
        own = self.filter.apply(logits[self.index], self.values, [traces[i] for i in self.rows])
        return logits.index_copy(0, self.index, own)


def totalled(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Logits [B, V], at least float32, and ln Σ exp of each row [B]: the difference is the log-probability.

    Raises:
        GenerationError: logits that are NaN or +inf, or all −inf.
    """
    wide = _wide(logits)
    total = _checked(_log_total(wide))  # [B]
    return wide, total


def _checked(total: Tensor) -> Tensor:
    if not all(map(math.isfinite, total.tolist())):
        raise GenerationError(
            "the model's logits must be numbers",
            value="NaN or infinite logits",
            remedy="Its weights are damaged, or its dtype is too narrow: try float32.",
        )
    return total


def _long(logits: Tensor) -> bool:
    """Whether compiled code sums their probabilities."""
    return quick(logits) and logits.shape[-1] >= LONG


def _log_total(wide: Tensor) -> Tensor:
    if not _long(wide):
        return wide.logsumexp(-1)
    from transpect.runtime.totals import log_totals  # numba is slow to import

    return torch.from_numpy(log_totals(wide.numpy()))


def _best(logits: Tensor) -> Choice:
    """What `Sampler.choose` chooses by logits alone, `_long` ones: where the best one stands is looked for once, and
    its logit is what sums begin with."""
    from transpect.runtime.totals import log_totals

    own = logits.numpy()
    token = own.argmax(-1)  # [B]
    most = own[np.arange(len(token)), token]
    total = _checked(torch.from_numpy(log_totals(own, most)))
    return Choice(torch.from_numpy(token), torch.from_numpy(most) - total)


def largest(logits: Tensor) -> Tensor:
    """The first of the best tokens of each row [B]."""
    if quick(logits):
        return torch.from_numpy(logits.numpy().argmax(-1))
    return logits.argmax(-1)


def _of_tokens(logits: Tensor, token: Tensor) -> Tensor:
    """Logits [B, V] of a token [B] of each row: [B]."""
    if quick(logits):
        return torch.from_numpy(logits.numpy()[np.arange(len(token)), token.numpy()])
    return logits.gather(-1, token[:, None])[:, 0]


class Sampler:
    """The parameters of the rows of a batch as tensors.

    Args:
        params: one for each row; each has passed `check_minimum`.
        seeds: one for each row.
        vocab_size: V.
        device: where the logits are.
    """

    def __init__(
        self, params: Sequence[GenerationParams], seeds: Sequence[int], vocab_size: int, device: torch.device
    ) -> None:
        self.params, self.seeds = tuple(params), tuple(seeds)
        self.vocab_size, self.device = vocab_size, device

    def choose(self, logits: Tensor, traces: Sequence[Trace]) -> Choice:
        """One token a row.

        Args:
            logits: [B, V].
            traces: of the rows.

        Raises:
            GenerationError: logits that are NaN or +inf, or all −inf.
        """
        left = self.process(logits, traces)
        if left is logits and self.greedy and _long(logits):  # no filter has changed any
            return _best(logits)
        wide, total = totalled(logits)
        token = largest(left) if self.greedy else self.draw(_run(self._warpers, left, traces), traces)
        return Choice(token, _of_tokens(wide, token) - total)

    def process(self, logits: Tensor, traces: Sequence[Trace]) -> Tensor:
        """The filters that look at the past, for strategies that take the best: `filters.PROCESSORS`.

        Args:
            logits: [B, V].
            traces: of the rows.

        Returns:
            [B, V], at least float32; no row is −inf everywhere.
        """
        return _run(self._processors, _wide(logits), traces)

    def filter(self, logits: Tensor, traces: Sequence[Trace]) -> Tensor:
        """All filters, as `process`: what may be drawn, and how probably. A greedy row has one token left."""
        return _run(self._warpers, self.process(logits, traces), traces)

    def draw(self, filtered: Tensor, traces: Sequence[Trace]) -> Tensor:
        """A token a row [B], by the noise that belongs to its seed and to how many it has written.

        Args:
            filtered: [B, V], from `filter`.
            traces: of the rows.
        """
        # the inverse of the cumulative distribution: the first token where it exceeds the noise
        noise = [uniform(seed, len(trace.written)) for seed, trace in zip(self.seeds, traces, strict=True)]
        mass = filtered.to(torch.float64).softmax(-1).cumsum(-1)  # [B, V]
        # a product with at most 1 - 2^-53 is rounded to below the other factor, so some token always exceeds it
        level = torch.tensor(noise, dtype=torch.float64, device=self.device)[:, None] * mass[:, -1:]
        return torch.searchsorted(mass, level, right=True)[:, 0]

    def rows(self, index: Sequence[int]) -> Sampler:
        """The sampler of some of the rows; a row may be chosen more than once."""
        params, seeds = [self.params[i] for i in index], [self.seeds[i] for i in index]
        return Sampler(params, seeds, self.vocab_size, self.device)

    @cached_property
    def greedy(self) -> bool:
        """Whether no row needs noise."""
        return all(row.greedy for row in self.params)

    @cached_property
    def rules(self) -> Rules | None:
        """What `restrict` goes by, where no other filter that looks at the past is asked for and nothing is
        constrained; else None."""
        if len(self._processors) > 1 or any(row.constraint is not None for row in self.params):
            return None
        own: Rules = self._processors[0].values
        return own

    @cached_property
    def _processors(self) -> list[_Stage]:
        return self._stages(PROCESSORS)

    @cached_property
    def _warpers(self) -> list[_Stage]:
        return self._stages(WARPERS)

    def _stages(self, table: Sequence[Filter]) -> list[_Stage]:
        """The filters that a row asks for, in their order."""
        stages = []
        for one in table:
            rows = [i for i, row in enumerate(self.params) if one.asks(row)]
            if rows:
                index = None if len(rows) == len(self.params) else torch.tensor(rows, device=self.device)
                values = one.values([self.params[i] for i in rows], self.vocab_size, self.device)
                stages.append(_Stage(one, rows, index, values))
        return stages


def _wide(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _run(stages: Sequence[_Stage], logits: Tensor, traces: Sequence[Trace]) -> Tensor:
    for stage in stages:
        logits = stage.apply(logits, traces)
    return logits
