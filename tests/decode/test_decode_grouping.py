"""Texts are read in the passes that cost the least, and each says what it says alone."""

import itertools
import random

import pytest
import torch

from transpect.core import Pooled, Transformer, override, preset
from transpect.decode import encoder, whole_texts
from transpect.decode.grouping import Costs, costs_of, groups


def cost(lengths: list[int], split: list[list[int]], costs: Costs) -> float:
    pairs = sum(len(group) * max(lengths[i] for i in group) ** 2 for group in split)
    return costs.a_pair * pairs + costs.a_pass * len(split)


def splits(order: list[int]) -> list[list[list[int]]]:
    """All splits of a sorted row into runs."""
    found = []
    for cuts in itertools.product((False, True), repeat=len(order) - 1):
        split = [[order[0]]]
        for one, cut in zip(order[1:], cuts, strict=True):
            split = [*split, [one]] if cut else [*split[:-1], [*split[-1], one]]
        found.append(split)
    return found


@pytest.mark.parametrize("a_pass", [0.0, 0.5, 3.0, 20.0, 1e9])
def test_no_split_costs_less(a_pass: float) -> None:
    draw = random.Random(6)
    for count in range(1, 9):
        lengths = [draw.randint(1, 12) for _ in range(count)]
        costs = Costs(a_pass, 0.125)
        found = groups(lengths, costs)
        assert sorted(itertools.chain(*found)) == list(range(count))
        least = min(cost(lengths, split, costs) for split in splits(sorted(range(count), key=lengths.__getitem__)))
        assert cost(lengths, found, costs) == pytest.approx(least)
        alike = [{lengths[i] for i in group} for group in found]
        assert all(not (a & b) for a, b in itertools.combinations(alike, 2)), "a length is read in one pass"
        assert len(found) == (len(set(lengths)) if not a_pass else 1 if a_pass > 1e8 else len(found))
    assert groups([], Costs(a_pass, 0.125)) == []


@pytest.mark.parametrize("a_pass", [0.0, 4.0, 1e9])
def test_a_text_says_the_same_however_it_is_read(a_pass: float, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"n_layers": 2, "d_model": 16, "n_heads": 2, "d_ff": 32, "context_length": 24, "vocab_size": 50}
    model = Transformer(override(preset("bert-base"), [*sizes.items(), ("head", Pooled())]), seed=3).double()
    monkeypatch.setattr(whole_texts, "costs_of", lambda _: Costs(a_pass, 1.0))
    draw = random.Random(6)
    rows = [[draw.randrange(50) for _ in range(length)] for length in (5, 1, 9, 5, 24, 2, 9, 8, 1)]
    together = encoder.pooled(model, rows, batch_size=6)
    alone = torch.cat([encoder.pooled(model, [row], batch_size=1) for row in rows])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-12)


def test_a_pass_costs_more_tokens_where_tokens_cost_little() -> None:
    small, large = (
        costs_of(
            Transformer(override(preset("bert-base"), [("d_model", d), ("d_ff", d), ("n_layers", 2)]), seed=None)
        ).a_pass
        for d in (24, 192)
    )
    assert small > 10 * large > 240
