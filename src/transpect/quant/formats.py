"""Weight formats: what is stored of a matrix [N, D], and which numbers it can be.

Axes: N out, D in, G groups of a row, g weights of a group.

Each format fits a `Grid` to a matrix, packs the codes that a method chose, and unpacks what it packed.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from transpect.base.checks import within
from transpect.base.codec import Variant
from transpect.base.errors import ConfigError
from transpect.quant import gguf_blocks
from transpect.quant.grid import SEARCH, Grid, Group, Search, Tried, best, parted, symmetric

Stored = dict[str, Tensor]

GgufKind = Literal["Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K"]


class Format(Variant):
    """A weight format with its options."""

    @abstractmethod
    def group_of(self, d_in: int) -> int:
        """g, of weights that share a scale."""

    @abstractmethod
    def bits(self, d_in: int) -> float:
        """Stored bits a weight, scales included."""

    @abstractmethod
    def fit(self, weight: Tensor, importance: Tensor | None, search: Search = SEARCH) -> Grid:
        """The grid of least squared error for [N, D], with parameters as they are stored."""

    @abstractmethod
    def pack(self, codes: Tensor, grid: Grid) -> Stored:
        """Codes [N, D] in the grid -> buffers by name."""

    @abstractmethod
    def unpack(self, stored: Stored) -> Tensor:
        """Buffers of rows -> weights [N, D] in float32."""

    @abstractmethod
    def empty(self, n_rows: int, d_in: int) -> Stored:
        """Buffers to be filled."""

    def check(self, d_in: int, name: str) -> None:
        """Whether rows of D weights can be stored.

        Raises:
            ConfigError: D is no multiple of the format's block.
        """
        block = self.block_of(d_in)
        if d_in % block:
            raise ConfigError(
                f"`{self.kind}` stores rows in blocks of {block}, which must divide the width of `{name}`",
                value=d_in,
                remedy="Keep this layer in another format, or choose a smaller group.",
            )

    def block_of(self, d_in: int) -> int:
        """The weights that are stored together."""
        return self.group_of(d_in)


@dataclass(frozen=True)
class Int8(Format, kind="int8"):
    """w = q·scale, q in −127 … 127, scales in float32.

    Attributes:
        group: g; None is a scale a row.
    """

    group: int | None = None

    def __post_init__(self) -> None:
        within("Int8.group", self.group)

    def group_of(self, d_in: int) -> int:
        return d_in if self.group is None else self.group

    def bits(self, d_in: int) -> float:
        return 8 + 32 / self.group_of(d_in)

    def fit(self, weight: Tensor, importance: Tensor | None, search: Search = SEARCH) -> Grid:
        attempt = symmetric(-127, 127, lambda scale: scale.float().to(scale))
        return best(weight, importance, self.group_of(weight.shape[1]), search, attempt)

    def pack(self, codes: Tensor, grid: Grid) -> Stored:
        return {"packed": codes.to(torch.int8), "scale": grid.scale.float()}

    def unpack(self, stored: Stored) -> Tensor:
        packed, scale = stored["packed"], stored["scale"]
        grouped = parted(packed, (scale.shape[-1], -1)).float()
        return (grouped * scale[..., None]).flatten(-2)

    def empty(self, n_rows: int, d_in: int) -> Stored:
        n_groups = d_in // self.group_of(d_in)
        return {"packed": torch.empty(n_rows, d_in, dtype=torch.int8), "scale": torch.empty(n_rows, n_groups)}


@dataclass(frozen=True)
class Int4(Format, kind="int4"):
    """w = (q − zero)·scale, q in 0 … 15, scales in float16; column 2b in the low half of byte b.

    Attributes:
        group: g.
        symmetric: zero is 8, and is not stored.
    """

    group: int = 32
    symmetric: bool = True

    def __post_init__(self) -> None:
        within("Int4.group", self.group, 2)
        if self.group % 2:
            raise ConfigError("Int4.group must be even", value=self.group, remedy="Two weights share a byte.")

    def group_of(self, d_in: int) -> int:
        return self.group

    def bits(self, d_in: int) -> float:
        return 4 + (16 if self.symmetric else 24) / self.group

    def fit(self, weight: Tensor, importance: Tensor | None, search: Search = SEARCH) -> Grid:
        attempt = symmetric(-8, 7, _half, zero=8) if self.symmetric else _asymmetric
        return best(weight, importance, self.group, search, attempt)

    def pack(self, codes: Tensor, grid: Grid) -> Stored:
        whole = codes.to(torch.uint8)
        stored = {"packed": whole[:, 0::2] | whole[:, 1::2] << 4, "scale": grid.scale.half()}
        zero = torch.empty(0, 0, dtype=torch.uint8, device=codes.device)
        if not self.symmetric:
            safe = torch.where(grid.scale == 0, 1.0, grid.scale)
            zero = (-grid.offset / safe).round().to(torch.uint8)
        return {**stored, "zero": zero}

    def unpack(self, stored: Stored) -> Tensor:
        packed, scale = stored["packed"], stored["scale"].float()
        codes = torch.stack([packed & 15, packed >> 4], -1).flatten(-2)  # [N, D]
        zero = 8.0 if self.symmetric else stored["zero"].float()[..., None]
        return ((parted(codes, (scale.shape[-1], -1)).float() - zero) * scale[..., None]).flatten(-2)

    def empty(self, n_rows: int, d_in: int) -> Stored:
        shape = (n_rows, d_in // self.group)
        return {
            "packed": torch.empty(n_rows, d_in // 2, dtype=torch.uint8),
            "scale": torch.empty(shape, dtype=torch.float16),
            "zero": torch.empty((0, 0) if self.symmetric else shape, dtype=torch.uint8),
        }


@dataclass(frozen=True)
class GgufBlocks(Format, kind="gguf"):
    """A row as blocks of bytes, exactly as in a GGUF file (ggml-quants.h).

    Attributes:
        block: ``Q8_0``, ``Q4_0``, ``Q4_1`` (blocks of 32), ``Q4_K``, ``Q6_K`` (of 256).
    """

    block: GgufKind

    def group_of(self, d_in: int) -> int:
        return gguf_blocks.KINDS[self.block].group

    def block_of(self, d_in: int) -> int:
        return gguf_blocks.KINDS[self.block].weights

    def bits(self, d_in: int) -> float:
        kind = gguf_blocks.KINDS[self.block]
        return 8 * kind.bytes / kind.weights

    def fit(self, weight: Tensor, importance: Tensor | None, search: Search = SEARCH) -> Grid:
        return gguf_blocks.KINDS[self.block].fit(weight, importance, search)

    def pack(self, codes: Tensor, grid: Grid) -> Stored:
        kind = gguf_blocks.KINDS[self.block]
        shape = (codes.shape[0], -1, kind.weights // kind.group)
        scale, offset = grid.scale.float().view(shape), grid.offset.float().view(shape)
        return {"packed": kind.pack(parted(codes, (-1, kind.weights)), scale, offset).flatten(1)}

    def unpack(self, stored: Stored) -> Tensor:
        kind = gguf_blocks.KINDS[self.block]
        return kind.unpack(parted(stored["packed"], (-1, kind.bytes))).flatten(-2)

    def empty(self, n_rows: int, d_in: int) -> Stored:
        kind = gguf_blocks.KINDS[self.block]
        return {"packed": torch.empty(n_rows, d_in // kind.weights * kind.bytes, dtype=torch.uint8)}


def _half(scale: Tensor) -> Tensor:
    return scale.half().to(scale)


def _asymmetric(group: Group, clip: float, fitted: bool) -> Tried:
    """From the least weight to the largest, 0 among them, which has a code of its own."""
    least, most = group.weight.aminmax(dim=-1)  # [N, G]
    low, high = least.clamp(max=0) * clip, most.clamp(min=0) * clip
    scale = _half((high - low) / 15)
    safe = torch.where(scale == 0, 1.0, scale)
    zero = (-low / safe).round().clamp(0, 15)
    q = (group.weight / safe[..., None]).round_().add_(zero[..., None]).clamp_(0, 15).sub_(zero[..., None])
    scale, error = group.along(q, scale, _half, fitted)
    return Grid(scale, -zero * scale, 0, 15), error
