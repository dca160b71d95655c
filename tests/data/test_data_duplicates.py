"""Duplicates: equal documents, and nearly equal ones by their exact Jaccard similarity."""

import random
from pathlib import Path

import pytest

from transpect.base.errors import ConfigError
from transpect.data.near_duplicates import PERMUTATIONS, RECALL, rows_of_a_band
from transpect.data.skipping import BadLines
from transpect.data.sources import Deduplicated, Jsonl, Text, Tsv, with_bad_lines


def write(path: Path, lines: list[str]) -> str:
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def similarity(a: str, b: str, n: int) -> float:
    """By the definition."""
    sets = []
    for text in (a, b):
        words = " ".join(text.lower().split())
        sets.append({words[i : i + n] for i in range(len(words)) if i + n <= len(words)} or {words})
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def test_of_equal_documents_the_first_stays(tmp_path: Path) -> None:
    source = Deduplicated(Text(write(tmp_path / "x.txt", ["a", "b", "a", "A", "b ", "a"]), "line"))
    assert [(document.text, document.line) for document in source.documents()] == [
        ("a", 1),
        ("b", 2),
        ("A", 4),
        ("b ", 5),
    ]
    pairs = Deduplicated(Tsv(write(tmp_path / "x.tsv", ["a\tb", "a\tc", "a\tb"])))
    assert [(document.text, document.target) for document in pairs.documents()] == [("a", "b"), ("a", "c")]


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7, 0.8, 0.9, 1.0])
@pytest.mark.parametrize("n", [1, 3, 5])
def test_near_duplicates_are_those_of_the_exact_similarity(threshold: float, n: int, tmp_path: Path) -> None:
    rng = random.Random(n)
    texts: list[str] = []
    for _ in range(12):  # families whose members differ by a little or a lot
        base = "".join(rng.choices("天地玄黄宇宙洪荒 abcdefgh", k=rng.choice([3, 30, 80])))
        for edits in (0, 1, 3, 8, 20):
            letters = list(base)
            for _ in range(edits):
                letters[rng.randrange(len(letters))] = rng.choice("日月盈昃xyz")
            texts.append("x" + "".join(letters).strip() + rng.choice(["", "  ", " "]) + "y")
    rng.shuffle(texts)
    kept: list[str] = []
    for text in dict.fromkeys(texts):
        if not any(similarity(text, other, n) >= threshold for other in kept):
            kept.append(text)
    source = Deduplicated(Text(write(tmp_path / "x.txt", texts), "line"), near=threshold, ngram=n)
    assert [document.text for document in source.documents()] == kept
    assert 0 < len(kept) < len(texts) or threshold >= 0.9


@pytest.mark.parametrize("threshold", [0.05, 0.2, 0.5, 0.8, 0.95, 1.0])
def test_bands_find_what_is_at_the_threshold(threshold: float) -> None:
    rows = rows_of_a_band(threshold)
    chance = 1 - (1 - threshold**rows) ** (PERMUTATIONS // rows)
    assert chance >= RECALL or rows == 1
    assert PERMUTATIONS % rows == 0


def test_bad_lines_are_counted_once(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", ['{"text": "abcdefgh"}', "{", '{"text": "abcdefgh!"}'])
    for near, left in ((None, 2), (0.5, 1)):
        source, bad = with_bad_lines(Deduplicated(Jsonl(path), near=near), "skip"), BadLines()
        assert len(list(source.stream(bad))) == left
        assert bad.skipped.count == source.documents().skipped.count == 1


@pytest.mark.parametrize("options", [{"near": 0.0}, {"near": 1.1}, {"ngram": 0}])
def test_what_can_not_be(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Deduplicated(Text("x"), **options)  # type: ignore[arg-type]
