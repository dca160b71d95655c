"""Sizes that no model has are refused before anything is built of them, and so is what allowed ones make together."""

from typing import Any

import pytest

from transpect.base.errors import ConfigError
from transpect.core import Moe, QkNorm, RMSNorm, override, preset

TOGETHER: dict[str, list[tuple[str, Any]]] = {
    "table": [("vocab_size", 2**30), ("d_model", 12 * 2**16)],
    "positions": [("context_length", 2**31 - 1), ("d_model", 12 * 2**16)],
    "feed-forward": [("d_ff", 2**31 - 1), ("d_model", 12 * 2**16)],
    "attention": [("n_heads", 10_000), ("head_dim", 2**31 - 1)],
    "experts": [("n_layers", 1000), ("ffn", Moe(1000))],
    "norms": [("n_layers", 1000), ("n_heads", 768), ("attention.qk_norm", QkNorm(RMSNorm(), over="each_head"))],
}


@pytest.mark.parametrize("name", ["n_layers", "n_heads", "vocab_size", "d_model", "context_length", "head_dim", "d_ff"])
@pytest.mark.parametrize("value", [2**31, 2**63, 10**30])
def test_one_size(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=rf"{name} must be at most .*got {value}"):
        override(preset("gpt2"), [(name, value)])


@pytest.mark.parametrize("case", TOGETHER)
def test_sizes_together(case: str) -> None:
    with pytest.raises(ConfigError, match="must be at most"):
        override(preset("gpt2"), TOGETHER[case])


def test_a_number_of_hundreds_of_digits_is_no_float() -> None:
    with pytest.raises(ConfigError, match="must be a number"):
        override(preset("gpt2"), [("norm.eps", 10**400)])
