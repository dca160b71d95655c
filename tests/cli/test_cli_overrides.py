"""Dotted options are told from a command's own, wherever they stand and however they are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transpect.base.errors import ConfigError
from transpect.cli.command import split_overrides

OWN = {"--out", "--data"}
WORDS = st.sampled_from(["recipe.yaml", "-", "-v", "x=1", "--out", "--data", "--out=a.b", "12"])
VALUES = st.sampled_from(["64", "-1", "-1e-3", "[1, 2]", "", "a=b", "null"])
KEYS = st.sampled_from(["model.d_model", "train.optimizer.lr", "data.train.path"])


@given(st.lists(st.one_of(WORDS, st.tuples(KEYS, VALUES, st.booleans())), max_size=8))
def test_each_word_goes_to_its_side_in_order(line) -> None:
    words: list[str] = []
    for item in line:
        if isinstance(item, str):
            words.append(item)
        else:
            key, value, joined = item
            words += [f"--{key}={value}"] if joined else [f"--{key}", value]
    rest, overrides = split_overrides(words, OWN)
    assert rest == [item for item in line if isinstance(item, str)]
    assert overrides == [item[:2] for item in line if not isinstance(item, str)]


@pytest.mark.parametrize("words", [["--a.b"], ["--a.b", "--c.d", "1"], ["--a.b", "--out", "x"]])
def test_a_key_without_a_value_is_an_error_that_says_how_to_write_it(words: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"--a\.b needs a value.*--a\.b=VALUE"):
        split_overrides(words, OWN)


def test_a_negative_number_is_a_value_and_what_follows_two_dashes_is_left_alone() -> None:
    words = ["--a.b", "-1", "--", "--c.d", "2"]
    assert split_overrides(words, OWN) == (["--", "--c.d", "2"], [("a.b", "-1")])


def test_bare_keys_are_taken_only_where_asked() -> None:
    words = ["--n_layers", "2", "--out", "x"]
    assert split_overrides(words, OWN) == (words, [])
    assert split_overrides(words, OWN, bare_keys=True) == (["--out", "x"], [("n_layers", "2")])
