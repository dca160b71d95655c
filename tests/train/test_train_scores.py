"""Scores of classes: what they are by definition, on any confusion and any tags."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transpect.train.criteria.scores import accuracy, confusion, is_scheme, macro_f1, span_counts, span_f1, spans

TAGS = ["O", "B-A", "I-A", "E-A", "S-A", "B-B", "I-B"]


def by_hand(pairs: list[tuple[int, int]]) -> tuple[float, float]:
    """(accuracy, macro F1) of (true, predicted): precision and recall, a class at a time."""
    scores = []
    for kind in {number for pair in pairs for number in pair}:
        right = sum(true == predicted == kind for true, predicted in pairs)
        found, there = sum(p == kind for _, p in pairs), sum(t == kind for t, _ in pairs)
        precision, recall = right / found if found else 0.0, right / there if there else 0.0
        scores.append(2 * precision * recall / (precision + recall) if right else 0.0)
    return sum(true == predicted for true, predicted in pairs) / len(pairs), sum(scores) / len(scores)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=30))
def test_accuracy_and_macro_f1(pairs: list[tuple[int, int]]) -> None:
    true, predicted = (torch.tensor(side) for side in zip(*pairs, strict=True))
    counts = confusion(predicted[:7], true[:7], 5) + confusion(predicted[7:], true[7:], 5)  # batches add up
    assert (float(accuracy(counts)), float(macro_f1(counts))) == pytest.approx(by_hand(pairs))


def conlleval(tags: list[str]) -> set[tuple[str, int, int]]:
    """The spans by the rules of the CoNLL script, written out: which pairs of neighbours end and begin a chunk."""
    ends = {"BB", "BS", "BO", "IB", "IS", "IO", "EB", "EI", "EE", "ES", "EO", "SB", "SI", "SE", "SS", "SO"}
    begins = {"EE", "EI", "OE", "OI", "SE", "SI", *(f"{a}{b}" for a in "BIESO" for b in "BS")}
    found, start = set(), 0
    for place, (one, two) in enumerate(zip(["O", *tags], [*tags, "O"], strict=True)):
        other = one[2:] != two[2:]
        if one != "O" and (one[0] + two[0] in ends or other):
            found.add((one[2:], start, place))
        if one[0] + two[0] in begins or (two != "O" and other):
            start = place
    return found


def test_spans_are_those_of_the_conll_script() -> None:
    for length in range(1, 5):
        for tags in product(TAGS, repeat=length):
            assert spans(tags) == conlleval(list(tags)), tags


def test_span_f1() -> None:
    true = ["B-A", "I-A", "O", "B-B", "B-A"]
    assert spans(true) == {("A", 0, 2), ("B", 3, 4), ("A", 4, 5)}
    assert span_counts(true, true) == (3, 3, 3)
    assert span_counts(["B-A", "O", "O", "I-B", "B-B"], true) == (1, 3, 3)
    assert float(span_f1(torch.tensor([1, 3, 3]) + torch.tensor([1, 1, 3]))) == pytest.approx(2 * 2 / (4 + 6))
    assert float(span_f1(torch.tensor([0, 0, 0]))) == 0.0


def test_what_a_scheme_is() -> None:
    assert is_scheme(["O", "B-PER", "I-PER"])
    assert is_scheme(["S-X", "E-X"])
    assert not is_scheme(["O"])
    assert not is_scheme(["NOUN", "VERB"])
    assert not is_scheme(["O", "B-"])
