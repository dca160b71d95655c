"""Sources that are read side by side, each at its own rate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal, final

import numpy as np

from transpect.base.errors import ConfigError
from transpect.data.documents import Document, Documents, Listed, Segmenter
from transpect.data.draws import mixed
from transpect.data.skipping import NOTHING_SKIPPED, Skipped
from transpect.data.sources.base import Source
from transpect.data.split import Divisible, split

By = Literal["tokens", "documents"]


@final
@dataclass(frozen=True)
class Part:
    """One source of a mixture.

    Attributes:
        source: what is read.
        weight: its share is this part of the sum of all weights.
        epochs: how often it may be read; after that it gives nothing more. None is without end: each time in another
            order.
    """

    source: Source
    weight: float = 1.0
    epochs: int | None = None

    def __post_init__(self) -> None:
        if not (self.weight > 0 and isfinite(self.weight)):
            raise ConfigError("a weight must be above 0", value=self.weight, remedy="Leave the part out.")
        if self.epochs is not None and self.epochs < 1:
            raise ConfigError("epochs must be at least 1, or null", value=self.epochs)
        if isinstance(self.source, Mixture):
            raise ConfigError(
                "a part of a mixture can't be a mixture itself", remedy="Put its parts here, with weights multiplied."
            )


@final
@dataclass(frozen=True)
class Mixture(Source, kind="mixture"):
    """Documents of several sources, without end, shuffled together.

    A mixture is read in passes of at most `transpect.data.passes.MOST` documents. After every pass, what each part has
    given is its share of the whole to within one document, and on average over seeds exactly. Each part goes through
    epochs of its own: none of its documents comes again before all have come. One that was read as often as it may be
    gives nothing more, and the others keep their rates; once none is left, the run ends with an error.

    Attributes:
        parts: at least one.
        by: what the weights are shares of: ``tokens``, or ``documents``. Of a part without end, the mean length is that
            of its first documents.
    """

    parts: tuple[Part, ...]
    by: By = "tokens"

    def __post_init__(self) -> None:
        if not self.parts:
            raise ConfigError("a mixture needs at least one part")

    def documents(self) -> MixtureDocuments:
        return MixtureDocuments(self, tuple(part.source.documents() for part in self.parts))


@final
@dataclass(frozen=True, eq=False)
class MixtureDocuments(Documents, Divisible):
    """The documents of a mixture's parts. By number, they are a sample with the weights as shares of documents, for a
    tokenizer to be trained on; `transpect.data.mixing` reads them.

    Attributes:
        mixture: which.
        parts: the documents of each part.
    """

    mixture: Mixture
    parts: tuple[Documents, ...]

    @property
    def size(self) -> None:
        return None

    @property
    def segmenter(self) -> Segmenter | None:
        return None

    @property
    def skipped(self) -> Skipped:
        return sum((part.skipped for part in self.parts), NOTHING_SKIPPED)

    def __getitem__(self, index: int) -> Document:
        weights = np.array([part.weight for part in self.mixture.parts])
        lots = mixed(mixed(np.arange(2, dtype=np.uint64) + np.uint64(2 * index + 1))) / 2.0**64
        which = int(np.searchsorted(np.cumsum(weights) / weights.sum(), lots[0], side="right"))
        part = self.parts[min(which, len(weights) - 1)]
        return part[index if part.size is None else min(int(lots[1] * part.size), part.size - 1)]

    def divided(self, fraction: float, seed: int) -> tuple[MixtureDocuments, Listed]:
        """A share of every part is held out; together they are the valid documents."""
        sides = [split(part, fraction, seed) for part in self.parts]
        held: list[Document] = []
        for part, (_, valid) in zip(self.mixture.parts, sides, strict=True):
            if not isinstance(valid, Listed):
                raise ConfigError(
                    f"of a mixture with a {part.source.kind} part no share can be held out",
                    remedy="Name a valid source in the recipe: data.valid: {kind: …}.",
                )
            held += valid.items
        return replace(self, parts=tuple(train for train, _ in sides)), Listed(held)
