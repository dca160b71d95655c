"""Recipes of a size that trains in a blink."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transpect.train import Recipe, parse_recipe

LINES = ["the cat eats fish", "a dog runs home", "birds sing at dawn", "the fish swims", "rain falls on hills"]
PAIRS = ["cat\tmao", "dog\tgou", "big fish\tda yu", "bird\tniao", "rain falls\txia yu", "hill\tshan"]

MODELS: dict[str, dict[str, Any]] = {
    "causal": {"preset": "gpt2"},
    "masked": {"preset": "bert-base"},
    "seq2seq": {"preset": "transformer-base", "d_ff": 32},
}
SMALL = {"d_model": 16, "n_layers": 1, "n_heads": 2, "context_length": 24, "dropout": 0.1, "attention.dropout": 0.1}


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file for each objective."""
    folder = tmp_path_factory.mktemp("corpora")
    text, pairs = folder / "lines.txt", folder / "pairs.tsv"
    text.write_text("\n".join(LINES * 3) + "\n", encoding="utf-8")
    pairs.write_text("\n".join(PAIRS * 2) + "\n", encoding="utf-8")
    return {"causal": text, "masked": text, "seq2seq": pairs}


@pytest.fixture(scope="session")
def plain(corpora: dict[str, Path]) -> Callable[..., dict[str, Any]]:
    """A recipe as plain data: ``plain("causal")``."""

    def make(objective: str = "causal") -> dict[str, Any]:
        kind = "tsv" if objective == "seq2seq" else "text"
        return {
            "model": {**MODELS[objective], **SMALL},
            "tokenizer": {"kind": "char", "special_tokens": {"mask": "<mask>"}},
            "data": {"train": {"kind": kind, "path": str(corpora[objective])}, "valid": 0.2, "objective": objective},
            "train": {
                "max_steps": 7,
                "batch_size": 3,
                "accumulate": 2,
                "optimizer": {"kind": "adamw", "lr": 1e-2},
                "schedule": {"kind": "cosine", "warmup": 2},
                "eval_every": 3,
                "save_every": 2,
                "log_every": 1,
                "threads": 1,
            },
            "logging": {"tensorboard": False, "progress": "none"},
        }

    return make


@pytest.fixture(scope="session")
def recipe_of(plain: Callable[..., dict[str, Any]]) -> Callable[..., Recipe]:
    """A recipe with dotted changes: ``recipe_of("causal", {"train.max_steps": 3})``."""

    def make(objective: str = "causal", changes: dict[str, Any] | None = None) -> Recipe:
        return parse_recipe(plain(objective), (changes or {}).items())

    return make


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fsync gives, safety from a power cut, no test here can see; the time that it takes they can."""
    monkeypatch.setattr("os.fsync", lambda _handle: None)
