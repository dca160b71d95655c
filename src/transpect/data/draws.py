"""Randomness by name: what is drawn is a function of a key alone, so that it needs no state to be resumed."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from transpect.data.ragged import Ints


def draws(*key: object) -> np.random.Generator:
    """The generator of a key, e.g. ``draws("order", seed, epoch)``; different keys give independent streams."""
    name = "\0".join(map(str, key)).encode()
    return np.random.default_rng(int.from_bytes(blake2b(name, digest_size=16).digest(), "little"))


def shuffled(n: int, generator: np.random.Generator) -> Ints:
    """The numbers 0 … n−1 in random order."""
    order: Ints = np.argsort(generator.random(n), kind="stable")
    return order
