"""Keys that stand for blocks of tokens, beside the tokens' own: the transient global tokens of LongT5.

Axes: B batch, T token, G block, D model.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from transpect.base.checks import within
from transpect.base.errors import ConfigError, MaskError
from transpect.core.context import NO_CACHE, NO_MEMORY, Context
from transpect.core.norms import Norm, RMSNorm
from transpect.core.recording import recording
from transpect.core.tags import Tags


@dataclass(frozen=True)
class Summaries:
    """For each block of tokens one more key and value, of norm(Σ x) over its tokens' inputs x (Guo et al. 2022, §3.2).

    The rest of a sequence that fills no block belongs to the block before it; a sequence that is shorter than one
    block has none. The keys are tagged as global, at the position of their block's first token; it is for the rule of
    visibility to let tokens see them (`GlobalTokens`).

    Attributes:
        size: of a block, in tokens.
        norm: of the sums, one in each layer.
    """

    size: int
    norm: Norm = field(default_factory=RMSNorm)

    def __post_init__(self) -> None:
        within("Summaries.size", self.size)


class NoSummaries(nn.Module):
    """All keys are tokens."""

    def admit(self, context: Context) -> tuple[Tags, Tensor]:
        """The tags of all new keys of a pass, and what `Sums` needs to make them; once a pass."""
        new = context.memory.admit(context.tags)
        return new, new.position

    def forward(self, x: Tensor, shares: Tensor) -> Tensor:
        """The tokens [B, T, D] and what is computed of them, [B, T+G, D]."""
        return x


class BlockSums(NoSummaries):
    """A stack's part: which token is of which block."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def admit(self, context: Context) -> tuple[Tags, Tensor]:
        tags = context.tags
        if context.cache is not NO_CACHE or context.memory is not NO_MEMORY:
            raise ConfigError(
                "blocks of tokens are summed over the whole sequence: there can be no cache and no memory"
            )
        if tags.start is None and not recording() and bool(((tags.position >= 0) & (tags.segment != 0)).any()):
            raise MaskError("blocks of tokens are summed over one document a row, and a row has several")
        blocks = torch.arange(tags.shape[1] // self.size, device=tags.position.device)  # [G]
        stands = blocks < n_blocks(tags, self.size)[:, None]  # [B, G]
        position = (blocks * self.size).where(stands, -1)
        nowhere = torch.zeros_like(stands)
        sums = Tags(position, torch.zeros_like(position), nowhere, ~nowhere, tags.horizon)
        return tags.join(sums), block_of(tags, self.size)[:, :, None] == blocks


class LayerSums(NoSummaries):
    """A layer's part: its norm."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor, shares: Tensor) -> Tensor:
        sums = torch.einsum("btd,btg->bgd", x, shares.to(x.dtype))
        return torch.cat([x, self.norm(sums)], 1)


def n_blocks(tags: Tags, size: int) -> Tensor:
    """[B]: how many whole blocks a row's tokens fill."""
    return (tags.position.amax(-1) + 1).clamp(min=0).div(size, rounding_mode="floor")


def block_of(tags: Tags, size: int) -> Tensor:
    """[B, T]: the block of each token; −1 for padding, and where there is none."""
    block = tags.position.div(size, rounding_mode="floor")
    return block.minimum(n_blocks(tags, size)[:, None] - 1)
