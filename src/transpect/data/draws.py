"""Randomness by name: what is drawn is a function of a key alone, so that it needs no state to be resumed."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from transpect.data.ragged import Ints


def draws(*key: object) -> np.random.Generator:
    """The generator of a key, e.g. ``draws("order", seed, epoch)``; different keys give independent streams."""
    name = "\0".join(map(str, key)).encode()
    return np.random.default_rng(int.from_bytes(blake2b(name, digest_size=16).digest(), "little"))


def shuffled(n: int, generator: np.random.Generator) -> Ints:
    """The numbers 0 … n−1 in random order."""
    order: Ints = np.argsort(generator.random(n), kind="stable")
    return order


@final
class Permutation:
    """The numbers 0 … n−1 in an order of their own, of which any part is known without the rest.

    A Feistel network over the smallest even number of bits that hold n; what it leads out of 0 … n−1 is led on until it
    is back (Black and Rogaway 2002, cycle walking). So an order of billions takes no memory.

    Args:
        n: how many numbers.
        key: what the order is a function of.
    """

    ROUNDS: Final = 6

    def __init__(self, n: int, *key: object) -> None:
        self._n = n
        self._half = max(1, ((n - 1).bit_length() + 1) // 2)
        self._keys = draws("permutation", *key).integers(0, 2**64, self.ROUNDS, np.uint64)

    def __call__(self, places: Ints) -> Ints:
        """The numbers at some places, each below n."""
        numbers = self._walk(places.astype(np.uint64))
        while len(outside := np.flatnonzero(numbers >= self._n)):
            numbers[outside] = self._walk(numbers[outside])
        return numbers.astype(np.int64)

    def _walk(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        half, mask = np.uint64(self._half), np.uint64((1 << self._half) - 1)
        left, right = numbers >> half, numbers & mask
        for key in self._keys:
            left, right = right, left ^ (mixed(right ^ key) & mask)
        return (left << half) | right


def mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finisher of splitmix64 (Steele et al. 2014): every bit of the result hangs on every bit of the number."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
