"""Stages of a pipeline compute what a whole model does, and a run by stages is the run of one process."""

import os
import signal
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from transpect.base.errors import ConfigError
from transpect.core import CausalLM, Full, MaskedLM, ModelConfig, SequenceClass, StackConfig, Tags, Transformer
from transpect.core.attention import AttentionConfig
from transpect.core.embeddings import EmbeddingConfig, Factor
from transpect.core.positions import Alibi, Learned, Rope, T5Buckets
from transpect.data.batch import IGNORE, Batch
from transpect.train import Quiet, Recipe, TrainingError, parse_recipe, read_metrics, train
from transpect.train.criteria import TokenCrossEntropy
from transpect.train.evaluate import evaluate
from transpect.train.parallel import ALONE, ParallelSpec, World
from transpect.train.parallel.joining import joined
from transpect.train.parallel.layers import check_layers, keep_stage
from transpect.train.parallel.layers.running import StagePass, evened
from transpect.train.recompute import recompute_activations
from transpect.train.state import read_state
from transpect.train.updates import update

together_module = import_module("transpect.train.parallel.together")  # once, before processes are forked

Make = Callable[..., Recipe]
Together = Callable[..., list[Any]]

CPU = torch.device("cpu")
VOCAB, LENGTH = 11, 9


def shape(head: Any, factor: Factor | None = None, **changes: Any) -> ModelConfig:
    stack: dict[str, Any] = {"n_layers": 5, "attention": AttentionConfig(n_heads=2), **changes}
    embedding = EmbeddingConfig(factor=factor, token_types=2)
    tower = {"encoder" if "visibility" in changes else "decoder": StackConfig(**stack)}
    return ModelConfig(VOCAB, 8, LENGTH, head=head, embedding=embedding, **tower)  # type: ignore[arg-type]


SHAPES = {
    "tied": shape(CausalLM(), positions=Learned()),
    "untied": shape(CausalLM(tied=False), positions=Rope()),
    "buckets": shape(CausalLM(), positions=T5Buckets(buckets=8, max_distance=6)),
    "factored, by heads": shape(MaskedLM(), Factor(4), positions=Alibi(), visibility=Full()),
    "shared layers": shape(SequenceClass(3, dropout=0.0), n_layers=10, n_unique=5, positions=Rope(), visibility=Full()),
}


def batch_of(rows: int, length: int) -> Batch:
    generator = torch.Generator().manual_seed(rows)
    ids = torch.randint(VOCAB, (rows, length), generator=generator)
    lengths = torch.randint(2, length + 1, (rows,), generator=generator)
    tags = Tags.padded(torch.arange(length) < lengths[:, None])
    return Batch(ids, tags, ids.where(tags.position >= 0, IGNORE), token_types=ids % 2)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("stages", [2, 3, 5])
def test_stages_one_after_another_are_the_whole_model(name: str, stages: int) -> None:
    config, batch = SHAPES[name], batch_of(3, LENGTH)
    whole = Transformer(config, seed=1)
    expected = whole(batch.ids, tags=batch.tags, token_types=batch.token_types)
    passed, held = torch.empty(0), set[str]()
    for number in range(stages):
        part = Transformer(config, seed=1)
        keep_stage(part, number, stages)
        held |= set(part.state_dict())
        stage = StagePass(part, first=number == 0, last=number == stages - 1)
        stage.batches, stage.precision = [batch], "fp32"
        model = stage.model
        stage.compute = lambda batch, model=model: model(batch.ids, tags=batch.tags, token_types=batch.token_types)
        passed = stage(passed, torch.zeros(1, dtype=torch.int64))
        assert sum(weight.numel() for weight in part.parameters()) < sum(w.numel() for w in whole.parameters())
    torch.testing.assert_close(passed, expected)
    assert held == set(whole.state_dict())


def test_micro_batches_are_filled_up_to_one_shape_and_predict_the_same() -> None:
    model = Transformer(SHAPES["tied"], seed=1)
    given = [batch_of(2, 5), batch_of(3, LENGTH), batch_of(1, 3)]
    filled = evened(given)
    assert {tuple(batch.ids.shape) for batch in filled} == {(3, LENGTH)}
    for before, after in zip(given, filled, strict=True):
        assert after.n_labels == before.n_labels
        rows, length = before.ids.shape
        whole, part = (model(one.ids, tags=one.tags, token_types=one.token_types) for one in (after, before))
        torch.testing.assert_close(whole[:rows, :length], part)


@pytest.mark.parametrize(
    ("objective", "changes", "said"),
    [
        ("causal", {}, r"at least a layer for each stage.*1 layers of their own, 2 stages"),
        ("causal", {"model.n_layers": 2, "train.layer_decay": 0.5}, r"train.layer_decay looks at all of them"),
        ("causal", {"model.n_layers": 2, "train.freeze": ["embedding"]}, r"train.freeze looks at all of them"),
        ("seq2seq", {"model.n_layers": 2}, r"cuts one tower.*encoder-decoder, 2 stages.*parallel.tensor"),
    ],
)
def test_what_can_not_be_cut_is_refused(objective: str, changes: dict[str, Any], said: str, recipe_of: Make) -> None:
    check_layers(recipe_of("causal", {"model.n_layers": 2}), 2)
    with pytest.raises(ConfigError, match=said):
        check_layers(recipe_of(objective, changes), 2)


def ten_updates(world: World, config: ModelConfig) -> tuple[list[float], dict[str, list[float]]]:
    """Losses and norms of ten updates, the loss of an evaluation before the last, and all weights after it; by SGD, so
    that what is wrong with a gradient is wrong with a weight in proportion."""
    model = recompute_activations(Transformer(config, seed=1)).train()
    criterion = world.spread(model, TokenCrossEntropy(0.1))
    optimizer, seen = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9), []
    given = [batch_of(4, length) for length in (LENGTH, 5, 7, 6)]
    for step in range(10):
        made = update(model, optimizer, given, rate=0.1, clip=1.0, criterion=criterion, world=world)
        seen += [float(made.loss), float(made.grad_norm)]
        if step == 8:
            seen.append(evaluate(model, given[:3], criterion=criterion, world=world).loss)
    return seen, {name: value.flatten().tolist() for name, value in world.whole(model).items()}


def by_layouts(layouts: list[dict[str, Any]], shapes: list[str]) -> list[Any]:
    """What the processes find for each layout and shape, all in one group."""
    with joined(ParallelSpec(), CPU):
        worlds = [together_module.Together(ParallelSpec(**layout), CPU) for layout in layouts]
        return [ten_updates(world, SHAPES[shape]) for world in worlds for shape in shapes]


TWO: dict[str, Any] = {"pipeline": 2}
LAYOUTS: dict[int, list[dict[str, Any]]] = {
    2: [TWO],
    4: [{"pipeline": 4}, TWO, {**TWO, "data": "fsdp"}, {**TWO, "tensor": 2}],
}


@pytest.mark.slow
@pytest.mark.parametrize("size", LAYOUTS)
def test_ten_updates_by_stages_are_ten_by_one_process(size: int, together: Together) -> None:
    shapes = ["tied", "buckets", "factored, by heads"][: 3 if size == 2 else 2]
    by_rank = together(size, by_layouts, LAYOUTS[size], shapes)
    for number, (layout, shape) in enumerate((layout, shape) for layout in LAYOUTS[size] for shape in shapes):
        expected, weights = ten_updates(ALONE, SHAPES[shape])
        for found, _ in (of_rank[number] for of_rank in by_rank):
            assert found == pytest.approx(expected, rel=1e-5), (layout, shape)
        own = by_rank[0][number][1]
        assert own.keys() == weights.keys()
        for name, value in weights.items():
            torch.testing.assert_close(torch.tensor(own[name]), torch.tensor(value), rtol=1e-5, atol=1e-6)


STILL = {f"model.{part}": 0.0 for part in ("dropout", "attention.dropout", "embedding.dropout")}
TEN = {
    **STILL,
    "train.max_steps": 10,
    "train.batch_size": 4,
    "train.optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9},
    "model.n_layers": 4,
}
STAGES, MATRICES = {"parallel.pipeline": 2}, {"parallel.tensor": 2}


def run_of(plain: dict[str, Any], changes: dict[str, Any], out: Path) -> int:
    return train(parse_recipe(plain, changes.items()), out, resume="auto").step


def curves(run: Path) -> list[float]:
    names = ("loss", "grad_norm", "valid_loss")
    return [float(line[name] or 0.0) for line in read_metrics(run) for name in names if name in line]


@pytest.mark.slow
def test_a_run_goes_on_by_other_stages(
    plain: Callable[..., dict[str, Any]], tmp_path: Path, together: Together
) -> None:
    """By 1, 2, 1 and 4 processes."""
    recipe, stops = plain("causal"), [{"train.max_steps": steps} for steps in (3, 5, 7, 10)]
    for stop in stops:  # the schedule of a shorter run is another one, so one process makes the same stops
        run_of(recipe, {**TEN, **stop}, tmp_path / "one")
    ways: list[tuple[int, dict[str, Any]]] = [(1, {}), (2, STAGES), (1, {}), (4, {**STAGES, **MATRICES})]
    for (size, changes), stop in zip(ways, stops, strict=True):
        given = (recipe, {**TEN, **changes, **stop}, tmp_path / "run")
        _ = run_of(*given) if size == 1 else together(size, run_of, *given)
    assert curves(tmp_path / "run") == pytest.approx(curves(tmp_path / "one"), rel=1e-5)
    expected, found = (load_file(tmp_path / run / "last" / "model.safetensors") for run in ("one", "run"))
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)


class End(Quiet):
    """Kills a process at a step, if it is the one."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def advance(self, step: int) -> None:
        if step == 3 and int(os.environ["RANK"]) == self.rank:
            os.kill(os.getpid(), signal.SIGKILL)


def run_until_one_ends(plain: dict[str, Any], changes: dict[str, Any], out: Path, end: End) -> str:
    begun = monotonic()
    try:
        train(parse_recipe(plain, changes.items()), out, resume="auto", loggers=[end])
    except TrainingError as error:
        assert monotonic() - begun < 30
        return str(error)
    return "finished"


@pytest.mark.slow
@pytest.mark.parametrize(("way", "dying"), [(STAGES, 0), (MATRICES, 1)])
def test_where_one_is_killed_the_other_ends_with_a_named_error(
    way: dict[str, Any], dying: int, plain: Callable[..., dict[str, Any]], tmp_path: Path, together: Together
) -> None:
    changes = {**TEN, **way, "train.max_steps": 10**6, "train.save_every": 2}
    said = together(2, run_until_one_ends, plain("causal"), changes, tmp_path / "run", End(dying))
    assert said[dying] == "died"
    assert "a process of this run is gone" in said[1 - dying] and "--resume auto" in said[1 - dying]
    assert read_state(tmp_path / "run").step in (0, 2)
