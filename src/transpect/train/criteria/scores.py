"""How well classes are told: accuracy, macro F₁, F₁ of spans. What batches give adds up; a score is made of the sums.

Axes: N examples, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

Span = tuple[str, int, int]
"""(what it is, its first word, the word after its last)."""

_OUTSIDE: Final = ("O", "")


def confusion(predicted: Tensor, true: Tensor, n_classes: int) -> Tensor:
    """How often a class was taken for which: [N], [N] -> [C, C], a row a true class."""
    return torch.bincount(true * n_classes + predicted, minlength=n_classes**2).view(n_classes, n_classes)


def accuracy(counts: Tensor) -> Tensor:
    """The share of examples on the diagonal of a confusion."""
    return counts.diagonal().sum() / counts.sum()


def macro_f1(counts: Tensor) -> Tensor:
    """The mean over classes of F₁ = 2·right / (true + predicted), each class as heavy as any other.

    A class that is neither true nor predicted anywhere is left out.
    """
    right = counts.diagonal().double()
    both = counts.sum(0) + counts.sum(1)
    return (2 * right / both)[both > 0].mean()


def span_f1(counts: Tensor) -> Tensor:
    """F₁ of spans from (right, predicted, true): 2·right / (predicted + true), and 0 where there are none."""
    right, predicted, true = counts.double().unbind()
    return 2 * right / (predicted + true).clamp(min=1)


def is_scheme(names: Sequence[str]) -> bool:
    """Whether tags mark spans: each is O, or B, I, E or S and what the span is (B-PER)."""
    return any(name != "O" for name in names) and all(
        name == "O" or (name[:1] in "BIES" and name[1:2] == "-" and len(name) > 2) for name in names
    )


def spans(tags: Sequence[str]) -> set[Span]:
    """The spans that tags mark, in any of the schemes IOB1, IOB2 and IOBES.

    A tag that no span could go on with begins one all the same: after O, ``I-PER`` begins a span, and so it does after
    ``B-LOC`` (the rule of the CoNLL evaluation: Tjong Kim Sang and De Meulder 2003, §2.4).
    """
    found: set[Span] = set()
    start: int | None = None
    before = _OUTSIDE
    for place, tag in enumerate([*tags, "O"]):
        mark, _, kind = tag.partition("-")
        other = kind != before[1]
        if start is not None and (before[0] in "ES" or mark in "BSO" or other):
            found.add((before[1], start, place))
            start = None
        if mark in "BS" or (mark in "IE" and (before[0] in "ESO" or other)):
            start = place
        before = (mark, kind)
    return found


def span_counts(predicted: Sequence[str], true: Sequence[str]) -> tuple[int, int, int]:
    """Of one text: (right, predicted, true) spans. A span is right where its kind and both its ends are."""
    ours, theirs = spans(predicted), spans(true)
    return len(ours & theirs), len(ours), len(theirs)
