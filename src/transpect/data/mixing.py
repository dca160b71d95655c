"""The passes of a mixture: so much of each part, shuffled together.

With the rate rₚ (documents of part p to a document of the mixture, Σ rₚ = 1) and passes of n documents, pass b begins
for part p with its document ⌊b·n·rₚ + uₚ⌋, where uₚ is drawn once, uniformly from [0, 1). So after every pass a part
has given its share to within one document, on average over seeds exactly, and where a pass begins needs no history.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, final

import numpy as np

from transpect.base.codec import to_data
from transpect.base.errors import ConfigError, DataError
from transpect.data.draws import Permutation, draws
from transpect.data.objectives.base import Encoded
from transpect.data.passes import Passes, Pool, part_size
from transpect.data.ragged import Ints, Ragged
from transpect.data.sources.mixture import Mixture


@final
class Mixed(Passes):
    """A mixture, pass by pass.

    Args:
        mixture: the weights.
        pools: the documents of each part.
        seed: of the orders.
    """

    def __init__(self, mixture: Mixture, pools: list[Pool], seed: int) -> None:
        self._mixture, self._pools, self._seed = mixture, pools, seed
        lengths = [pool.mean_length() for pool in pools]
        by_tokens = mixture.by == "tokens"
        shares = [
            Fraction(part.weight) / (Fraction(length) if by_tokens else 1)
            for part, length in zip(mixture.parts, lengths, strict=True)
        ]
        self.rates = [share / sum(shares) for share in shares]
        mean = sum(float(rate) * length for rate, length in zip(self.rates, lengths, strict=True))
        self._documents = part_size(mean)
        self._offsets = [Fraction(draws("mixture", seed, number).random()) for number in range(len(pools))]

    def encoded(self, number: int) -> Encoded:
        found = []
        for which, pool in enumerate(self._pools):
            numbers = self._numbers(which, self._first(which, number), self._first(which, number + 1))
            if len(numbers):
                found.append(pool.of(numbers))
        if not found:
            raise DataError(
                "a mixture must have a part that may be read on",
                value=self.told(number),
                remedy="Lower train.max_steps, or raise the `epochs` of a part.",
            )
        streams = zip(*(encoded.streams for encoded in found), strict=True)
        return Encoded(tuple(map(Ragged.join, streams)), sum(encoded.characters for encoded in found))

    def epoch(self, number: int) -> int:
        ends = [(which, pool.size) for which, pool in enumerate(self._pools) if pool.size is not None]
        return min((self._first(which, number) // size for which, size in ends), default=number)

    @property
    def size(self) -> None:
        return None

    def in_order(self) -> Iterator[Encoded]:
        raise ConfigError("a mixture has no whole pass", remedy="Name one of its sources.")

    def update(self, digest: Any) -> None:
        weights = [(part.weight, part.epochs) for part in self._mixture.parts]
        digest.update(repr((self._mixture.by, weights)).encode())
        for pool in self._pools:
            pool.update(digest)

    def told(self, number: int) -> str:
        parts = []
        for which, (part, pool) in enumerate(zip(self._mixture.parts, self._pools, strict=True)):
            count = self._first(which, number)
            often = "" if pool.size is None else f", {count / pool.size:.2f} times"
            parts.append(f"{to_data(part.source).get('path', part.source.kind)} {count:,} documents{often}")
        return f"Read of the mixture: {'; '.join(parts)}"

    def _first(self, which: int, number: int) -> int:
        """How many documents a part has given before a pass."""
        count = int(number * self._documents * self.rates[which] + self._offsets[which])
        size, epochs = self._pools[which].size, self._mixture.parts[which].epochs
        return count if size is None or epochs is None else min(count, size * epochs)

    def _numbers(self, which: int, first: int, last: int) -> Ints:
        size = self._pools[which].size
        if size is None:
            return np.arange(first, last)
        found: list[Ints] = [np.empty(0, np.int64)]
        while first < last:
            epoch, place = divmod(first, size)
            count = min(last - first, size - place)
            order = Permutation(size, self._seed, "part", which, epoch)
            found.append(order(np.arange(place, place + count)))
            first += count
        return np.concatenate(found)
