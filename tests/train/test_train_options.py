"""Whatever value stands at a key of `train`, `logging` or `parallel`: it is taken, or an error names key, value and
remedy."""

import dataclasses
import math
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from transpect.base.codec import Variant, from_data, to_data
from transpect.base.errors import ConfigError
from transpect.train.recipe import LoggingSpec, ParallelSpec, TrainSpec

Make = Callable[[Any], dict[str, Any]]

SECTIONS: dict[str, type] = {"train": TrainSpec, "logging": LoggingSpec, "parallel": ParallelSpec}
NEEDED = {"match": "*", "teacher": "models/teacher", "prompts": ["once"], "decay": 0.5}
"""Of options without a default."""
NUMBERS = [-1, 0, 1, -0.5, 0.5, 1.5, 10**30, 1e-320, math.inf, -math.inf, math.nan]
ODD = [
    None,
    True,
    "odd",
    "",
    "1e-3",
    "2020-01-01",
    *NUMBERS,
    [],
    ["odd"],
    [-1],
    [0.5, 2.0],
    {},
    {"odd": 1},
    {"kind": 1},
]


def options_in(hint: Any) -> Iterator[type]:
    """The option dataclasses that a type may be."""
    if isinstance(hint, type) and issubclass(hint, Variant):
        yield from [hint] if hint.kind else hint.kinds().values()
    elif isinstance(hint, type) and dataclasses.is_dataclass(hint):
        yield hint
    else:
        for part in typing.get_args(hint):
            yield from options_in(part)


def fields_of(cls: type, path: str, around: Make) -> Iterator[tuple[str, Make]]:
    """Every field of options, also of those that one may hold: where it stands, and a section with a value there."""
    hints = typing.get_type_hints(cls)
    for name in (field.name for field in dataclasses.fields(cls) if field.init):
        hint = hints[name]
        yield f"{path}.{name}", lambda value, name=name: around({name: value})
        for inner in options_in(hint):
            listed = tuple in (typing.get_origin(hint), *map(typing.get_origin, typing.get_args(hint)))

            def within(given: dict[str, Any], name: str = name, inner: type = inner, listed: bool = listed) -> Any:
                lacks = [field for field in dataclasses.fields(inner) if field.name in NEEDED and _is_needed(field)]
                kind = {"kind": inner.kind} if issubclass(inner, Variant) else {}
                whole = {**kind, **{field.name: NEEDED[field.name] for field in lacks}, **given}
                return around({name: [whole] if listed else whole})

            yield from fields_of(inner, f"{path}.{name}[{getattr(inner, 'kind', '')}]", within)


def _is_needed(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def read(section: str, given: dict[str, Any]) -> Any:
    """A section with it, or what is said against it."""
    try:
        return from_data(SECTIONS[section], given, (section,))
    except ConfigError as error:
        return error


@pytest.mark.parametrize("section", SECTIONS)
def test_a_value_is_taken_or_an_error_names_key_value_and_remedy(section: str) -> None:
    count, taken = 0, 0
    for path, make in fields_of(SECTIONS[section], section, lambda given: given):
        key = path.rpartition(".")[2]
        for odd in ODD:
            found, count = read(section, make(odd)), count + 1
            if isinstance(found, ConfigError):
                said = str(found)
                assert key in said and found.remedy, (path, odd, said)
                assert found.value is not None or "has no key" in said or "needs the key" in said, (path, odd, said)
            else:
                taken += 1
                assert read(section, to_data(found)) == found, (path, odd)
    assert 0 < taken < count // 2


@pytest.mark.parametrize(
    ("section", "key", "value", "said"),
    [
        (
            "train",
            "clip",
            "odd",
            r"train.clip must be a number \(got 'odd'\). Leave train.clip out for its default, 1.0",
        ),
        ("train", "max_steps", None, r"a whole number \(got 'null'\). Leave train.max_steps out for its default, 1000"),
        ("train", "schedule", 3, r"train.schedule must be the name of a kind.*got 3.*default, cosine"),
        ("train", "optimizer", {"kind": "lion", "betas": [1]}, r"train.optimizer.betas.*default, \[0.9, 0.99\]"),
        ("train", "groups", [{"rate": 2}], r"needs the key 'match'"),
        (
            "train",
            "groups",
            [{"match": []}],
            r"train.groups.0.match.*got \[\].*Write another; train.groups.0.match has no default",
        ),
        ("train", "threads", 10**30, r"threads must be at most 1024 \(got 10{30}\)"),
        ("parallel", "heartbeat", math.inf, r"heartbeat must be above 0 \(got inf\).*default, 20.0"),
        ("logging", "tensorboard", "no", r"logging.tensorboard must be true or false \(got 'no'\).*default, true"),
    ],
)
def test_what_is_said(section: str, key: str, value: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        from_data(SECTIONS[section], {key: value}, (section,))
