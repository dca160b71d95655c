"""A pattern names parts of a dotted name in their order."""

import pytest

from transpect.base.patterns import fits, nearest

NAME = "towers.decoder.stack.layers.2.steps.self.branches.self.body.query.weight"
EXPERT = "towers.decoder.stack.layers.0.steps.ffn.branches.ffn.body.experts.2.up.weight"


@pytest.mark.parametrize(
    ("pattern", "fitting"),
    [
        ("layers.0-3.*", True),
        ("layers.2", True),
        ("layers.2.query", True),
        ("layers.0-1", False),
        ("layers.3-9.query", False),
        ("query", True),
        ("que", False),
        ("q*", True),
        ("self.body", True),
        ("body.self", False),
        ("decoder.layers", True),
        ("encoder.query", False),
        ("*", True),
        ("query.weight.*", False),
        (NAME, True),
        (f"x.{NAME}", False),
    ],
)
def test_a_pattern_names_parts_in_their_order(pattern: str, fitting: bool) -> None:
    assert fits(pattern, NAME) == fitting


def test_a_number_follows_what_it_numbers() -> None:
    assert fits("layers.0.experts.2", EXPERT)
    assert fits("experts.1-2.up", EXPERT)
    assert not fits("layers.2", EXPERT)
    assert not fits("layers.0.2", EXPERT)


def test_suggestions_are_of_the_parts() -> None:
    assert "'query'" in nearest("layers.2.queri", [NAME])
    assert NAME in nearest("nothing.like.it", [NAME])
