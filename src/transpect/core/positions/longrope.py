"""LongRoPE (Ding et al. 2024): a factor of its own for each frequency, and other factors for long sequences."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from transpect.base.checks import above, within
from transpect.base.errors import ConfigError
from transpect.core.positions.rope import RopeScaling, inverse_frequencies
from transpect.core.tags import Tags


@dataclass(frozen=True)
class LongRope(RopeScaling, kind="longrope"):
    """inv_freq[i] / short[i] for sequences of up to L₀ tokens, inv_freq[i] / long[i] for longer ones; sine and cosine
    · √(1 + ln(factor)/ln(L₀)) (§3.2–3.3, and Phi-3's report).

    A sequence's length is its *final* one (`Tags.horizon`), as for `DynamicNTK`: keys that were cached under the short
    factors would not fit queries under the long ones. A cached pass that crosses L₀ without having said so is refused.

    Attributes:
        short: a divisor for each of the R/2 frequencies.
        long: the same for sequences that will be longer than ``original_length``.
        original_length: L₀.
        factor: how many times longer than L₀ sequences may become.
        attention_factor: on sine and cosine; None gives the formula above.
    """

    short: tuple[float, ...]
    long: tuple[float, ...]
    original_length: int
    factor: float = 1.0
    attention_factor: float | None = None

    def __post_init__(self) -> None:
        within("LongRope.original_length", self.original_length, 2)
        above("LongRope.factor", self.factor, 0)
        above("LongRope.attention_factor", self.attention_factor, 0)
        for name, divisors in (("short", self.short), ("long", self.long)):
            for divisor in divisors or (0.0,):
                above(f"each number of LongRope.{name}", divisor, 0)
        if len(self.short) != len(self.long):
            raise ConfigError(
                "LongRope.short and LongRope.long must be equally many", value=f"{len(self.short)} and {len(self.long)}"
            )

    @property
    def attention(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        return math.sqrt(1 + math.log(self.factor) / math.log(self.original_length)) if self.factor > 1 else 1.0

    @property
    def of_each_pass(self) -> bool:
        return True

    def fits(self, rotated: int) -> None:
        if len(self.short) != rotated // 2:
            raise ConfigError(
                "LongRope needs a number for each pair of the rotated dimensions",
                value=f"{len(self.short)} for {rotated} dimensions",
                remedy="Give head_dim · fraction / 2 numbers in short and in long.",
            )

    def frequencies(self, theta: float, rotated: int, horizon: Tensor) -> Tensor:
        divisors = torch.tensor([self.short, self.long], dtype=torch.float64, device=horizon.device)
        plain = inverse_frequencies(theta, rotated).to(horizon.device)
        return plain / divisors[(horizon > self.original_length).long()]  # [B, R/2]

    def check(self, query: Tags, key: Tags) -> None:
        if query is key or torch.equal(query.horizon > self.original_length, key.horizon > self.original_length):
            return
        raise ConfigError(
            f"LongRoPE turns sequences beyond {self.original_length} otherwise, so the final length must be stated "
            "before the first cached token",
            value=f"horizon {query.horizon.tolist()} after {key.horizon.tolist()}",
            remedy="Pass tags with the same `horizon` (prompt + new tokens) to every pass over this cache.",
        )
