"""Rotary positions (Su et al. 2021, §3.2) in both layouts, partial, and with the usual length scalings.

Axes: B batch, T query, H heads, E head, R rotated part of a head.

Each pair of dimensions i turns by ``position · inv_freq[i]``, ``inv_freq[i] = theta^(−2i/R)``. Half-split pairs
(i, i+R/2), as Llama and GPT-NeoX; interleaved pairs (2i, 2i+1), as the paper and GPT-J.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from transpect.base.checks import above, at_least, within
from transpect.base.codec import Variant
from transpect.base.errors import ConfigError
from transpect.core.positions.base import Dims, Geometry, Mover, Position, PositionModule, row
from transpect.core.tags import Tags


class RopeScaling(Variant):
    """How frequencies change so that a model reaches beyond the length it was trained on."""

    @property
    def attention(self) -> float:
        """A factor on sine and cosine, so on the scores its square."""
        return 1.0

    @property
    def of_each_pass(self) -> bool:
        """Whether the frequencies depend on the horizons of a pass."""
        return False

    def frequencies(self, theta: float, rotated: int, horizon: Tensor) -> Tensor:
        """Inverse frequencies [R/2], or [B, R/2] where they depend on each row's ``horizon`` [B]; float64."""
        raise AssertionError("abstract")

    def fits(self, rotated: int) -> None:
        """Refuse to be built for a part of a head of this size."""

    def check(self, query: Tags, key: Tags) -> None:
        """Refuse a pass whose cached keys were turned by other frequencies than its queries."""


def inverse_frequencies(theta: float | Tensor, rotated: int) -> Tensor:
    """theta^(−2i/R) for i = 0 … R/2−1, float64; a [B, 1] theta gives [B, R/2]."""
    if isinstance(theta, Tensor):
        return theta ** (-torch.arange(0, rotated, 2, dtype=torch.float64, device=theta.device) / rotated)
    return 1.0 / theta ** (torch.arange(0, rotated, 2, dtype=torch.float64, device="cpu") / rotated)


@dataclass(frozen=True)
class NoScaling(RopeScaling, kind="none"):
    """The frequencies as they are."""

    def frequencies(self, theta: float, rotated: int, horizon: Tensor) -> Tensor:
        return inverse_frequencies(theta, rotated)


@dataclass(frozen=True)
class LinearScaling(RopeScaling, kind="linear"):
    """Position interpolation: all frequencies divided by ``factor`` (Chen et al. 2023)."""

    factor: float

    def __post_init__(self) -> None:
        above("LinearScaling.factor", self.factor, 0)

    def frequencies(self, theta: float, rotated: int, horizon: Tensor) -> Tensor:
        return inverse_frequencies(theta, rotated) / self.factor


@dataclass(frozen=True)
class DynamicNTK(RopeScaling, kind="dynamic"):
    """theta · (factor·L/L₀ − (factor−1))^(R/(R−2)) once the sequence's length L exceeds L₀.

    L is a sequence's *final* length (`Tags.horizon`): a base that grew while decoding would leave cached keys turned
    by another base, and cached output would differ from uncached. Generation states the horizon; a cached pass that
    goes beyond L₀ without one is refused.
    """

    factor: float
    original_length: int

    def __post_init__(self) -> None:
        at_least("DynamicNTK.factor", self.factor, 1)
        within("DynamicNTK.original_length", self.original_length)

    @property
    def of_each_pass(self) -> bool:
        return True

    def frequencies(self, theta: float, rotated: int, horizon: Tensor) -> Tensor:
        length = horizon.to(torch.float64).clamp(min=self.original_length)
        grown = self.factor * length / self.original_length - (self.factor - 1)
        if rotated == 2:  # a single pair turns by position itself, whatever the base
            return inverse_frequencies(theta, rotated).to(horizon.device).expand(len(horizon), 1)
        return inverse_frequencies(theta * grown[:, None] ** (rotated / (rotated - 2)), rotated)

    def check(self, query: Tags, key: Tags) -> None:
        if query is key or torch.equal(
            query.horizon.clamp(min=self.original_length), key.horizon.clamp(min=self.original_length)
        ):
            return
        raise ConfigError(
            "dynamic NTK scaling depends on the final length, which must be stated before the first cached token",
            value=f"horizon {query.horizon.tolist()} after {key.horizon.tolist()}",
            remedy="Pass tags with the same `horizon` (prompt + new tokens) to every pass over this cache.",
        )


@dataclass(frozen=True)
class Yarn(RopeScaling, kind="yarn"):
    """NTK-by-parts (Peng et al. 2023, §3.2–3.4): dimensions that turn more than ``beta_fast`` times within the
    original length keep their frequency, those that turn less than ``beta_slow`` times are divided by ``factor``, with
    a ramp between.

    Attributes:
        attention_factor: on sine and cosine; None gives the paper's 0.1·ln(factor) + 1.
        truncate: round the ramp's ends to whole dimensions, as most checkpoints were trained.
    """

    factor: float
    original_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    truncate: bool = True

    def __post_init__(self) -> None:
        at_least("Yarn.factor", self.factor, 1)
        within("Yarn.original_length", self.original_length)
        above("Yarn.beta_slow", self.beta_slow, 0)
        above("Yarn.beta_fast", self.beta_fast, self.beta_slow)

    @property
    def attention(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        return 0.1 * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0

    def frequencies(self, theta: float, rotated: int, horizon: Tensor) -> Tensor:
        def dimension(turns: float) -> float:
            return rotated * math.log(self.original_length / (turns * 2 * math.pi)) / (2 * math.log(theta))

        low, high = dimension(self.beta_fast), dimension(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, rotated - 1)
        i = torch.arange(rotated // 2, dtype=torch.float64, device="cpu")
        keep = 1 - ((i - low) / max(high - low, 0.001)).clamp(0, 1)
        plain = inverse_frequencies(theta, rotated)
        return plain * keep + plain / self.factor * (1 - keep)


@dataclass(frozen=True)
class Llama3Scaling(RopeScaling, kind="llama3"):
    """Llama 3.1's: wavelengths above L₀/low_freq_factor are stretched by ``factor``, those below L₀/high_freq_factor
    kept, and blended between (Llama 3 report, §3.4.2; the reference code)."""

    factor: float = 8.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_length: int = 8192

    def __post_init__(self) -> None:
        above("Llama3Scaling.factor", self.factor, 0)
        above("Llama3Scaling.low_freq_factor", self.low_freq_factor, 0)
        above("Llama3Scaling.high_freq_factor", self.high_freq_factor, self.low_freq_factor)
        within("Llama3Scaling.original_length", self.original_length)

    def frequencies(self, theta: float, rotated: int, horizon: Tensor) -> Tensor:
        plain = inverse_frequencies(theta, rotated)
        turns = self.original_length * plain / (2 * math.pi)
        smooth = ((turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)).clamp(0, 1)
        return (1 - smooth) * plain / self.factor + smooth * plain


@dataclass(frozen=True)
class Rope(Position, kind="rope"):
    """Rotary positions.

    Attributes:
        theta: the base of the frequencies.
        fraction: the share of each head that turns, from its first dimension on (GPT-NeoX: 0.25).
        interleaved: pairs (2i, 2i+1) instead of (i, i+R/2).
        scaling: how to reach beyond the trained length.
    """

    theta: float = 10000.0
    fraction: float = 1.0
    interleaved: bool = False
    scaling: RopeScaling = field(default_factory=NoScaling)

    def __post_init__(self) -> None:
        above("Rope.theta", self.theta, 1)
        if not 0 < self.fraction <= 1:
            raise ConfigError("Rope.fraction must be above 0 and at most 1", value=self.fraction)

    @property
    def reads_length(self) -> bool:
        return self.scaling.of_each_pass

    def mover(self, head_dim: int) -> Mover:
        return self._module(head_dim).move

    def build(self, dims: Dims) -> PositionModule:
        return self._module(dims.head_dim)

    def _module(self, head_dim: int) -> RopeModule:
        rotated = int(head_dim * self.fraction + 1e-6)  # a fraction such as 6/10 is not exact
        if rotated % 2 or rotated == 0:
            raise ConfigError(
                "the rotated part of a head (head_dim · fraction) must be even and not empty",
                value=f"{head_dim} · {self.fraction}",
                remedy="Choose an even head_dim, or another fraction.",
            )
        self.scaling.fits(rotated)
        return RopeModule(self, rotated)


class RopeModule(PositionModule):
    # frequencies are no buffer: `.to(bfloat16)` must not round them
    def __init__(self, options: Rope, rotated: int) -> None:
        super().__init__()
        self.options, self.rotated = options, rotated
        self._frequencies: dict[torch.device, Tensor] = {}

        self.turn = _turn_pairs if options.interleaved else _turn_halves
        self.repeat = _repeat_pairs if options.interleaved else _repeat_halves

    def geometry(self, query: Tags, new: Tags, key: Tags, dtype: torch.dtype) -> Geometry:
        self.options.scaling.check(query, key)
        of_query = self._turns(query, dtype)
        return RotaryGeometry(of_query, of_query if new is query else self._turns(new, dtype), self.turn)

    def move(self, key: Tensor, by: Tensor) -> Tensor:
        """See `Mover`: R(p + by) = R(by) R(p), and the scaling's factor is in the key already."""
        angle = by.to(torch.float64)[:, None] * self._frequency(by)  # [B|1, R/2]
        cos, sin = (self.repeat(x)[:, None, None].to(key.dtype) for x in (angle.cos(), angle.sin()))
        return rotate(key, cos, sin, self.turn)

    def _frequency(self, horizon: Tensor) -> Tensor:
        theta, scaling = self.options.theta, self.options.scaling
        if scaling.of_each_pass:
            return scaling.frequencies(theta, self.rotated, horizon)
        if horizon.device not in self._frequencies:  # a copy in each pass would make a GPU wait
            self._frequencies[horizon.device] = scaling.frequencies(theta, self.rotated, horizon).to(horizon.device)
        return self._frequencies[horizon.device]

    def _turns(self, tags: Tags, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """(cos, sin), each [B|1, 1, T, R]."""
        scaling = self.options.scaling
        frequency = self._frequency(tags.horizon)
        position = row(tags) if frequency.ndim == 1 else tags.position.clamp(min=0)
        angle = position.to(torch.float64)[..., None] * frequency.unsqueeze(-2)  # [B|1, T, R/2]
        cos, sin = angle.cos() * scaling.attention, angle.sin() * scaling.attention
        return self.repeat(cos)[:, None].to(dtype), self.repeat(sin)[:, None].to(dtype)


class RotaryGeometry(Geometry):
    """(cos, sin) of queries and of new keys, each [B|1, 1, T, R]."""

    def __init__(
        self,
        of_query: tuple[Tensor, Tensor],
        of_key: tuple[Tensor, Tensor],
        turn: Callable[[Tensor], Tensor],
    ) -> None:
        self.of_query, self.of_key, self.turn = of_query, of_key, turn

    def rotate_query(self, query: Tensor) -> Tensor:
        return rotate(query, *self.of_query, self.turn)

    def rotate_key(self, key: Tensor) -> Tensor:
        return rotate(key, *self.of_key, self.turn)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, turn: Callable[[Tensor], Tensor]) -> Tensor:
    """[B, H, T, E], whose first R dimensions turn by angles of these cosines and sines [B|1, 1, T|1, R]."""
    width = cos.shape[-1]
    if width == x.shape[-1]:
        return x * cos + turn(x) * sin
    head, rest = x[..., :width], x[..., width:]
    return torch.cat([head * cos + turn(head) * sin, rest], -1)


def _turn_halves(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


def _turn_pairs(x: Tensor) -> Tensor:
    return torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)


def _repeat_halves(x: Tensor) -> Tensor:
    return torch.cat([x, x], -1)


def _repeat_pairs(x: Tensor) -> Tensor:
    return x.repeat_interleave(2, -1)
