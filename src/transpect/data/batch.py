"""A batch: what a model is given, and what it should answer.

Axes: B batch, T query, S source.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from transpect.core.tags import Tags

IGNORE: Final = -100
"""The label of a position where nothing is predicted (`torch.nn.functional.cross_entropy` ignores it by default)."""


@dataclass(frozen=True)
class Stretch:
    """Where a batch stands whose rows go on from batch to batch.

    Attributes:
        slot: which lanes its rows are. Row b goes on where row b of the last batch of this slot ended.
        first: its lanes begin here: nothing goes before it.
        memory: how many columns its successor should remember, at most.
    """

    slot: int
    first: bool
    memory: int


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of training examples.

    Attributes:
        ids: [B, T] int64, what the last tower reads.
        tags: of ``ids``; padding has position −1, a packed document its own segment and positions from 0.
        labels: [B, T] int64, aligned with logits: ``logits[b, t]`` should predict ``labels[b, t]``; IGNORE is not
            predicted. Labels are set by place, never by the value of an id, so an EOS that also pads is kept. Where a
            row as a whole has a label, [B]; see `transpect.data.collating`.
        token_types: [B, T] int64 segment ids for models that have such embeddings.
        source_ids: [B, S] int64, what the encoder of an encoder–decoder reads.
        source_tags: of ``source_ids``.
        stretch: for rows that go on from batch to batch; None where each row stands alone.
        noise: [B] int64 seeds, for a criterion that draws something for each row, whatever rows are beside it.
    """

    ids: Tensor
    tags: Tags
    labels: Tensor
    token_types: Tensor | None = None
    source_ids: Tensor | None = None
    source_tags: Tags | None = None
    stretch: Stretch | None = None
    noise: Tensor | None = None

    @property
    def n_labels(self) -> int:
        """How many tokens are predicted."""
        return int((self.labels != IGNORE).sum())

    @property
    def n_tokens(self) -> int:
        """How many tokens are read, padding left out, the source's included."""
        every = [self.tags] if self.source_tags is None else [self.tags, self.source_tags]
        return sum(int((tags.position >= 0).sum()) for tags in every)

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        return replace(
            self,
            ids=self.ids.to(device),
            tags=self.tags.to(device),
            labels=self.labels.to(device),
            token_types=None if self.token_types is None else self.token_types.to(device),
            source_ids=None if self.source_ids is None else self.source_ids.to(device),
            source_tags=None if self.source_tags is None else self.source_tags.to(device),
            noise=None if self.noise is None else self.noise.to(device),
        )
