"""A share held out: nothing lost, nothing on both sides, the same everywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transpect.base.errors import ConfigError, DataError
from transpect.data.sources import Document, Listed, Stories
from transpect.data.split import split

SOME = st.lists(st.builds(Document, st.sampled_from("abcdefgh"), st.sampled_from([None, "x", "y"])), min_size=2).filter(
    lambda documents: len(set(documents)) > 1
)
FRACTIONS = st.floats(0, 1, exclude_min=True, exclude_max=True)


@given(SOME, FRACTIONS, st.integers(0, 3))
def test_each_document_is_on_one_side_and_its_equals_with_it(
    documents: list[Document], fraction: float, seed: int
) -> None:
    train, valid = (list(part) for part in split(Listed(documents), fraction, seed))
    held = set(valid)
    assert train == [document for document in documents if document not in held]
    assert valid == [document for document in documents if document in held]
    distinct = len(set(documents))
    assert len(held) == min(max(1, round(fraction * distinct)), distinct - 1)


@given(SOME, FRACTIONS, st.randoms())
def test_the_order_of_the_documents_does_not_matter(documents: list[Document], fraction: float, random: object) -> None:
    mixed = list(documents)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert set(split(Listed(documents), fraction)[1]) == set(split(Listed(mixed), fraction)[1])


def test_every_machine_holds_out_the_same() -> None:
    words = [Document(word) for word in "天地玄黄宇宙洪荒日月盈昃辰宿列张"]
    held = ["".join(document.text for document in split(Listed(words), 0.25, seed)[1]) for seed in range(3)]
    assert held == ["玄黄荒张", "玄日盈辰", "黄宙洪张"]


def test_pairs_with_the_same_source_and_another_target_are_different() -> None:
    pairs = [Document("a", str(number)) for number in range(100)]
    train, valid = split(Listed(pairs), 0.2)
    assert (train.size, valid.size) == (80, 20)


def test_words_of_the_source_stay_known() -> None:
    stories = Stories(stories=10).documents()
    for part in split(stories, 0.3):
        assert part.segmenter == stories.segmenter


@pytest.mark.parametrize(
    "text", ["one\ntwo\nthree\nfour\n", "x" * 50, "x\n" * 50, "x" * 100 + "\nend", "a" + "\nb" * 9]
)
@pytest.mark.parametrize("fraction", [0.05, 0.3, 0.9])
def test_a_document_that_stands_alone_is_cut(text: str, fraction: float) -> None:
    train, valid = split(Listed([Document(text, None, "x.txt", 1)] * 2), fraction)
    assert train[0].text + valid[0].text == text
    assert train[0].text.strip()
    assert valid[0].text.strip()
    if text.strip().count("\n"):
        assert train[0].text.endswith("\n")
    assert valid[0].line == 1 + train[0].text.count("\n")


@pytest.mark.parametrize("document", [Document("a"), Document("a\n"), Document("long source", "long target")])
def test_too_little_to_part(document: Document) -> None:
    with pytest.raises(DataError, match="two different documents"):
        split(Listed([document]), 0.1)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 1.5])
def test_a_share_is_between_0_and_1(fraction: float) -> None:
    with pytest.raises(ConfigError, match="between 0 and 1"):
        split(Listed([Document("a"), Document("b")]), fraction)


def test_documents_without_end_are_refused() -> None:
    with pytest.raises(ConfigError, match="Name a valid source with another seed"):
        split(Stories().documents(), 0.1)
