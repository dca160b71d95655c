"""In which keys the recipes of several runs differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transpect.base.codec import Data
from transpect.train.resume import leaves

ABSENT = "—"


def differing(recipes: Sequence[Data]) -> list[tuple[str, list[Any]]]:
    """(key, the value of each recipe) for all keys that are not the same everywhere, in the order of the recipes; what
    a recipe lacks is `ABSENT`."""
    flat = [dict(leaves(recipe)) for recipe in recipes]
    keys = dict.fromkeys(key for one in flat for key in one)
    rows = [(key, [one.get(key, ABSENT) for one in flat]) for key in keys]
    return [(key, values) for key, values in rows if any(value != values[0] for value in values[1:])]
