"""Tokenizers for the tests of transpect.data: a token a letter, with the special tokens that each test needs."""

from collections.abc import Callable

import pytest
from hypothesis import settings

from transpect.text import Tokenizer, train_tokenizer

settings.register_profile("no deadline", deadline=None)  # nothing here depends on the speed of a machine
settings.load_profile("no deadline")

ALPHABET = "abcdefghijklmnopqrstuvwxyz 天地玄黄宇宙洪荒"

MakeTokenizer = Callable[..., Tokenizer]


@pytest.fixture(scope="session")
def letters() -> MakeTokenizer:
    """``letters(bos=None, mask="<mask>")``: special tokens as told; pad, unk, bos and eos where nothing is said."""
    made: dict[tuple[tuple[str, str | None], ...], Tokenizer] = {}

    def make(**special_tokens: str | None) -> Tokenizer:
        key = tuple(sorted(special_tokens.items()))
        if key not in made:
            made[key] = train_tokenizer("char", [ALPHABET], special_tokens=special_tokens)
        return made[key]

    return make
