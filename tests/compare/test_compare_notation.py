"""What --vary says is read back as it was meant, and slips are told."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from transpect.base.errors import ConfigError
from transpect.compare.notation import Choice, parse_vary, split_values

SCALARS = st.sampled_from([1, 2.5, True, None, "rope", "t5", "a, b", "x=y", "[", "}"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=5,
)


def flow(value: object) -> str:
    """One line of YAML; strings are quoted, as a person would quote those with commas."""
    style = '"' if isinstance(value, str) else None
    text = yaml.dump(value, default_flow_style=True, width=10_000, default_style=style, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


@given(st.lists(VALUES, min_size=1, max_size=4))
def test_values_with_names_come_back_in_order(values: list[object]) -> None:
    text = "model.positions=" + ",".join(f"v{i}={flow(value)}" for i, value in enumerate(values))
    assert parse_vary(text) == (
        "model.positions",
        tuple(Choice(f"v{i}", value) for i, value in enumerate(values)),
    )


@given(st.lists(VALUES, min_size=1, max_size=4))
def test_a_list_is_parted_at_its_own_commas_alone(values: list[object]) -> None:
    parts = [flow(value) for value in values]
    assert split_values(",".join(parts)) == parts


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ("rope,alibi, t5", [("rope", "rope"), ("alibi", "alibi"), ("t5", "t5")]),
        ("1,1e-3", [("1", 1), ("1e-3", "1e-3")]),
        ("rope{theta: 5e5},rope", [("rope{theta: 5e5}", {"kind": "rope", "theta": "5e5"}), ("rope", "rope")]),
        (
            "yarn=rope{scaling: {kind: yarn, factor: 8, original_length: 64}}",
            [
                (
                    "yarn",
                    {"kind": "rope", "scaling": {"kind": "yarn", "factor": 8, "original_length": 64}},
                )
            ],
        ),
        ("far={kind: rope, theta: 1e6}", [("far", {"kind": "rope", "theta": "1e6"})]),
        ("none=null,all=[1, 2]", [("none", None), ("all", [1, 2])]),
        ("t5{}", [("t5{}", {"kind": "t5"})]),
    ],
)
def test_examples(text: str, choices: list[tuple[str, object]]) -> None:
    assert parse_vary(f"a.b={text}") == ("a.b", tuple(Choice(*choice) for choice in choices))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("model.positions", "needs a dotted key and its values"),
        ("=rope", "needs a dotted key"),
        ("a.b=", "needs a dotted key"),
        ("a.b=rope,,alibi", "must not be empty"),
        ("a.b=x=", "must not be empty"),
        ("a.b=rope{theta: 1", "'}' is missing"),
        ("a.b=rope]", "']' closes nothing"),
        ("a.b=[1, 2}", "'}' closes nothing"),
        ("a.b='rope", '"\'" is missing'),
        ("a.b=rope,rope", "name of its own.*'rope'"),
        ("a.b={a: b: c}", "not valid YAML"),
    ],
)
def test_a_slip_is_told(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_vary(text)
