"""A learned vector for each position, added to the embeddings (GPT-1 §3.1, BERT §3)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

from transpect.base.checks import within
from transpect.base.errors import ContextLengthError
from transpect.core.positions.base import Dims, Position, PositionModule, row
from transpect.core.recording import recording
from transpect.core.tags import Tags


@dataclass(frozen=True)
class Learned(Position, kind="learned"):
    """x + table[position + offset]; the table has ``context_length + offset`` rows.

    Attributes:
        offset: rows before position 0 (BART and OPT keep 2, RoBERTa pad_id + 1).
    """

    offset: int = 0

    def __post_init__(self) -> None:
        within("Learned.offset", self.offset, 0)

    @property
    def embeds(self) -> bool:
        return True

    @property
    def bounded(self) -> bool:
        return True

    def build(self, dims: Dims) -> PositionModule:
        return LearnedModule(dims.context_length, self.offset, dims.d_embed)


class LearnedModule(PositionModule):
    def __init__(self, length: int, offset: int, d_model: int) -> None:
        super().__init__()
        self.length, self.offset = length, offset
        self.table = nn.Embedding(length + offset, d_model)

    def embed(self, x: Tensor, tags: Tags) -> Tensor:
        position = row(tags)
        if recording():
            needed = 0  # the table itself refuses, where the graph runs
        elif tags.start is None:
            needed = int(position.max()) + 1 if position.numel() else 0
        else:
            needed = tags.start + tags.shape[1]  # known without waiting for the device
        if needed > self.length:
            raise ContextLengthError(
                f"learned positions end at {self.length}",
                value=f"{needed} tokens",
                remedy="Shorten the input, or train with a larger context_length or another position scheme.",
            )
        return x + functional.embedding(position + self.offset, self.table.weight)
