"""Contrastive learning: the loss by its formula, equal texts no negatives, and vectors that `embed` gives."""

import json
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from transpect.base.codec import from_data, to_data
from transpect.base.errors import ConfigError, DataError
from transpect.core import Pooled, Tags, Transformer, override
from transpect.data.loader import Batches
from transpect.data.objectives import Contrastive, Objective
from transpect.data.sources import Document, Listed, Triples
from transpect.lm import load
from transpect.train import AdamW, Recipe, parse_recipe, train, update
from transpect.train.criteria import Setting
from transpect.train.criteria.contrastive import Contrast, ContrastiveLoss
from transpect.train.job import build
from transpect.train.parallel import ParallelSpec
from transpect.train.parallel.joining import joined

PAIRS = ["cat\tmao", "dog\tgou", "big fish\tda yu", "bird\tniao", "rain falls\txia yu", "hill\tshan"]


@pytest.fixture
def recipe(plain: Callable[..., dict[str, Any]], corpora: dict[str, Path]) -> Recipe:
    data = plain("masked")
    source = {"kind": "tsv", "path": str(corpora["seq2seq"])}
    data["data"] = {"train": source, "valid": source, "objective": "contrastive"}
    data["train"] |= {"max_steps": 20, "batch_size": 6, "eval_every": 10, "save_every": 10}
    return parse_recipe(data)


def by_hand(model: Transformer, texts: list[list[list[int]]], temperature: float) -> float:
    """Σ −ln of the share of the positive, a pair at a time, in float64."""

    def vector(ids: list[int]) -> torch.Tensor:
        return functional.normalize(model(torch.tensor([ids]))[0].double(), dim=0)

    candidates = [row[1] for row in texts] + [row[k] for k in range(2, len(texts[0])) for row in texts]
    total = 0.0
    for i, row in enumerate(texts):
        others = [ids for j, ids in enumerate(candidates) if j != i and ids != row[1]]
        scores = torch.stack([vector(row[0]) @ vector(ids) for ids in [row[1], *others]]) / temperature
        total -= scores.log_softmax(0)[0].item()
    return total


@pytest.mark.parametrize("negatives", [0, 2])
@torch.no_grad()
def test_the_loss_is_its_formula(negatives: int, recipe: Recipe) -> None:
    job = build(recipe)
    model = job.model.eval()
    rows = [("cat", "mao", ["gou", "niao"]), ("dog", "gou", ["shan", "mao"]), ("a cat", "mao", ["yu", "yu"])]
    documents = Listed([Document(a, b, record=json.dumps({"negatives": c})) for a, b, c in rows])
    batches = Batches(documents, Contrastive(negatives), job.tokenizer, batch_size=3, seq_len=24)
    (batch,) = batches.once()
    assert batch.ids.shape[0] == 3 * (2 + negatives)
    sums = Contrast(0.1).training(model, batch)
    texts = [
        [job.tokenizer.encode(text, add_special_tokens=True) for text in (a, b, *c[:negatives])] for a, b, c in rows
    ]
    assert float(sums.losses[0]) == pytest.approx(by_hand(model, texts, 0.1), rel=1e-4)
    flipped = [[b, a] for a, b, *_ in texts]
    if not negatives:
        both = float(Contrast(0.1, both_ways=True).training(model, batch).losses[0])
        assert both == pytest.approx((by_hand(model, texts, 0.1) + by_hand(model, flipped, 0.1)) / 2, rel=1e-4)


def test_gradients_reach_both_sides(recipe: Recipe) -> None:
    job = build(recipe)
    batch = next(job.batches)
    vectors = torch.randn(len(batch.ids), 8, requires_grad=True)

    class Given(torch.nn.Module):
        def forward(self, ids: torch.Tensor, tags: Tags, token_types: None) -> torch.Tensor:
            return vectors

    Contrast().training(Given(), batch).losses[0].backward()  # type: ignore[arg-type]
    assert vectors.grad is not None
    assert bool((vectors.grad.abs().sum(1) > 0).all())


def test_from_a_recipe_to_use(
    recipe: Recipe, tmp_path: Path, assert_same: Callable[[Path, Path], None], stop_at: Callable[..., None]
) -> None:
    run, again = tmp_path / "run", tmp_path / "again"
    result = train(recipe, run)
    assert result.evaluation is not None
    assert result.evaluation.measures["accuracy"] > 0.8  # by chance 1/6
    lm = load(run)
    assert isinstance(lm.model.config.head, Pooled)
    assert (run / "best" / "modules.json").is_file()  # as sentence-transformers opens it
    left, right = (lm.embed([pair.split("\t")[side] for pair in PAIRS]) for side in (0, 1))
    cosines = functional.normalize(left, dim=-1) @ functional.normalize(right, dim=-1).T
    assert (cosines.argmax(-1) == torch.arange(6)).float().mean() > 0.8
    stop_at(recipe, again, 7)
    train(recipe, again, resume="auto")
    assert_same(run, again)


def shown(recipe: Recipe, kind: Any) -> list[tuple[float, float]]:
    """Loss and norm of updates with hard negatives, both ways, of a micro-batch that two processes share out."""
    rows = [("cat", "mao", ["gou"]), ("dog", "gou", ["shan"]), ("a cat", "mao", ["yu"]), ("hill", "shan", ["xia yu"])]
    documents = Listed(
        [Document(a, b, record=json.dumps({"negatives": c})) for a, b, c in [*rows, ("fish", "yu", ["a"])]]
    )
    with joined(ParallelSpec(data=kind), torch.device("cpu")) as world:
        job = build(recipe, world=world)
        criterion = ContrastiveLoss(0.1, both_ways=True).build(
            Setting(job.recipe, job.model, job.tokenizer, world=world)
        )
        batches = Batches(documents, Contrastive(1), job.tokenizer, batch_size=5, seq_len=24)
        optimizer = AdamW(1e-3).build(job.model.train())
        made = [
            update(job.model, optimizer, [next(batches)], rate=1e-3, clip=1.0, criterion=criterion, world=world)
            for _ in range(4)
        ]
        return [(float(one.loss), float(one.grad_norm)) for one in made]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_processes_that_share_a_batch_out_see_all_its_candidates(
    kind: str, recipe: Recipe, together: Callable[..., list[Any]]
) -> None:
    """Of five pairs, one copy among the positives, one process reads two and the other three."""
    import_module("transpect.train.parallel.together")
    still = override(recipe.model.config, {"dropout": 0.0, "attention.dropout": 0.0, "embedding.dropout": 0.0}.items())
    plain = replace(recipe, model=replace(recipe.model, config=still), train=replace(recipe.train, accumulate=1))
    (alone,) = together(1, shown, plain, kind)
    one, other = together(2, shown, plain, kind)
    assert one == other
    for (loss, norm), (expected, its_norm) in zip(one, alone, strict=True):
        assert loss == pytest.approx(expected, rel=1e-5)
        assert norm == pytest.approx(its_norm, rel=1e-5)


def test_sources_of_triples(tmp_path: Path) -> None:
    lines, objects = tmp_path / "a.tsv", tmp_path / "a.jsonl"
    lines.write_text("a\tb\tc\td\nx\ty\n", encoding="utf-8")
    rows = [{"anchor": "a", "positive": "b", "negative": ["c", "d"]}, {"anchor": "x", "positive": "y", "negative": []}]
    objects.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert list(Triples(str(lines)).documents()) == list(Triples(str(objects)).documents())
    one = '{"anchor": "a", "positive": "b", "negative": "c"}'
    objects.write_text(one, encoding="utf-8")
    assert Triples(str(objects)).documents()[0].record == '{"negatives": ["c"]}'
    assert Triples(str(objects), negatives=None).documents()[0].record is None
    for bad in ("a\t \n", "a\n"):
        lines.write_text(bad, encoding="utf-8")
        with pytest.raises(DataError, match=r"a.tsv:1: a line must have at least 2 columns"):
            Triples(str(lines)).documents()
    objects.write_text('{"anchor": "a", "positive": "b"}', encoding="utf-8")
    with pytest.raises(DataError, match=r"a.jsonl:1: every line must have the field 'negative'"):
        Triples(str(objects)).documents()


def test_a_pair_alone_teaches_nothing(recipe: Recipe) -> None:
    alone = replace(recipe, train=replace(recipe.train, batch_size=1))
    with pytest.raises(ConfigError, match="told from the other pairs of its batch"):
        build(alone)


def test_what_it_needs(recipe: Recipe) -> None:
    tokenizer = build(recipe).tokenizer

    def read(document: Document, too_long: str = "error", negatives: int = 0) -> int:
        objective = from_data(Objective, {"kind": "contrastive", "too_long": too_long, "negatives": negatives})
        assert from_data(Objective, to_data(objective)) == objective
        first = Document("a", "b", record='{"negatives": ["c"]}')
        return Batches(Listed([first, document]), objective, tokenizer, batch_size=1, seq_len=5).n_rows

    with pytest.raises(DataError, match=r"p.tsv:2: a text, .* must have at most seq_len = 5 tokens \(got 6\)"):
        read(Document("a", "birds", "p.tsv", 2))
    assert read(Document("a", "birds"), "drop") == 1
    assert read(Document("a", "birds"), "crop") == 2
    with pytest.raises(DataError, match="needs pairs of texts"):
        read(Document("a"))
    with pytest.raises(DataError, match=r"each document must have 1 negatives \(got 0\)"):
        read(Document("a", "b"), negatives=1)
    with pytest.raises(ConfigError, match="temperature must be above 0"):
        ContrastiveLoss(temperature=0)
