"""Run the command line in this process and see what a person would see."""

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from transpect.cli.main import main

TEXTS = ["小猫爱吃鱼。", "小狗爱吃肉。", "今天下雨，小鸟不来。", "老人在河边卖鱼。"] * 4
CONTEXT = 24


@dataclass(frozen=True)
class Answer:
    """What a command left."""

    code: int
    out: str
    err: str


Cli = Callable[..., Answer]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """``cli("model", "list")`` runs ``transpect model list``; ``stdin`` is what is piped in."""
    monkeypatch.setenv("COLUMNS", "100")

    def run(*words: object, stdin: str = "") -> Answer:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        capsys.readouterr()
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return Answer(code, out, err)

    return run


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an untrained decoder of one layer, a context of 24 and a character tokenizer."""
    from transpect.core import Transformer, override, preset
    from transpect.lm import LanguageModel
    from transpect.text import train_tokenizer

    tokenizer = train_tokenizer("char", TEXTS)
    sizes = {"d_model": 32, "n_heads": 4, "n_layers": 2, "d_ff": 64, "context_length": CONTEXT}
    config = override(preset("gpt2"), [*sizes.items(), ("vocab_size", tokenizer.vocab_size)])
    folder = tmp_path_factory.mktemp("tiny") / "model"
    LanguageModel(Transformer(config, seed=3), tokenizer, {"eos_token_id": tokenizer.eos_id}).save(folder)
    return folder
