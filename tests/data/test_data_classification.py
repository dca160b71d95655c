"""Classes of texts and of words: the right label in the right place, for every kind of tokenizer, and nowhere else."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transpect.base.codec import from_data, to_data
from transpect.base.errors import ConfigError, DataError
from transpect.core import SequenceClass, TokenClass, preset
from transpect.data.batch import IGNORE
from transpect.data.loader import Batches
from transpect.data.objectives import Classification, Objective, TokenClassification
from transpect.data.objectives.token_classification import first_tokens
from transpect.data.sources import Document, Listed, Tagged
from transpect.text import Tokenizer

MakeTokenizer = Callable[..., Tokenizer]
quick = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXT = st.text("abc 天", min_size=1, max_size=12).filter(str.strip)
WORD = st.text("abcd天地", min_size=1, max_size=6)


def sentence(words: list[str], tags: list[str], between: str = " ") -> Document:
    return Document(between.join(words), None, "x.conll", 3, json.dumps({"words": words, "tags": tags}))


@quick
@given(pairs=st.lists(st.tuples(TEXT, st.sampled_from("pqr")), min_size=1, max_size=7), seed=st.integers(0, 3))
def test_each_text_has_its_class(pairs: list[tuple[str, str]], seed: int, vocabulary: Tokenizer) -> None:
    documents = Listed([Document(text, label) for text, label in pairs])
    objective = Classification(("r", "p", "q"))
    batches = Batches(documents, objective, vocabulary, batch_size=3, seq_len=32, seed=seed)
    found = []
    for batch in batches.once():
        assert batch.labels.shape == (len(batch.ids),)
        assert batch.n_labels == len(batch.ids)
        real = batch.tags.position >= 0
        found += [
            (row[here].tolist(), int(label)) for row, here, label in zip(batch.ids, real, batch.labels, strict=True)
        ]
    expected = [(vocabulary.encode(text, add_special_tokens=True), "rpq".index(label)) for text, label in pairs]
    assert found == expected


@quick
@given(
    rows=st.lists(st.lists(st.tuples(WORD, st.sampled_from("xyz")), min_size=1, max_size=6), min_size=1, max_size=5),
    between=st.sampled_from([" ", ""]),
)
def test_the_first_token_of_a_word_has_its_tag(
    rows: list[list[tuple[str, str]]], between: str, vocabulary: Tokenizer
) -> None:
    documents = Listed([sentence([w for w, _ in row], [t for _, t in row], between) for row in rows])
    batches = Batches(documents, TokenClassification(("x", "y", "z")), vocabulary, batch_size=2, seq_len=64)
    found = [row for batch in batches.once() for row in zip(batch.ids.tolist(), batch.labels.tolist(), strict=True)]
    for row, (ids, labels) in zip(rows, found, strict=True):
        text = between.join(word for word, _ in row)
        own, offsets = vocabulary.encode_with_offsets(text, add_special_tokens=True)
        assert ids[: len(own)] == own
        ends = [len(between.join([word for word, _ in row[: n + 1]])) for n in range(len(row))]
        borders = [(end - len(word), end) for (word, _), end in zip(row, ends, strict=True)]
        expected, seen = [], set[int]()
        for begin, end in offsets:
            covered = {n for n, (a, b) in enumerate(borders) if max(a, begin) < min(b, end)}
            new = covered and min(covered) > max(seen, default=-1)
            expected.append("xyz".index(row[min(covered)][1]) if new else IGNORE)
            seen |= covered
        assert labels[: len(own)] == expected
        assert labels[len(own) :] == [IGNORE] * (len(labels) - len(own))


def test_a_token_over_two_words_is_the_first_one_s() -> None:
    assert first_tokens("ab cd", ["ab", "cd"], [(0, 1), (1, 4), (4, 5)]) == [0, None]
    assert first_tokens("ab cd", ["ab", "cd"], [(0, 2), (2, 5)]) == [0, 1]  # the space goes with the word
    assert first_tokens("abab", ["ab", "ab"], [(0, 2), (2, 3), (3, 4)]) == [0, 1]
    assert first_tokens("ab", ["ab"], [(0, 0)]) == [None]


def test_classes_are_those_of_the_training_documents() -> None:
    documents = Listed([Document("a", "q"), Document("b", "p"), Document("c", "q")])
    assert Classification().settled(documents) == Classification(("p", "q"))
    assert Classification(("q", "p")).settled(documents) == Classification(("q", "p"))
    tagged = Listed([sentence(["a", "b"], ["O", "B-X"])])
    assert TokenClassification().settled(tagged) == TokenClassification(("B-X", "O"))
    with pytest.raises(ConfigError, match="at least two classes"):
        Classification().settled(Listed([Document("a", "q")]))
    with pytest.raises(DataError, match="needs a label for each text"):
        Classification().settled(Listed([Document("a")]))
    with pytest.raises(DataError, match="needs words with tags"):
        TokenClassification().settled(Listed([Document("a", "b")]))


def test_the_head_has_as_many_classes() -> None:
    objective = Classification(("p", "q", "r"))
    assert objective.head(preset("bert-base")) == SequenceClass(3)
    assert objective.head(preset("gpt2")) == SequenceClass(3, pool="last", transform=None)
    own = SequenceClass(3, pool="mean", dropout=0.0)
    config = from_data(type(preset("gpt2")), {**to_data(preset("gpt2")), "head": to_data(own)})
    assert objective.head(config) == own
    with pytest.raises(ConfigError, match=r"as many classes as there are labels, 2 \(got 3\)"):
        Classification(("p", "q")).head(config)
    assert TokenClassification(("p", "q")).head(preset("bert-base")) == TokenClass(2)


@pytest.mark.parametrize("objective", [Classification(("p", "q")), TokenClassification(("p", "q"))])
def test_what_is_too_long_and_what_is_unknown(objective: Objective, letters: MakeTokenizer) -> None:
    tokenizer = letters()

    def read(too_long: str, label: str = "q") -> list[tuple[list[int], list[int]]]:
        options = from_data(Objective, {**to_data(objective), "too_long": too_long})
        texts = [("a b", "p"), ("abc d", label)]
        documents = Listed(
            [
                Document(text, tag, "x.tsv", 7, json.dumps({"words": text.split(), "tags": [tag, tag]}))
                for text, tag in texts
            ]
        )
        batches = Batches(documents, options, tokenizer, batch_size=1, seq_len=4)
        return [(batch.ids[0].tolist(), batch.labels.flatten().tolist()) for batch in batches.once()]

    assert len(read("drop")) == 1
    first, second = read("crop")
    assert tokenizer.decode(second[0]) == "<s>abc"
    assert [label for label in second[1] if label != IGNORE] == [1]
    assert [label for label in first[1] if label != IGNORE] in ([0], [0, 0])
    with pytest.raises(DataError, match=r"x.tsv:7: a text, with the tokens around it, must have at most seq_len = 4"):
        read("error")
    with pytest.raises(DataError, match=r"x.tsv:7: a label must be one of the 2 classes \(got 'pp'\).*mean 'p'"):
        read("crop", "pp")
    for names in (["p"], ["p", "p"]):
        with pytest.raises(ConfigError, match="at least two classes"):
            from_data(Objective, {"kind": objective.kind, "labels": names})
    assert from_data(Objective, to_data(objective)) == objective


def test_sources_of_tagged_words(tmp_path: Path) -> None:
    columns, objects = tmp_path / "a.conll", tmp_path / "a.jsonl"
    columns.write_text("-DOCSTART- O\n\n小 X B-A\n明 X I-A\n\n\nruns\tO\n", encoding="utf-8")
    objects.write_text(
        '{"tokens": ["小", "明"], "tags": ["B-A", "I-A"]}\n{"tokens": ["runs"], "tags": ["O"]}\n', encoding="utf-8"
    )
    read = [Tagged(str(file), between="").documents() for file in (columns, objects)]
    assert [document.text for document in read[0]] == ["小明", "runs"]
    assert list(read[0]) == list(read[1])
    assert [document.line for document in read[0]] == [3, 7]
    columns.write_text("a O\nb\n\nc O\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"a.conll:2: a line must have a word and its tag"):
        Tagged(str(columns)).documents()
    skipped = Tagged(str(columns), on_bad_line="skip").documents()
    assert [document.text for document in skipped] == ["c"]
    for line in ('{"tokens": ["a"], "tags": []}', '{"tokens": ["a"], "tags": [1]}', '{"tokens": "a", "tags": "O"}'):
        objects.write_text(line + "\n", encoding="utf-8")
        with pytest.raises(DataError, match=r"a.jsonl:1: a text must have as many tags as words"):
            Tagged(str(objects)).documents()


def test_classes_are_those_of_all_documents_in_one_order() -> None:
    """Numbers by their size; of several rows of documents, whichever holds a rare one."""
    one, other = (Listed([Document("x", label) for label in labels]) for labels in (["10", "9", "10"], ["1"]))
    assert Classification().settled(one, other).classes == Classification().settled(other, one).classes
    assert Classification().settled(one, other).classes == ("1", "9", "10")
    words = Listed([sentence(["a", "b"], ["x", "10"]), sentence(["a"], ["9"])])
    assert TokenClassification().settled(words).classes == ("10", "9", "x")
