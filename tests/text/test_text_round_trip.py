"""decode(encode(text)) == text, over kinds and texts."""

from __future__ import annotations

import unicodedata

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from transpect.text import Tokenizer, train_tokenizer

LOSSLESS_IF_SEEN = ("char", "bpe", "unigram", "unigram-no-prefix")
LOSSLESS = ("char+bytes", "bpe+bytes", "byte-bpe", "byte-bpe-no-regex", "unigram+bytes")


@pytest.mark.parametrize("corpus", ["chinese", "english", "mixed", "emoji", "spaces", "combining", "hangul"])
@pytest.mark.parametrize("name", [*LOSSLESS_IF_SEEN, *LOSSLESS])
def test_texts_come_back(name: str, corpus: str, trained: dict[str, Tokenizer], corpora: dict[str, str]) -> None:
    text = corpora[corpus]
    tokenizer = trained[name]
    # Each part too: a text may begin and end anywhere, with spaces or a combining mark.
    for start in range(0, len(text), 3):
        for end in (start + 1, start + 4, len(text)):
            assert tokenizer.decode(tokenizer.encode(text[start:end])) == text[start:end]
    assert tokenizer.unk_id not in tokenizer.encode(text)


@pytest.mark.parametrize("name", LOSSLESS)
def test_any_text_comes_back(name: str, trained: dict[str, Tokenizer]) -> None:
    tokenizer = trained[name]
    # A unigram vocabulary spells spaces with this character.
    alphabet = st.characters(exclude_categories=["Cs"], exclude_characters="▁" if name == "unigram+bytes" else "")

    @given(st.text(alphabet))
    @settings(max_examples=200, deadline=None)
    def check(text: str) -> None:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert all(0 <= i < tokenizer.vocab_size for i in ids)

    check()


@pytest.mark.parametrize("name", LOSSLESS_IF_SEEN)
def test_any_order_of_seen_characters_comes_back(
    name: str, trained: dict[str, Tokenizer], everything: list[str]
) -> None:
    tokenizer = trained[name]

    @given(st.text(st.sampled_from(sorted(set("".join(everything))))))
    @settings(max_examples=200, deadline=None)
    def check(text: str) -> None:
        assert tokenizer.decode(tokenizer.encode(text)) == text

    check()


def test_char_is_one_token_a_character(trained: dict[str, Tokenizer], corpora: dict[str, str]) -> None:
    for text in corpora.values():
        assert trained["char"].tokens(trained["char"].encode(text)) == list(text)


def test_unseen_characters_are_unk_one_each(trained: dict[str, Tokenizer]) -> None:
    tokenizer = trained["char"]
    assert tokenizer.encode("猫龘龘a") == [
        tokenizer.token_to_id("猫"),
        tokenizer.unk_id,
        tokenizer.unk_id,
        tokenizer.token_to_id("a"),
    ]


def test_special_tokens_in_text_are_one_token_and_come_back(tokenizer: Tokenizer) -> None:
    for token in tokenizer.special_tokens.values():
        assert tokenizer.encode(token) == [tokenizer.token_to_id(token)]
        assert tokenizer.decode(tokenizer.encode(token)) == token
        assert tokenizer.decode(tokenizer.encode(token), skip_special_tokens=True) == ""


@pytest.mark.parametrize("name", LOSSLESS)
def test_special_tokens_of_strangers_are_text(name: str, trained: dict[str, Tokenizer]) -> None:
    tokenizer = trained[name]
    ids = tokenizer.encode("a</s>", parse_special=False)
    assert not tokenizer.special_ids.intersection(ids)
    assert tokenizer.decode(ids) == "a</s>"
    assert tokenizer.encode("a</s>")[-1] == tokenizer.eos_id
    assert tokenizer.encode_batch(["a</s>"], parse_special=False) == [ids]


@pytest.mark.parametrize("name", ["wordpiece", "wordpiece-cased"])
def test_wordpiece_loses_only_case_accents_and_spaces(
    name: str, trained: dict[str, Tokenizer], corpora: dict[str, str]
) -> None:
    def bare(text: str) -> str:
        lowered = text.lower() if name == "wordpiece" else text
        forms = unicodedata.normalize("NFD", lowered) if name == "wordpiece" else lowered
        return "".join(c for c in forms if not c.isspace() and unicodedata.category(c) not in ("Mn", "Cf"))

    tokenizer = trained[name]
    for corpus in ("chinese", "english", "mixed", "spaces"):
        once = tokenizer.decode(tokenizer.encode(corpora[corpus]))
        assert bare(once) == bare(corpora[corpus])
        assert tokenizer.decode(tokenizer.encode(once)) == once


@pytest.mark.parametrize("name", ["bpe", "bpe+bytes", "byte-bpe", "unigram-no-prefix"])
def test_the_last_space_of_a_run_goes_to_the_word(name: str, trained: dict[str, Tokenizer]) -> None:
    tokenizer = trained[name]
    assert tokenizer.tokens(tokenizer.encode("a  b")) == ["a", " ", " b"]


def test_a_byte_pattern_in_text_is_text() -> None:
    for kind in ("char", "bpe", "unigram"):
        tokenizer = train_tokenizer(kind, ["<0x41> <0x41> <0x41>"] * 5, 600, byte_fallback=True)
        assert tokenizer.decode(tokenizer.encode("<0x41>")) == "<0x41>"


@pytest.mark.parametrize("form", ["nfc", "nfkc"])
@pytest.mark.parametrize("kind", ["char", "bpe", "byte-bpe", "unigram"])
def test_normalised_text_comes_back(kind: str, form: str) -> None:
    texts = ["Cafe\u0301 Ａ ｂ ﬁ Ω"]
    tokenizer = train_tokenizer(kind, texts, 600, unicode_form=form, lowercase=True)
    want = unicodedata.normalize(form.upper(), texts[0]).lower()
    assert tokenizer.decode(tokenizer.encode(texts[0])) == want
    assert tokenizer.encode(want) == tokenizer.encode(texts[0])


def test_reloading_keeps_every_id(tokenizer: Tokenizer, corpora: dict[str, str]) -> None:
    text = tokenizer.backend.to_str()
    again = tokenizers.Tokenizer.from_str(text)
    assert again.to_str() == text
    for corpus in corpora.values():
        assert again.encode(corpus, add_special_tokens=False).ids == tokenizer.encode(corpus)
