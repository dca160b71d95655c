"""ELECTRA: the loss by its formula, samples of the generator's distribution, one table for both, what is saved."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from transpect.core import MaskedLM, TokenClass, Transformer
from transpect.data.batch import IGNORE
from transpect.data.loader import Batches
from transpect.data.objectives import Electra
from transpect.data.sources import Document, Listed
from transpect.lm import load
from transpect.train import Recipe, parse_recipe, train
from transpect.train.criteria.electra import GENERATOR, gumbel_max
from transpect.train.job import build


@pytest.fixture
def recipe(plain: Callable[..., dict[str, Any]]) -> Callable[..., Recipe]:
    def make(**objective: Any) -> Recipe:
        data = plain("masked")
        data["model"] |= {"n_layers": 2}
        data["data"]["objective"] = {"kind": "electra", **objective}
        data["train"]["loss"] = {"kind": "electra", "generator": 0.5}
        return parse_recipe(data)

    return make


def test_the_loss_is_its_formula(recipe: Callable[..., Recipe]) -> None:
    job = build(recipe())
    model = job.model.eval()
    batch = next(job.batches)
    sums = job.criterion.training(model, batch)
    generator = model.get_submodule(GENERATOR)
    assert isinstance(generator, Transformer)
    masks, real = batch.labels != IGNORE, batch.tags.position >= 0
    logits = generator(batch.ids, tags=batch.tags)
    assert batch.noise is not None
    drawn = gumbel_max(logits[masks].detach(), batch.noise, masks.sum(1))
    original = torch.where(masks, batch.labels, batch.ids)
    read = original.clone()
    read[masks] = drawn
    scores = model(read, tags=batch.tags)[..., 0]
    guessing = functional.cross_entropy(logits[masks], batch.labels[masks], reduction="sum")
    wrong = (read != original).float()
    telling = -(wrong * scores.sigmoid().log() + (1 - wrong) * (-scores).sigmoid().log())[real].sum()
    assert job.criterion.counts(batch) == (int(masks.sum()), int(real.sum()))
    torch.testing.assert_close(sums.losses[0], guessing)
    torch.testing.assert_close(sums.losses[1], 50 * telling)
    # no gradient goes through the sample
    sums.losses[1].backward()
    assert all(weight.grad is None for weight in generator.parameters())
    sums.losses[0].backward()
    assert all(weight.grad is not None for weight in generator.parameters())


def test_samples_have_the_generator_s_chances() -> None:
    n, logits = 4000, torch.tensor([0.0, 1.0, 2.0, -1.0])
    drawn = gumbel_max(logits.expand(n, 4), torch.arange(n // 4), torch.full((n // 4,), 4))
    counts = Counter(drawn.tolist())
    for kind, p in enumerate(logits.softmax(0).tolist()):
        assert abs(counts[kind] - n * p) < 4.5 * sqrt(n * p * (1 - p))


def test_what_is_drawn_for_a_row_is_that_of_no_other_row(recipe: Callable[..., Recipe]) -> None:
    """Rows read alone are the rows of a batch, sampling and all."""
    job = build(recipe())
    model, criterion = job.model.eval(), job.criterion
    documents = Listed([Document(text) for text in ("the cat eats", "a dog runs home", "fish")])
    whole = criterion.training(model, next(Batches(documents, Electra(), job.tokenizer, batch_size=3, seq_len=24)))
    alone = Batches(documents, Electra(), job.tokenizer, batch_size=1, seq_len=24)
    parts = [criterion.training(model, next(alone)) for _ in range(3)]
    for k in range(2):
        torch.testing.assert_close(sum(part.losses[k] for part in parts), whole.losses[k], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_packed_rows_have_the_same_loss(recipe: Callable[..., Recipe]) -> None:
    """The neighbours of a document change nothing: neither for the generator nor for the model."""
    job = build(recipe(pack=True))
    batch = next(job.batches)
    generator = job.model.eval().get_submodule(GENERATOR)
    first, length = batch.tags.segment[:1] == 0, int((batch.tags.segment[0] == 0).sum())
    for model in (generator, job.model):
        packed = model(batch.ids[:1], tags=batch.tags.rows(torch.tensor([0])))[first]
        torch.testing.assert_close(packed, model(batch.ids[:1, :length])[0], atol=1e-5, rtol=0)


def test_one_table_for_both_and_each_weight_once(recipe: Callable[..., Recipe]) -> None:
    job = build(recipe())
    generator = job.model.get_submodule(GENERATOR)
    assert generator.token is job.model.token
    names = [name for name, _ in job.model.named_parameters()]
    assert sum(name.endswith("token.weight") for name in names) == 1
    assert any(name.startswith(f"{GENERATOR}.towers") for name in names)
    assert len({weight.data_ptr() for weight in job.model.state_dict().values()}) == len(job.model.state_dict())


@pytest.mark.slow
def test_from_a_recipe_to_use(
    recipe: Callable[..., Recipe],
    tmp_path: Path,
    assert_same: Callable[[Path, Path], None],
    stop_at: Callable[..., None],
) -> None:
    run, again = tmp_path / "run", tmp_path / "again"
    result = train(recipe(), run)
    assert result.evaluation is not None
    assert {"generator_loss", "discriminator_loss", "accuracy", "recall"} == set(result.evaluation.measures)
    discriminator, generator = load(run / "best"), load(run / "best" / GENERATOR)
    assert isinstance(discriminator.model.config.head, TokenClass)
    assert isinstance(generator.model.config.head, MaskedLM)
    assert {lm.model.config.family for lm in (discriminator, generator)} == {"electra"}
    assert torch.equal(discriminator.model.token.weight, generator.model.token.weight)
    assert len(generator.fill_mask("the <mask>", k=3)[0]) == 3
    stop_at(recipe(), again, 4)
    train(recipe(), again, resume="auto")
    assert_same(run, again)


@pytest.mark.slow
def test_other_people_s_implementation_opens_both(recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    short = recipe()
    train(replace(short, train=replace(short.train, max_steps=2)), tmp_path / "run")
    ids = torch.tensor([[5, 6, 7, 8, 9]])
    for name, kind in (("best", "ElectraForPreTraining"), (f"best/{GENERATOR}", "ElectraForMaskedLM")):
        theirs = getattr(transformers, kind).from_pretrained(tmp_path / "run" / name).eval()
        ours = load(tmp_path / "run" / name).model
        with torch.no_grad():
            torch.testing.assert_close(ours(ids).squeeze(-1), theirs(ids).logits, atol=1e-5, rtol=1e-4)
