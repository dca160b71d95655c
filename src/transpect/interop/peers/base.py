"""What is read, and what comes out of reading it, whoever reads.

Axes: T tokens, V vocabulary, D model, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from torch import Tensor

__all__ = ["Reading", "Sample", "installed"]

Reading = dict[str, Tensor]
"""What a model says of one sample: ``logits`` [T, V] or [C], or ``hidden`` [T, D] and ``pooled`` [D]."""


@dataclass(frozen=True)
class Sample:
    """One sequence without padding.

    Attributes:
        ids: what the last tower reads.
        source: what the encoder of an encoder–decoder reads.
        prefix: how many of the first tokens are a prefix, under rules that know one.
        marked: how many of the first tokens are global, under rules that know such tokens.
        label: what it is, for a person.
    """

    ids: tuple[int, ...]
    source: tuple[int, ...] = ()
    prefix: int = 0
    marked: int = 0
    label: str = ""


def installed(package: str) -> str | None:
    """The version of an installed package; None where there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
