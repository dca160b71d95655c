"""Which weights a run leaves as they are, by patterns.

A pattern is that of `transpect.base.patterns`; ``embedding`` stands for all that is added up before the first layer.
``!`` before a pattern takes weights out again; the last pattern that fits counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from transpect.base.errors import ConfigError
from transpect.base.patterns import fits, nearest
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
            raise _fault("no weight has a name that the pattern fits", pattern, nearest(wanted, known, [EMBEDDING]))
        found = found - fitting if pattern.startswith("!") else found | fitting
    return found


def _embedding(model: Transformer, names: list[str]) -> set[str]:
    places = ["token"]
    for tower, stack in model.config.towers.items():
        places.append(f"towers.{tower}.embeddings")
        places += [f"towers.{tower}.stack.positions"] if stack.positions.embeds else []
    return {name for name in names if any(f"{name}.".startswith(f"{place}.") for place in places)}


def _fault(rule: str, value: object, remedy: str) -> ConfigError:
    error = ConfigError(rule, value=value, remedy=remedy)
    error.path = ("train", "freeze")
    return error
