"""The codec: strict decoding, variants, unions, overrides, and messages that point to file and line."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from transpect.base.codec import Variant, apply_overrides, dump_yaml, from_data, load_config, to_data
from transpect.base.errors import ConfigError, TranspectError


class Shape(Variant):
    """A union."""


@dataclass(frozen=True)
class Dot(Shape, kind="dot"):
    """No options."""


@dataclass(frozen=True)
class Disc(Shape, kind="disc"):
    """One required option."""

    radius: float

    def __post_init__(self) -> None:
        if self.radius < 0:
            raise ConfigError("radius must not be negative", value=self.radius)


@dataclass(frozen=True)
class Group(Shape, kind="group"):
    """Nests."""

    members: tuple[Shape, ...] = ()


@dataclass(frozen=True)
class Sheet:
    """All sorts of fields."""

    name: str
    size: int = 1
    scale: float = 1.0
    fine: bool = False
    colour: Literal["red", "blue"] = "red"
    shape: Shape = field(default_factory=Dot)
    maybe: Shape | None = None
    table: dict[str, int] = field(default_factory=dict)
    pair: tuple[int, str] = (1, "a")
    path: Path | None = None


shapes = st.recursive(
    st.just(Dot()) | st.builds(Disc, st.floats(0, 1e9)),
    lambda inner: st.builds(Group, st.lists(inner, max_size=3).map(tuple)),
    max_leaves=6,
)
sheets = st.builds(
    Sheet,
    st.text(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.sampled_from(["red", "blue"]),
    shapes,
    st.none() | shapes,
    st.dictionaries(st.text(min_size=1), st.integers(), max_size=3),
    st.tuples(st.integers(), st.text()),
    st.none() | st.just(Path("a/b")),
)


@given(sheets)
def test_round_trip(sheet: Sheet) -> None:
    assert from_data(Sheet, to_data(sheet)) == sheet


@given(sheets)
@example(Sheet("\x85", pair=(0, "a\u2028b\u2029\ufeff\r\n\t ")))
def test_round_trip_through_yaml(sheet: Sheet) -> None:
    import yaml

    assert from_data(Sheet, yaml.safe_load(dump_yaml(sheet))) == sheet


def test_a_bare_word_is_a_kind_with_its_defaults() -> None:
    assert from_data(Shape, "dot") == Dot()
    assert from_data(Shape, {"kind": "disc", "radius": 2}) == Disc(2.0)
    assert from_data(Disc, {"radius": 2}) == Disc(2.0)


@pytest.mark.parametrize(
    ("data", "path", "message"),
    [
        ({"name": "x", "sze": 1}, "sze", "Did you mean 'size'"),
        ({}, "", "needs the key 'name'"),
        ({"name": "x", "size": 1.5}, "size", "whole number"),
        ({"name": "x", "size": True}, "size", "whole number"),
        ({"name": "x", "scale": "wide"}, "scale", "must be a number"),
        ({"name": "x", "scale": False}, "scale", "must be a number"),
        ({"name": "x", "scale": float("nan")}, "scale", "must be a number"),
        ({"name": datetime.date(2024, 1, 1)}, "name", "of type str"),
        ({"name": "x", "fine": "yes"}, "fine", "true or false"),
        ({"name": "x", "colour": "green"}, "colour", "'red', 'blue'"),
        ({"name": "x", "shape": "disk"}, "shape.kind", "Did you mean 'disc'"),
        ({"name": "x", "shape": {"kind": "disc"}}, "shape", "needs the key 'radius'"),
        ({"name": "x", "shape": {"kind": "disc", "radius": -1}}, "shape", "not be negative"),
        ({"name": "x", "shape": {"kind": "dot", "radius": 1}}, "shape.radius", "has no key 'radius'"),
        ({"name": "x", "shape": 3}, "shape", "name of a kind"),
        ({"name": "x", "shape": {"disc": 2}}, "shape", "needs the key 'kind' .*'disc'.* one of dot, disc, group"),
        ({"name": "x", "shape": {}}, "shape", "needs the key 'kind' .*no keys"),
        ({"name": "x", "maybe": {"kind": "group", "members": ["dot", "dott"]}}, "maybe.members.1.kind", "dot"),
        ({"name": "x", "pair": [1]}, "pair", "2 items"),
        ({"name": "x", "pair": 1}, "pair", "a list"),
        ({"name": "x", "table": {"a": "b"}}, "table.a", "whole number"),
        ({"name": ["x"]}, "name", "of type str"),
        ("nothing", "", "a mapping"),
    ],
)
def test_errors_name_the_path(data: Any, path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        from_data(Sheet, data)
    assert ".".join(caught.value.path) == path


def test_errors_name_the_line(tmp_path: Path) -> None:
    file = tmp_path / "sheet.yaml"
    file.write_text("name: x\n\nshape:\n  kind: group\n  members:\n  - dot\n  - kind: disc\n    radius: wide\n")
    with pytest.raises(ConfigError) as caught:
        load_config(Sheet, file)
    expected = f"{file}:8: shape.members.1.radius must be a number (got 'wide')"
    assert str(caught.value) == f"{expected}. Write another; shape.members.1.radius has no default."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not valid YAML"),
        ("- 1", "must be a mapping"),
        ("\tname: x", "not valid YAML"),
        ("", "must be a mapping"),
    ],
)
def test_files_that_are_no_configuration(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_config(Sheet, file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: x\nsize: 1\nsize: 2\n", r":3: the key size stands twice\. See line 2"),
        ("name: x\nshape:\n  kind: disc\n  radius: 1\n  radius: 2\n", ":5: the key shape.radius stands twice"),
        ("name: &a [*a]\n", "may not contain itself"),
        ("name: x\nsize: 2020-13-45\n", "not valid YAML"),
        ("name: x\nshape: {kind: [dot]}\n", r":2: shape\.kind must be one of"),
    ],
)
def test_files_that_say_too_much(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "sheet.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(Sheet, file)
    assert re.search(message, str(caught.value)), str(caught.value)


def test_missing_and_undecodable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_config(Sheet, tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_config(Sheet, tmp_path / "latin.yaml")


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([("size", "64")], {"size": 64}),
        ([("scale", "1e-3")], {"scale": 1e-3}),
        ([("shape", "{kind: disc, radius: 2}")], {"shape": Disc(2.0)}),
        ([("shape", "disc"), ("shape.radius", "3")], {"shape": Disc(3.0)}),
        ([("maybe", "null")], {"maybe": None}),
        ([("table.a", "1"), ("table.b", "2")], {"table": {"a": 1, "b": 2}}),
        ([("name", "'64'")], {"name": "64"}),
        ([("name", "64")], {"name": "64"}),
    ],
)
def test_overrides(overrides: list[tuple[str, str]], expected: dict[str, Any]) -> None:
    data = {"name": "x", "maybe": "dot"}
    before = to_data(data)
    sheet = from_data(Sheet, apply_overrides(data, overrides))
    assert data == before
    for key, value in expected.items():
        assert getattr(sheet, key) == value


def test_values_that_only_yaml_knows_reach_the_check() -> None:
    with pytest.raises(ConfigError, match="name must be of type str"):
        from_data(Sheet, apply_overrides({"name": datetime.date(2024, 1, 1)}, [("size", 1)]))


def test_an_override_below_a_scalar_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"size holds a single value"):
        apply_overrides({"size": 3}, [("size.x", "1")])
    with pytest.raises(ConfigError, match="not valid YAML"):
        apply_overrides({}, [("size", "[")])
    with pytest.raises(ConfigError, match="not valid YAML"):
        apply_overrides({}, [("size", "2020-13-45")])


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TranspectError("a rule"), "a rule"),
        (TranspectError("a rule", value=3), "a rule (got 3)"),
        (TranspectError("a rule", value="x" * 500, remedy="Do it."), f"a rule (got '{'x' * 118}…). Do it."),
        (TranspectError("a rule", file="f.txt", line=7), "f.txt:7: a rule"),
        (TranspectError("a rule", file="f.txt"), "f.txt: a rule"),
    ],
)
def test_error_messages(error: TranspectError, text: str) -> None:
    assert str(error) == text
