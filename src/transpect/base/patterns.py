"""Patterns for dotted names of modules and weights.

A pattern names parts of a name in their order: ``layers.0.query`` fits
``towers.decoder.stack.layers.0.steps.self.branches.self.body.query.weight``, and so do ``query`` and ``decoder``. Parts
may be left out, but not before a number: ``layers.1`` fits no expert 1 of layer 0. In a part ``*`` stands for anything,
``0-3`` for the numbers from 0 to 3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from transpect.base.codec import did_you_mean


def fits(pattern: str, name: str) -> bool:
    """Whether a pattern names parts of a dotted name."""
    parts = name.split(".")
    return any(_follows(pattern.split("."), parts[start:]) for start in range(len(parts)))


def _follows(wanted: list[str], parts: list[str]) -> bool:
    """Whether the first of the wanted parts is the first here, and the others come in their order."""
    if not parts or not _part_fits(wanted[0], parts[0]):
        return False
    if len(wanted) == 1:
        return True
    starts = range(1, 2 if wanted[1][:1].isdecimal() else len(parts))
    return any(_follows(wanted[1:], parts[start:]) for start in starts)


def nearest(pattern: str, names: Iterable[str], words: Iterable[str] = ()) -> str:
    """What may have been meant by a pattern that fits none of some names, and what they look like."""
    known = list(names)
    parts = dict.fromkeys((*words, *(part for name in known for part in name.split(".") if not part.isdecimal())))
    near = [did_you_mean(part, parts) for part in pattern.split(".") if part not in parts and "*" not in part]
    look = f"Names look like {known[len(known) // 2]!r}; parts of it will do." if known else ""
    return " ".join(filter(None, [*near, look]))


def _part_fits(pattern: str, part: str) -> bool:
    span = re.fullmatch(r"(\d+)-(\d+)", pattern)
    if span is not None:
        return part.isdecimal() and int(span[1]) <= int(part) <= int(span[2])
    return fnmatchcase(part, pattern)
