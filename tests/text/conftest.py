"""Texts and tokenizers for the tests of transpect.text: small, and of every kind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from transpect.text import Tokenizer, train_tokenizer

CORPORA = {
    "chinese": "小猫爱吃鱼。大狗爱吃肉。\n小鸟在树上唱歌，小鱼在水里游。今天天气很好，我们去市场买米。",
    "english": "The cat likes fish. The dog doesn't like the cat, it's said.\nBirds sing in the trees; fish swim.",
    "mixed": "小猫 cat 爱吃 fish！Version 2.0 于 2024 年 5 月发布，价格 $3.50（about 25 元）。",
    "emoji": "👩‍👩‍👧 says 👋🏽 to 🇨🇳 and ❤️‍🔥, 🙂🙃!",
    "spaces": "a  b   c\t\td \n\n\n  e    \n    indented\r\nline  ",
    "combining": "e\u0301 n\u0303 cafe\u0301 नमस्ते किताब ก็ Å Å",
    "hangul": "안녕하세요 깰 한글 테스트 \u1100\u1161\u11a8",
}
EVERYTHING = [text for text in CORPORA.values() for _ in range(3)]

KIND_OPTIONS = {
    "char": {},
    "char+bytes": {"byte_fallback": True},
    "bpe": {"byte_fallback": False},
    "bpe+bytes": {"byte_fallback": True},
    "byte-bpe": {},
    "byte-bpe-no-regex": {"use_regex": False},
    "wordpiece": {},
    "wordpiece-cased": {"lowercase": False},
    "unigram": {},
    "unigram+bytes": {"byte_fallback": True},
    "unigram-no-prefix": {"dummy_prefix": False},
}
TAGS = {name: name.split("+")[0].removesuffix("-no-regex").removesuffix("-cased") for name in KIND_OPTIONS} | {
    "unigram-no-prefix": "unigram"
}


@pytest.fixture(scope="session")
def corpora() -> dict[str, str]:
    return CORPORA


@pytest.fixture(scope="session")
def everything() -> list[str]:
    return EVERYTHING


@pytest.fixture(scope="session")
def trained() -> dict[str, Tokenizer]:
    """A tokenizer of each kind, with and without the options that change how it decodes, trained on all corpora."""
    return {
        name: train_tokenizer(TAGS[name], EVERYTHING, 700, **options)  # type: ignore[arg-type]
        for name, options in KIND_OPTIONS.items()
    }


@pytest.fixture(params=list(KIND_OPTIONS))
def tokenizer(request: pytest.FixtureRequest, trained: dict[str, Tokenizer]) -> Tokenizer:
    return trained[request.param]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The shared data, or a skip."""
    folder = Path(os.environ.get("TRANSPECT_SHARED", Path(__file__).parents[2].parent / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip("no shared data: set TRANSPECT_SHARED")
    return folder
