"""From logits to tokens: the filters in their order, then a choice by noise that belongs to the request.

Axes: B batch, V vocabulary.

The noise of a request is a function of its seed and of how many tokens it has written: one uniform number a token. It
depends on no generator's state, so a request draws the same tokens alone or in a batch, in any row of it, and after
having been put aside and taken up again.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from transpect.base.errors import GenerationError
from transpect.decode import filters

if TYPE_CHECKING:
    from transpect.decode.params import GenerationParams
    from transpect.decode.trace import Trace


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
    """Refuse what leaves no token to choose.

    Raises:
        GenerationError: every token is banned; ``min_new_tokens`` where every one that is not ends the output.
    """
    banned = {token for token in params.banned if token < vocab_size}
    if len(banned) == vocab_size:
        raise GenerationError(
            "a token must be left to choose", value=f"all {vocab_size} are banned", remedy="Take some out of banned."
        )
    if params.min_new_tokens and len(banned | {token for token in params.ends if token < vocab_size}) == vocab_size:
        raise GenerationError(
            "min_new_tokens needs a token that is not in eos_ids",
            value=f"all {vocab_size} tokens end the output",
            remedy="Pass min_new_tokens=0.",
        )


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
            traces: the past of each row.

        Raises:
            GenerationError: logits that are NaN or +inf, or all −inf.
        """
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        total = wide.logsumexp(-1)  # [B]
        if not bool(total.isfinite().all()):
            raise GenerationError(
                "the model's logits must be numbers",
                value="NaN or infinite logits",
                remedy="Its weights are damaged, or its dtype is too narrow: try float32.",
            )
        token = self._hold(logits, traces).argmax(-1) if self.greedy else self.draw(self.filter(logits, traces), traces)
        return Choice(token, wide.gather(-1, token[:, None])[:, 0] - total)

    def filter(self, logits: Tensor, traces: Sequence[Trace]) -> Tensor:
        """What may still be chosen: bans, the minimum of tokens, temperature, top-k, top-p, each where a row asks."""
        left = filters.temperature(self._hold(logits, traces), self._temperature)
        if any(row.top_k is not None for row in self.params):
            left = filters.top_k(left, self._top_k)
        if any(row.top_p < 1 for row in self.params):
            left = filters.top_p(left, self._top_p)
        return left

    def _hold(self, logits: Tensor, traces: Sequence[Trace]) -> Tensor:
        """No banned token, and no end before ``min_new_tokens``."""
        early = [
            row.min_new_tokens > len(trace.written) and bool(row.ends)
            for row, trace in zip(self.params, traces, strict=True)
        ]
        if any(early):
            return filters.ban(logits, self._banned | self._ends & torch.tensor(early, device=self.device)[:, None])
        return filters.ban(logits, self._banned) if any(row.banned for row in self.params) else logits

    def draw(self, logits: Tensor, traces: Sequence[Trace]) -> Tensor:
        """A token [B] of each row's distribution softmax(logits), by the noise of its seed and its length."""
        # the inverse of the cumulative distribution: the first token where it exceeds the noise
        noise = [uniform(seed, len(trace.written)) for seed, trace in zip(self.seeds, traces, strict=True)]
        mass = logits.to(torch.float64).softmax(-1).cumsum(-1)  # [B, V]
        level = torch.tensor(noise, dtype=torch.float64, device=self.device)[:, None] * mass[:, -1:]
        return torch.searchsorted(mass, level, right=True)[:, 0]

    def rows(self, index: Sequence[int]) -> Sampler:
        """The sampler of some of the rows."""
        params, seeds = [self.params[i] for i in index], [self.seeds[i] for i in index]
        return Sampler(params, seeds, self.vocab_size, self.device)

    @cached_property
    def greedy(self) -> bool:
        """Whether no row needs noise."""
        return all(row.greedy for row in self.params)

    @cached_property
    def _temperature(self) -> Tensor:
        return torch.tensor([row.temperature for row in self.params], dtype=torch.float64, device=self.device)

    @cached_property
    def _top_k(self) -> Tensor:
        off = self.vocab_size
        ks = [off if row.top_k is None else min(row.top_k, off) for row in self.params]
        return torch.tensor(ks, device=self.device)

    @cached_property
    def _top_p(self) -> Tensor:
        return torch.tensor([row.top_p for row in self.params], dtype=torch.float64, device=self.device)

    @cached_property
    def _ends(self) -> Tensor:
        """[B, V] bool: the tokens that end each row."""
        return self._marked([row.ends for row in self.params])

    @cached_property
    def _banned(self) -> Tensor:
        """[B, V] bool: the tokens that a row never chooses."""
        return self._marked([row.banned for row in self.params])

    def _marked(self, tokens: Sequence[Sequence[int]]) -> Tensor:
        marked = torch.zeros(len(tokens), self.vocab_size, dtype=torch.bool)
        for i, own in enumerate(tokens):
            marked[i, [token for token in own if token < self.vocab_size]] = True
        return marked.to(self.device)
