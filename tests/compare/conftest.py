"""Comparisons of a size that trains in a blink."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SENTENCE = "the cat eats fish and a dog runs home while birds sing at dawn over the hills where rain falls"
PART = 8
"""The training length."""

Plain = Callable[..., dict[str, Any]]


def prose(seed: int, words: int) -> str:
    """Some words in an order that never repeats for long."""
    known = SENTENCE.split()
    return " ".join(known[(i * i + seed * i + i // 7) % len(known)] for i in range(words)) + "\n"


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(train, valid): a document a file."""
    folder = tmp_path_factory.mktemp("texts")
    train, valid = folder / "train.txt", folder / "valid.txt"
    train.write_text(prose(1, 300), encoding="utf-8")
    valid.write_text(prose(2, 120), encoding="utf-8")
    return train, valid


@pytest.fixture(scope="session")
def plain(texts: tuple[Path, Path]) -> Plain:
    """A recipe with a comparison, as plain data; ``objective`` is causal or masked."""

    def make(objective: str = "causal", **compare: Any) -> dict[str, Any]:
        train, valid = texts
        masked = objective == "masked"
        return {
            "model": {
                "preset": "bert-base" if masked else "gpt2",
                "d_model": 16,
                "n_layers": 1,
                "n_heads": 2,
                "context_length": 4 * PART,
            },
            "tokenizer": {"kind": "char", **({"special_tokens": {"mask": "<mask>"}} if masked else {})},
            "data": {
                "train": {"kind": "text", "path": str(train), "by": "file"},
                "valid": {"kind": "text", "path": str(valid), "by": "file"},
                "objective": {"kind": objective, "pack": False},
                "seq_len": PART,
            },
            "train": {"max_steps": 3, "batch_size": 4, "threads": 1, "save_every": 1},
            "logging": {"tensorboard": False},
            "compare": {"lengths": [1, 2, 4], "seeds": 2, **compare},
        }

    return make
