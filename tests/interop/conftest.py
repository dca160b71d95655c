"""Small models, one of each family and a few of none."""

from collections.abc import Callable
from typing import Any

import pytest

from transpect.core import ModelConfig, override, preset

SMALL: dict[str, dict[str, Any]] = {
    "transformer-base": {"d_ff": 60},
    "gpt1": {},
    "gpt2": {},
    "bert-base": {},
    "t5-small": {"head_dim": 10, "d_ff": 60},
    "bart-base": {},
    "llama": {"n_kv_heads": 1, "d_ff": 60},
    "prefix-lm": {"head_dim": 10, "d_ff": 60},
}


def small(name: str, **changes: Any) -> ModelConfig:
    """A preset made small: vocabulary 97, width 48, two layers of three heads."""
    sizes = {"vocab_size": 97, "d_model": 48, "context_length": 64, "n_layers": 2, "n_heads": 3}
    return override(preset(name), [*{**sizes, **SMALL[name]}.items(), *changes.items()])


@pytest.fixture(name="small", scope="session")
def _small() -> Callable[..., ModelConfig]:
    return small
