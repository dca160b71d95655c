"""Real text: Tang poems, English prose, user-interface strings in two languages."""

from __future__ import annotations

from pathlib import Path

import pytest

from transpect.text import KINDS, StreamDecoder, train_tokenizer

FILES = ("tang_quatrains.txt", "alice29.txt", "ui_en_zh.train.tsv")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "wordpiece"])
def test_text_comes_back_and_gets_shorter(kind: str, file: str, shared: Path) -> None:
    lines = (shared / "data" / file).read_text(encoding="utf-8").splitlines(keepends=True)[:1500]
    size = None if kind == "char" else 4096
    tokenizer = train_tokenizer(kind, lines, size)
    text = "".join(lines[:200])
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert len(ids) == len(text) if kind == "char" else len(ids) < len(text)
    stream = StreamDecoder(tokenizer)
    assert "".join(map(stream.push, ids)) + stream.flush() == text


def test_bpe_of_4096_tokens_spells_every_tang_poem(shared: Path) -> None:
    text = (shared / "data" / "tang_quatrains.txt").read_text(encoding="utf-8")
    tokenizer = train_tokenizer("bpe", text.splitlines(keepends=True), 4096)
    ids = tokenizer.encode(text)
    assert tokenizer.vocab_size == 4096
    assert tokenizer.decode(ids) == text
    assert tokenizer.unk_id not in ids
