"""How examples become a batch: rows of one width, and what is to be answered.

Axes: B batch, T query, S source, K texts of an example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, final

import numpy as np
import torch
from torch import Tensor

from transpect.core.tags import Tags
from transpect.data.batch import IGNORE, Batch
from transpect.data.ragged import Ints


def _nothing() -> Ints:
    return np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Example:
    """One row.

    Attributes:
        ids: [n].
        labels: [n], aligned with logits; [1] where the row as a whole has a label.
        position: [n].
        segment: [n].
        prefix: [n], 1 for tokens of a prefix; [0] where there is none.
        source: [m], the source's ids; [0] where there is none.
        others: further texts that belong to it, each ids [m].
        noise: from which a criterion draws what it needs for this row alone.
    """

    ids: Ints
    labels: Ints
    position: Ints
    segment: Ints
    prefix: Ints = field(default_factory=_nothing)
    source: Ints = field(default_factory=_nothing)
    others: tuple[Ints, ...] = ()
    noise: int | None = None

    @classmethod
    def whole(cls, ids: Ints, labels: Ints) -> Example:
        """A row of one text."""
        return cls(ids, labels, np.arange(len(ids)), np.zeros(len(ids), np.int64))


class Layout(ABC):
    """One way to lay examples out."""

    @abstractmethod
    def batch(self, examples: Sequence[Example], width: int | None, pad_id: int) -> Batch:
        """The batch of some examples, padded on the right.

        Args:
            examples: at least one.
            width: T; None is the longest row.
            pad_id: what fills ids.
        """


@final
class TokenLabels(Layout):
    """A label a token: labels [B, T]."""

    def batch(self, examples: Sequence[Example], width: int | None, pad_id: int) -> Batch:
        ids, tags = _read(examples, width, pad_id)
        labels = padded([example.labels for example in examples], ids.shape[1], IGNORE)
        noise = [example.noise for example in examples if example.noise is not None]
        batch = Batch(ids, tags, labels, noise=torch.tensor(noise) if noise else None)
        sources = [example.source for example in examples]
        longest = max(map(len, sources))
        if not longest:
            return batch
        source_ids = padded(sources, longest, pad_id)
        is_token = torch.arange(longest) < torch.tensor([len(source) for source in sources])[:, None]
        return replace(batch, source_ids=source_ids, source_tags=Tags.padded(is_token))


@final
class RowLabels(Layout):
    """A label a row: labels [B]."""

    def batch(self, examples: Sequence[Example], width: int | None, pad_id: int) -> Batch:
        ids, tags = _read(examples, width, pad_id)
        return Batch(ids, tags, torch.from_numpy(np.concatenate([example.labels for example in examples])))


@final
class Groups(Layout):
    """K texts an example: ids [K·B, T], first the first text of each example, then the second of each, and so on;
    labels [B], each the row of its example's second text, counted from row B on."""

    def batch(self, examples: Sequence[Example], width: int | None, pad_id: int) -> Batch:
        texts = [[example.ids, *example.others] for example in examples]
        rows = [Example.whole(ids, _nothing()) for column in zip(*texts, strict=True) for ids in column]
        ids, tags = _read(rows, width, pad_id)
        return Batch(ids, tags, torch.arange(len(examples)))


TOKENS: Final = TokenLabels()
ROWS: Final = RowLabels()
GROUPS: Final = Groups()


def padded(rows: Sequence[Ints], width: int, fill: int) -> Tensor:
    """Rows of numbers filled up on the right, [B, width]."""
    out = np.full((len(rows), width), fill, np.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return torch.from_numpy(out)


def _read(examples: Sequence[Example], width: int | None, pad_id: int) -> tuple[Tensor, Tags]:
    """What is read: ids [B, T] and their tags."""
    width = width or max(len(example.ids) for example in examples)
    ids = padded([example.ids for example in examples], width, pad_id)
    position = padded([example.position for example in examples], width, -1)
    segment = padded([example.segment for example in examples], width, -1)
    prefix = padded([example.prefix for example in examples], width, 0).bool()
    return ids, _tags(position, segment, prefix)


def _tags(position: Tensor, segment: Tensor, prefix: Tensor) -> Tags:
    """Tags that know when all rows are one full document each, which kernels have a faster path for."""
    batch, width = position.shape
    if bool((position == torch.arange(width)).all()) and not segment.any() and not prefix.any():
        return Tags.dense(batch, width)
    return Tags.of(position, segment=segment, prefix=prefix)
