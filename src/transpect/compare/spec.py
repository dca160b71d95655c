"""What a comparison is asked for: the ``compare`` section of a recipe, and what the command line says over it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal

from transpect.base.codec import from_data
from transpect.base.errors import ConfigError
from transpect.compare.notation import check_distinct, parse_vary

EVALUATE = "evaluate"
VARIABLE = ("model", "train.optimizer", "train.schedule", "train.clip", "train.label_smoothing", "train.precision")
"""What variants may differ in. Anything else would change which tokens they read, or in which order."""

Changes = tuple[tuple[str, Any], ...]
"""Dotted keys of a recipe, and what each becomes."""


@dataclass(frozen=True)
class Variant:
    """One of the models that are compared.

    Attributes:
        name: what tables call it.
        changes: of the recipe that it is trained by.
        evaluate: further changes of the trained model, for evaluation only.
    """

    name: str
    changes: Changes = ()
    evaluate: Changes = ()


@dataclass(frozen=True)
class Spec:
    """How variants are compared.

    Attributes:
        variants: name → dotted keys to change; those below ``evaluate`` change the trained model for evaluation only.
            Variants that are trained alike are trained once.
        lengths: multiples of the training length to evaluate at.
        seeds: how many trainings of each variant; they use the recipe's seed and those after it.
        equal: ``parameters`` sets ``d_ff`` where a variant's total differs from the first one's by more than 0.5 %.
        tokens: evaluate on at most so many tokens at each length; null is all of the valid text.
    """

    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    lengths: tuple[int, ...] = (1, 2, 4, 8)
    seeds: int = 3
    equal: Literal["parameters"] | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        if not self.lengths or min(self.lengths) < 1 or list(self.lengths) != sorted(set(self.lengths)):
            raise ConfigError(
                "lengths must be multiples of the training length, from 1 up, each once and in order",
                value=list(self.lengths),
                remedy="Write e.g. 1,2,4,8.",
            )
        for name, value in (("seeds", self.seeds), ("tokens", self.tokens)):
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1", value=value)

    def over(self, **given: Any) -> Spec:
        """The same with the options that were given; None was not."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})


def read_spec(section: Any) -> Spec:
    """The ``compare`` section of a recipe; nothing is all defaults.

    Raises:
        ConfigError: with its path below ``compare``.
    """
    return from_data(Spec, {} if section is None else section, ("compare",))


def variants_of(spec: Spec, vary: Iterable[str] = ()) -> tuple[Variant, ...]:
    """The variants of a section, or those of ``--vary``: every combination of the values of its keys.

    Raises:
        ConfigError: fewer than two, two of one name, a name that is no line of text, or a key that may not vary.
    """
    axes = [parse_vary(text) for text in vary]
    keys = [key for key, _ in axes]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise ConfigError(
            "a key can be varied once", value=twice[0], remedy="Part all of its values by commas in one --vary."
        )
    if axes:
        combinations = product(*(choices for _, choices in axes))
        made = [
            Variant(" · ".join(c.label for c in chosen), tuple(zip(keys, (c.value for c in chosen), strict=True)))
            for chosen in combinations
        ]
    else:
        made = [_named(str(name), changes) for name, changes in spec.variants.items()]
    check_distinct([variant.name for variant in made])
    if len(made) < 2:
        raise ConfigError(
            "a comparison needs at least two variants",
            value=len(made),
            remedy="Give --vary KEY=VALUE,VALUE or a section `compare: {variants: …}` in the recipe.",
        )
    for variant in made:
        if not variant.name.strip() or len(variant.name.splitlines()) > 1:
            raise ConfigError("the name of a variant must be a line of text", value=variant.name)
        for key, _ in variant.changes:
            _check_key(key, VARIABLE, ("compare", "variants", variant.name, key))
        for key, _ in variant.evaluate:
            _check_key(key, ("model",), ("compare", "variants", variant.name, EVALUATE, key))
    return tuple(made)


def _named(name: str, changes: Mapping[str, Any]) -> Variant:
    later = changes.get(EVALUATE)
    if later is None:
        later = {}
    if not isinstance(later, dict):
        raise _fault("evaluate must be a mapping of dotted keys to values", later, name, EVALUATE)
    return Variant(name, _dotted(changes, but=EVALUATE), _dotted(later))


def _dotted(changes: Mapping[str, Any], but: str | None = None) -> Changes:
    return tuple((str(key), value) for key, value in changes.items() if key != but)


def _check_key(key: str, known: tuple[str, ...], path: tuple[str, ...]) -> None:
    if not any(key.startswith(f"{one}.") or (key == one and one != "model") for one in known):
        raise _fault(
            f"variants may differ in {', '.join(f'{one}.…' for one in known)}, so that all read the same tokens",
            key,
            *path[2:],
        )


def _fault(rule: str, value: object, *path: str) -> ConfigError:
    error = ConfigError(rule, value=value)
    error.path = ("compare", "variants", *path)
    return error
