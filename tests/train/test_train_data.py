"""Every way to read data: 20 updates are the same as 8, a stop and 12, bit for bit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transpect.data.sources import Text
from transpect.data.tokens import prepare
from transpect.text import train_tokenizer
from transpect.train import Recipe, train

WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "tokens": ("causal", {"data.train": "TOKENS", "tokenizer": "ITS"}),
    "tokens, masked": ("masked", {"data.train": "TOKENS", "tokenizer": "ITS", "data.objective.whole_word": False}),
    "mixture": ("causal", {"data.train": "MIXTURE"}),
    "mixture of tokens": ("causal", {"data.train": "MIXED", "tokenizer": "ITS", "data.valid": None}),
    "without duplicates": ("causal", {"data.train": "DISTINCT"}),
    "best fit": ("causal", {"data.objective.fit": "best", "data.workers": 1}),
    "buckets": ("causal", {"data.objective.pack": False, "data.bucket": 6}),
    "two workers": ("masked", {"data.workers": 2}),
}


@pytest.fixture
def way(
    request: pytest.FixtureRequest, recipe_of: Callable[..., Recipe], corpora: dict[str, Path], tmp_path: Path
) -> Recipe:
    """A recipe of 20 updates that reads in one of the ways, in epochs of 3 or so."""
    objective, changes = WAYS[request.param]
    text = {"kind": "text", "path": str(corpora["causal"])}
    if "tokenizer" in changes:
        source = Text(str(corpora["causal"]))
        prepare(source, train_tokenizer("char", source.texts(), special_tokens={"mask": "<mask>"}), tmp_path / "tokens")
    tokens = {"kind": "tokens", "path": str(tmp_path / "tokens")}
    fable = {"kind": "fable", "lang": "en"}
    named = {
        "TOKENS": tokens,
        "ITS": None,
        "MIXTURE": {"kind": "mixture", "parts": [{"source": text, "weight": 3}, {"source": text, "epochs": 5}]},
        "MIXED": {"kind": "mixture", "parts": [{"source": tokens, "weight": 3}, {"source": fable}]},
        "DISTINCT": {"kind": "deduplicated", "source": text, "near": 0.9},
    }
    made = {key: named.get(value, value) if isinstance(value, str) else value for key, value in changes.items()}
    if "tokenizer" in made:
        del made["tokenizer"]
        made |= {"tokenizer.path": str(tmp_path / "tokens" / "tokenizer"), "tokenizer.kind": None}
        made |= {"tokenizer.special_tokens": {}}
    return recipe_of(objective, {**made, "train.max_steps": 20})


FAST = ("mixture of tokens",)


@pytest.mark.parametrize(
    "way", [way if way in FAST else pytest.param(way, marks=pytest.mark.slow) for way in WAYS], indirect=True
)
def test_a_run_that_stops_goes_on_bit_for_bit(
    way: Recipe, stop_at: Callable[..., None], assert_same: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    train(way, tmp_path / "straight")
    stop_at(way, tmp_path / "stopped", 8)
    train(way, tmp_path / "stopped", resume="auto")
    assert_same(tmp_path / "straight", tmp_path / "stopped")


def test_what_was_read_of_a_mixture_is_told(
    recipe_of: Callable[..., Recipe], corpora: dict[str, Path], told: Any, tmp_path: Path
) -> None:
    source = {"kind": "text", "path": str(corpora["causal"])}
    parts = {"kind": "mixture", "parts": [{"source": source}, {"source": source, "weight": 2}]}
    train(recipe_of("causal", {"data.train": parts, "data.workers": 1}), tmp_path / "run", loggers=[told])
    assert "Read of the mixture: " in told.all("note")[-2]
