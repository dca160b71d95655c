"""The seam between an update and what it makes small: sums, counts, means, whatever the micro-batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from transpect.base.errors import ConfigError, DataError
from transpect.core import Transformer, override, preset
from transpect.core.context import NO_MEMORY, Memory
from transpect.core.tags import Tags
from transpect.data.batch import IGNORE, Batch
from transpect.train import Sgd, evaluate, parse_recipe, update
from transpect.train.criteria import Criterion, CrossEntropy, Sums
from transpect.train.criteria.base import Counts
from transpect.train.reading import load_recipe
from transpect.train.recipe import dump_recipe

V = 11


class TwoParts(Criterion):
    """Two means over different things: squared logits of labels, and of even positions; and a measure."""

    unit = "rows"

    def counts(self, batch: Batch) -> Counts:
        return batch.n_labels, 2 * len(batch.ids)

    def training(self, model: Transformer, batch: Batch, memory: Memory = NO_MEMORY) -> Sums:
        logits = model(batch.ids, tags=batch.tags)
        by_label = logits[batch.labels != IGNORE].square().mean(-1).sum()
        by_place = 0.5 * logits[:, [0, 2]].abs().mean(-1).sum()
        return Sums((by_label, by_place), {"ids": batch.ids.sum().double()})

    def summary(self, measures: Mapping[str, Tensor], counts: Counts) -> dict[str, Tensor]:
        return {"ids": measures["ids"] / counts[1]}


def model_of() -> Transformer:
    config = override(preset("llama"), {"d_model": 16, "n_layers": 1, "n_heads": 2, "vocab_size": V}.items())
    return Transformer(override(config, {"context_length": 8}.items()), seed=3).double().train()


def batch_of(labels: Sequence[int]) -> Batch:
    """A row of 5 tokens for each number, with that many labels."""
    generator = torch.Generator().manual_seed(len(labels))
    ids = torch.randint(V, (len(labels), 5), generator=generator)
    answers = ids.where(torch.arange(5) < torch.tensor(labels)[:, None], IGNORE)
    return Batch(ids, Tags.dense(len(labels), 5), answers)


def rows(batch: Batch, some: slice) -> Batch:
    ids = batch.ids[some]
    return replace(batch, ids=ids, labels=batch.labels[some], tags=Tags.dense(*ids.shape))


def after(parts: Sequence[Batch]) -> tuple[dict[str, Tensor], Any]:
    model = model_of()
    done = update(model, Sgd(lr=1.0).build(model), parts, rate=1.0, clip=None, criterion=TwoParts())
    return model.state_dict(), done


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (3, 1), (1, 3)])
def test_each_part_is_one_mean_however_the_rows_are_spread(sizes: tuple[int, ...]) -> None:
    batch = batch_of([5, 1, 0, 2])
    edges = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    parts = [rows(batch, slice(a, b)) for a, b in pairwise(edges)]
    whole, done = after([batch])
    pieces, summed = after(parts)
    assert all(torch.allclose(whole[name], pieces[name], rtol=1e-12, atol=1e-14) for name in whole)
    assert float(summed.loss) == pytest.approx(float(done.loss), rel=1e-6)
    assert float(summed.measures["ids"]) == float(done.measures["ids"]) == float(batch.ids.sum()) / 8
    assert summed.n_labels == 8
    model = model_of()
    found = [evaluate(model, given, criterion=TwoParts()) for given in ([batch], parts)]
    assert found[0].loss == pytest.approx(found[1].loss, rel=1e-12)
    assert found[0].loss == pytest.approx(float(done.loss), rel=1e-6)
    assert found[1].as_dict().keys() == {"loss", "ids", "n_rows"}  # no perplexity of what is no token


def test_nothing_to_count_is_said() -> None:
    with pytest.raises(DataError, match="at least one token to predict"):
        evaluate(model_of(), [batch_of([0, 0])])


def test_recipes_name_losses(tmp_path: Any) -> None:
    data: dict[str, Any] = {
        "model": {"preset": "gpt2", "d_model": 16, "n_layers": 1, "n_heads": 2, "context_length": 24},
        "tokenizer": "char",
        "data": {"train": {"kind": "fable", "stories": 4}},
    }
    assert parse_recipe(data).train.loss is None
    named = parse_recipe({**data, "train": {"loss": "cross_entropy"}})
    assert named.train.loss == parse_recipe({**data, "train": {"loss": {}}}).train.loss == CrossEntropy()
    (tmp_path / "r.yaml").write_text(dump_recipe(named))
    assert load_recipe(tmp_path / "r.yaml") == named
    with pytest.raises(ConfigError, match=r"train\.loss"):
        parse_recipe({**data, "train": {"loss": "hinge"}})
