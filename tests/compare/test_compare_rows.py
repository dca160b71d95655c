"""Rows of every length hold the same text, each a sequence of its own."""

import numpy as np
import pytest

from transpect.base.errors import DataError
from transpect.compare import parse_comparison
from transpect.compare.measure import measure
from transpect.compare.plan import with_weights
from transpect.compare.rows import cut_rows
from transpect.core import Transformer
from transpect.data.batch import IGNORE
from transpect.train import parse_recipe
from transpect.train.evaluate import evaluate
from transpect.train.job import build

from .conftest import PART, prose

LENGTHS = (1, 2, 4)


def prepared(content):
    content = {name: value for name, value in content.items() if name != "compare"}
    job = build(parse_recipe(content))
    return job.recipe, job.tokenizer


@pytest.mark.parametrize("tokens", [None, 100, 1])
@pytest.mark.parametrize("objective", [{"pack": False}, {"pack": True}, {"pack": True, "separate": False}], ids=str)
def test_causal_rows_are_full_and_of_the_same_text(plain, objective, tokens) -> None:
    content = plain()
    content["data"]["objective"] |= objective
    recipe, tokenizer = prepared(content)
    rows = cut_rows(recipe, tokenizer, LENGTHS, tokens)
    read = {}
    for n in LENGTHS:
        for batch in rows[n].batches(3):
            assert batch.ids.shape[1] == n * PART
            assert (batch.tags.position == np.arange(n * PART)).all()
            assert (batch.labels != IGNORE).all()
            assert (batch.ids[:, 1:] == batch.labels[:, :-1]).all(), "each token is predicted from those before it"
        read[n] = np.concatenate([example.labels for example in rows[n].examples])
    assert all(np.array_equal(read[n], read[1]) for n in LENGTHS)
    whole = tokenizer.encode(prose(2, 120))
    assert len(read[1]) % (max(LENGTHS) * PART) == 0
    assert read[1].tolist() == [*whole, tokenizer.eos_id][: len(read[1])]
    left = len(whole) + 1 - len(read[1])
    assert left < max(LENGTHS) * PART if tokens is None else len(read[1]) == max(32, tokens // 32 * 32)


@pytest.mark.parametrize("objective", [{"pack": False}, {"pack": True}, {"pack": True, "separate": False}], ids=str)
def test_at_the_training_length_alone_the_rows_are_the_recipe_s_own(plain, tmp_path, objective) -> None:
    for number in range(9):
        (tmp_path / f"{number}.txt").write_text(prose(number, 1 + number % 3), encoding="utf-8")
    content = plain()
    content["data"]["valid"]["path"] = str(tmp_path)
    content["data"]["objective"] |= objective
    plan = parse_comparison(content, vary=["model.positions=rope,alibi"], lengths=(1,))
    recipe, tokenizer = prepared(content)
    job = build(recipe)
    rows = cut_rows(recipe, tokenizer, [1])[1]
    assert sum(batch.n_labels for batch in rows.batches(4)) == sum(batch.n_labels for batch in job.valid.once())
    model = with_weights(plan.entries[0].config, Transformer(plan.entries[0].config, seed=4).state_dict())
    own = evaluate(model, job.valid.once())
    found = measure(model, rows, batch_size=3)
    assert found.loss == pytest.approx(own.loss, abs=1e-6)
    assert found.loss == found.last
    assert (job.model.config.last.visibility.kind == "all") == recipe.objective.separates
    assert plan.entries[0].config.last.visibility == job.model.config.last.visibility, "packed documents stay apart"


def test_masked_rows_are_full_and_hide_the_same_each_time(plain) -> None:
    recipe, tokenizer = prepared(plain("masked"))
    once, again = (cut_rows(recipe, tokenizer, LENGTHS) for _ in range(2))
    for n in LENGTHS:
        assert len(once[n].examples) == len(once[1].examples) // n
        for one, other in zip(once[n].examples, again[n].examples, strict=True):
            assert len(one.ids) == n * PART
            assert np.array_equal(one.ids, other.ids)
            assert np.array_equal(one.labels, other.labels)


def test_a_document_that_fills_no_row_of_the_greatest_length_is_read_at_no_length(plain, tmp_path) -> None:
    for name, words in (("a", 4), ("b", 60), ("c", 5)):
        (tmp_path / f"{name}.txt").write_text(prose(3, words), encoding="utf-8")
    content = plain()
    content["data"]["valid"]["path"] = str(tmp_path)
    recipe, tokenizer = prepared(content)
    rows = cut_rows(recipe, tokenizer, LENGTHS)
    whole = tokenizer.encode(prose(3, 60))
    for n in LENGTHS:
        read = np.concatenate([example.labels for example in rows[n].examples]).tolist()
        assert read == whole[: len(read)] and len(read) == len(whole) // 32 * 32


def test_text_too_short_for_a_row_says_what_to_do(plain) -> None:
    recipe, tokenizer = prepared(plain())
    with pytest.raises(DataError, match=r"8000 tokens of a row at 1000 times.*got 570.*by: file"):
        cut_rows(recipe, tokenizer, [1, 1000])
