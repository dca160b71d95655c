"""Words as runs of tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers

from transpect.base.errors import DataError
from transpect.data.fable import Fable
from transpect.data.words import split_words, word_starts
from transpect.text import train_tokenizer


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("小猫爱吃fish。", ["小", "猫", "爱", "吃", "fish", "。"]),
        ("don't  stop-now", ["don", "'", "t", "stop", "-", "now"]),
        ("3.50 元", ["3", ".", "50", "元"]),
        ("snake_case", ["snake", "_", "case"]),
        ("cafe\u0301 नमस्ते", ["cafe\u0301", "नमस्ते"]),
        ("𠀀㐀豈", ["𠀀", "㐀", "豈"]),
        ("カナ 한글", ["カナ", "한글"]),
        ("🙂🙃", ["🙂", "🙃"]),
        (" \u3000\n", []),
        ("", []),
    ],
)
def test_words_of_unsegmented_text(text: str, words: list[str]) -> None:
    assert split_words(text) == words


BERT = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False)
LETTERS = st.characters(categories=["Ll", "Lu", "Nd", "Po", "Pd", "Ps", "Pe", "Zs"], max_codepoint=0x17F)


@given(st.text(st.one_of(LETTERS, st.sampled_from("天地玄黄，。！㐀豈"))))
def test_the_rule_is_that_of_bert(text: str) -> None:
    cut = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(BERT.normalize_str(text))
    assert split_words(text) == [word for word, _ in cut]


def test_tokens_are_grouped_by_the_characters_that_they_cover() -> None:
    text, words = "ab  cd，e f", ["ab", "cd", "，", "e", "f"]
    tokens = ["a", "b", " ", " c", "d，", "e", " f"]
    offsets, at = [], 0
    for token in tokens:
        offsets.append((at, at + len(token)))
        at += len(token)
    assert at == len(text)
    # `d，` reaches from one word into the next and binds them; blanks are a word by themselves
    assert word_starts(text, words, offsets) == [True, False, True, True, False, True, True]


def test_parts_of_one_character_are_one_word() -> None:
    assert word_starts("猫a", ["猫", "a"], [(0, 1), (0, 1), (0, 1), (1, 2)]) == [True, False, False, True]


def test_a_token_without_characters_is_a_word() -> None:
    assert word_starts("ab", ["ab"], [(0, 0), (0, 1), (1, 2)]) == [True, True, False]


def test_words_that_are_not_of_the_text_are_refused() -> None:
    for words in (["x"], ["b", "a"], ["ab", "b"]):
        with pytest.raises(DataError, match="in order"):
            word_starts("ab", words, [(0, 2)])


@pytest.mark.parametrize("kind", ["char", "bpe", "byte-bpe", "wordpiece", "unigram"])
@pytest.mark.parametrize("lang", ["zh", "en"])
def test_every_kind_of_tokenizer_gives_each_word_of_a_story_once(kind: str, lang: str) -> None:
    world = Fable("zh" if lang == "zh" else "en")
    texts = [world.story(0, i).text(world.lang) for i in range(50)]
    tokenizer = train_tokenizer(kind, texts, None if kind == "char" else 600)
    for text in texts[:10]:
        words = world.words(text)
        ids, offsets = tokenizer.encode_with_offsets(text)
        starts = word_starts(text, words, offsets)
        ranges: list[tuple[int, int]] = []
        for (begin, end), start in zip(offsets, starts, strict=True):
            if start:
                ranges.append((begin, end))
            else:
                ranges[-1] = (min(ranges[-1][0], begin), max(ranges[-1][1], end))
        found = [text[begin:end].strip() for begin, end in ranges if text[begin:end].strip()]
        assert "".join(found).replace(" ", "") == "".join(words).replace(" ", "")
        # tokens that bind words together make fewer groups, never other borders
        borders = {sum(map(len, words[:i])) for i in range(len(words))}
        at = 0
        for group in found:
            assert at in borders
            at += len(group.replace(" ", ""))
        assert len(ids) == len(starts)
