"""Which weights a run leaves as they are, by patterns.

A pattern is a run of the parts of a dotted name: ``layers.0`` fits
``towers.decoder.stack.layers.0.steps.self.branches.self.body.query.weight``, and so do ``query`` and ``self.body``.
In a part ``*`` stands for anything, ``0-3`` for the numbers from 0 to 3; ``embedding`` stands for all that is added up
before the first layer. ``!`` before a pattern takes weights out again; the last pattern that fits counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from transpect.base.codec import did_you_mean
from transpect.base.errors import ConfigError
from transpect.core import Transformer

EMBEDDING = "embedding"


def freeze(model: Transformer, patterns: Sequence[str]) -> None:
    """Let the weights that patterns name need no gradient: no optimizer keeps anything for them.

    Raises:
        ConfigError: see `chosen`; or no weight is left to be trained.
    """
    weights = dict(model.named_parameters())
    frozen = chosen(model, weights, patterns)
    if patterns and frozen.issuperset(name for name, weight in weights.items() if weight.requires_grad):
        raise _fault("train.freeze must leave something to be trained", list(patterns), "Thaw a part: add '!head'.")
    for name in frozen:
        weights[name].requires_grad_(False)


def chosen(model: Transformer, names: Iterable[str], patterns: Sequence[str]) -> set[str]:
    """Which of some dotted names of a model patterns fit.

    Raises:
        ConfigError: a pattern that fits none.
    """
    known, found = list(names), set[str]()
    for pattern in patterns:
        wanted = pattern.removeprefix("!")
        fitting = _embedding(model, known) if wanted == EMBEDDING else {name for name in known if fits(wanted, name)}
        if not fitting:
            raise _fault("no weight has a name that the pattern fits", pattern, _remedy(wanted, known))
        found = found - fitting if pattern.startswith("!") else found | fitting
    return found


def fits(pattern: str, name: str) -> bool:
    """Whether a pattern is a run of the parts of a dotted name."""
    wanted, parts = pattern.split("."), name.split(".")
    starts = range(len(parts) - len(wanted) + 1)
    return any(all(map(_part_fits, wanted, parts[start : start + len(wanted)])) for start in starts)


def _part_fits(pattern: str, part: str) -> bool:
    span = re.fullmatch(r"(\d+)-(\d+)", pattern)
    if span is not None:
        return part.isdecimal() and int(span[1]) <= int(part) <= int(span[2])
    return fnmatchcase(part, pattern)


def _embedding(model: Transformer, names: list[str]) -> set[str]:
    places = ["token"]
    for tower, stack in model.config.towers.items():
        places.append(f"towers.{tower}.embeddings")
        places += [f"towers.{tower}.stack.positions"] if stack.positions.embeds else []
    return {name for name in names if any(f"{name}.".startswith(f"{place}.") for place in places)}


def _remedy(pattern: str, names: list[str]) -> str:
    words = dict.fromkeys((EMBEDDING, *(part for name in names for part in name.split(".") if not part.isdecimal())))
    near = [did_you_mean(part, words) for part in pattern.split(".") if part not in words and "*" not in part]
    return " ".join([*filter(None, near), f"Names look like {names[len(names) // 2]!r}; any run of its parts will do."])


def _fault(rule: str, value: object, remedy: str) -> ConfigError:
    error = ConfigError(rule, value=value, remedy=remedy)
    error.path = ("train", "freeze")
    return error
