"""Tokenizers for the tests of transpect.data: a token a letter, with the special tokens that each test needs."""

from collections.abc import Callable

import pytest
from hypothesis import settings

from transpect.data.objectives import Span
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
            made[key] = train_tokenizer(
                "char", [ALPHABET], special_tokens=special_tokens, extra_special_tokens=Span().special_tokens(128)
            )
        return made[key]

    return make


SIZES = {"char": None, "bpe": 100, "byte-bpe": 300, "wordpiece": 90, "unigram": 70}


@pytest.fixture(scope="session", params=SIZES)
def vocabulary(request: pytest.FixtureRequest) -> Tokenizer:
    """A tokenizer of each kind, with mask and sentinels, whose tokens have several letters where the kind has such."""
    texts = [
        ALPHABET,
        "the cat eats the fish. a dog runs home! 天地玄黄。宇宙洪荒！",
        "the dog eats. the cat runs 天地",
    ]
    return train_tokenizer(
        request.param,
        texts * 20,
        SIZES[request.param],
        special_tokens={"mask": "<mask>", "eos": "</s>", "pad": "<pad>"},
        extra_special_tokens=Span(0.4, 1).special_tokens(48),
    )
