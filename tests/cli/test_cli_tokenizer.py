"""`transpect tokenizer`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "chat_template.jinja", "vocab.txt", "notes.md"])
def test_a_new_tokenizer_takes_the_place_of_nothing_but_a_tokenizer(cli: Any, tmp_path: Path, file: str) -> None:
    words = ("tokenizer", "train", str(tmp_path / "good.txt"), "--kind", "char", "--out", str(tmp_path / "made"))
    (tmp_path / "good.txt").write_text("小猫爱吃鱼。\n", encoding="utf-8")
    assert cli(*words).code == 0
    assert cli(*words).code == 0
    (tmp_path / "made" / file).write_text("mine", encoding="utf-8")
    (tmp_path / "made" / "tokenizer.json").write_text("mine", encoding="utf-8")
    answer = cli(*words)
    assert answer.code == 2 and file in answer.err and "Name another directory" in answer.err
    assert (tmp_path / "made" / "tokenizer.json").read_text(encoding="utf-8") == "mine"
