"""Fixed sines and cosines added to the embeddings (Vaswani et al. 2017, §3.5)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from transpect.base.checks import above, within
from transpect.base.errors import ConfigError
from transpect.core.positions.base import Dims, Position, PositionModule, row
from transpect.core.recording import recording
from transpect.core.tags import Tags


@dataclass(frozen=True)
class Sinusoidal(Position, kind="sinusoidal"):
    """PE(pos, 2i) = sin(pos / base^(2i/D)), PE(pos, 2i+1) = cos of the same. For odd D the last cosine is left out.

    Computed when needed, for any length; nothing of it is in a checkpoint.

    Attributes:
        halves: all sines, then all cosines, instead of in turns (tensor2tensor, Marian, CTRL).
        spread: of the D/2 frequencies the last is exactly 1/base: base^(−i/(D/2−1)) (tensor2tensor, fairseq, M2M-100).
        offset: the number of the first position (fairseq: 2).
    """

    base: float = 10000.0
    halves: bool = False
    spread: bool = False
    offset: int = 0

    def __post_init__(self) -> None:
        above("Sinusoidal.base", self.base, 1)
        within("Sinusoidal.offset", self.offset, 0)

    @property
    def embeds(self) -> bool:
        return True

    def build(self, dims: Dims) -> PositionModule:
        if self.spread and (dims.d_embed % 2 or dims.d_embed < 4):
            raise ConfigError("spread frequencies need an even width of at least 4", value=dims.d_embed)
        return SinusoidalModule(self)


class SinusoidalModule(PositionModule):
    def __init__(self, options: Sinusoidal) -> None:
        super().__init__()
        self.options = options

    def embed(self, x: Tensor, tags: Tags) -> Tensor:
        position, width = row(tags), x.shape[-1]
        if tags.start is not None or recording() or not position.numel():
            return x + encoding(position, width, self.options).to(x.dtype)
        # many rows share few positions: each is computed once
        distinct = torch.arange(int(position.max()) + 1, device=position.device)
        return x + encoding(distinct, width, self.options).to(x.dtype)[position]


def encoding(position: Tensor, width: int, options: Sinusoidal) -> Tensor:
    """The table's rows for ``position`` [...]: [..., width] in float64."""
    steps = width - 2 if options.spread else width
    i = torch.arange(0, width, 2, dtype=torch.float64, device=position.device)
    angle = (position + options.offset).to(torch.float64)[..., None] * options.base ** (-i / steps)
    if options.halves:
        return torch.cat([angle.sin(), angle.cos()], -1)[..., :width]
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)[..., :width]
