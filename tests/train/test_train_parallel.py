"""Several processes make the updates that one would make: loss, gradient, its norm, and what is measured."""

import os
import signal
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from transpect.base.errors import ConfigError
from transpect.core.config import override
from transpect.core.model import Transformer
from transpect.core.presets import preset
from transpect.core.tags import Tags
from transpect.data.batch import IGNORE, Batch
from transpect.train import Quiet, Recipe, TrainingError, parse_recipe, read_metrics, train
from transpect.train.criteria import TokenCrossEntropy
from transpect.train.parallel import ALONE, ParallelSpec, World
from transpect.train.parallel.joining import joined
from transpect.train.parallel.shares import check_shares, deal, share
from transpect.train.state import read_state
from transpect.train.updates import update

import_module("transpect.train.parallel.together")  # once, before processes are forked

Make = Callable[..., Recipe]
Together = Callable[..., list[Any]]

CPU = torch.device("cpu")
STILL = {f"model.{part}": 0.0 for part in ("dropout", "attention.dropout", "embedding.dropout")}
"""Dropout is drawn by each process for its own rows, so no other number of them draws the same."""


class Kept(torch.optim.SGD):
    """Makes no step, and keeps the gradient, whole."""

    seen: dict[int, Tensor]

    def step(self, closure: Any = None) -> None:
        weights = self.param_groups[0]["params"]
        self.seen = {i: whole(weight.grad).clone() for i, weight in enumerate(weights) if weight.grad is not None}


def whole(value: Tensor) -> Tensor:
    return value.full_tensor() if isinstance(value, DTensor) else value


def batch_with(*counts: int) -> Batch:
    """A row for each count, with as many labels."""
    ids = torch.arange(len(counts) * 8).view(-1, 8) % 11
    labels = ids.clone()
    for row, count in enumerate(counts):
        labels[row, count:] = IGNORE
    return Batch(ids, Tags.dense(*ids.shape), labels)


def small_model() -> Transformer:
    sizes: dict[str, Any] = {"d_model": 16, "n_layers": 2, "n_heads": 2, "context_length": 8, "vocab_size": 11}
    still = {key.removeprefix("model."): value for key, value in STILL.items()}
    return Transformer(override(preset("gpt2"), (sizes | still).items()), seed=1)


def gradient(world: World, batches: list[Batch], smoothing: float) -> tuple[dict[int, Tensor], float, float]:
    model = small_model()
    criterion = world.spread(model, TokenCrossEntropy(smoothing))
    optimizer = Kept(model.parameters(), lr=0.0)
    made = update(model.train(), optimizer, batches, rate=0.1, clip=None, criterion=criterion, world=world)
    return optimizer.seen, float(made.loss), float(made.grad_norm)


CASES = [
    ([batch_with(5, 1, 0)], 0.0),
    ([batch_with(5, 1, 0)], 0.1),
    ([batch_with(8, 2, 1), batch_with(0, 0, 2)], 0.1),
    ([batch_with(8, 2), batch_with(0, 0), batch_with(1, 0)], 0.0),
]


def gradients_of(kind: Any) -> list[tuple[dict[int, Tensor], float, float]]:
    with joined(ParallelSpec(data=kind), CPU) as world:
        found = [gradient(world, *case) for case in CASES]
    return [({i: value.tolist() for i, value in seen.items()}, loss, norm) for seen, loss, norm in found]  # type: ignore[misc]


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_processes_with_5_1_and_0_labels_have_the_gradient_of_all_of_them(kind: str, together: Together) -> None:
    alone = [gradient(ALONE, *case) for case in CASES]
    for found in together(3, gradients_of, kind):
        for (seen, loss, norm), (expected, its_loss, its_norm) in zip(found, alone, strict=True):
            assert seen.keys() == expected.keys()
            for i, value in expected.items():
                torch.testing.assert_close(torch.tensor(seen[i]), value, rtol=1e-6, atol=1e-6 * its_norm)
            assert loss == pytest.approx(its_loss, rel=1e-6)
            assert norm == pytest.approx(its_norm, rel=1e-6)


@pytest.mark.parametrize("size", range(1, 9))
@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
def test_every_row_of_an_update_is_read_once_whatever_the_number_of_processes(count: int, size: int) -> None:
    update_ = [batch_with(*range(8)) for _ in range(count)]
    for number, batch in enumerate(update_):
        batch.ids.add_(100 * number)
    shares = [share(update_, rank, size) for rank in range(size)]
    assert len({len(own) for own in shares}) == 1
    rows = torch.cat([batch.ids for own in shares for batch in own])
    assert sorted(rows.tolist()) == sorted(torch.cat([batch.ids for batch in update_]).tolist())
    passes = [list(deal(iter(update_), rank, size)) for rank in range(size)]
    assert {len(own) for own in passes} == {-(-count // size)}
    assert sum(weight * batch.n_labels for own in passes for batch, weight in own) == sum(
        batch.n_labels for batch in update_
    )


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_of_an_example_of_several_texts_all_go_to_one_process(size: int) -> None:
    pairs, texts = 5, 3
    ids = torch.arange(texts * pairs)[:, None] * 10 + torch.arange(2)
    batch = Batch(ids, Tags.dense(*ids.shape), torch.arange(pairs))
    parts = [share([batch], rank, size) for rank in range(size)]
    assert torch.cat([own.labels for (own,) in parts]).tolist() == list(range(pairs))
    for (own,) in parts:
        examples = own.ids.view(texts, len(own.labels), 2)
        assert torch.equal(examples, ids.view(texts, pairs, 2)[:, own.labels])
        assert own.tags.position.shape == own.ids.shape


def test_what_can_not_be_shared_out_is_refused(recipe_of: Make) -> None:
    check_shares(accumulate=8, batch_size=1, size=8)
    with pytest.raises(ConfigError, match=r"at least a row each.*train.accumulate a multiple of 8"):
        check_shares(accumulate=4, batch_size=1, size=8)
    with pytest.raises(ConfigError, match=r"got 'parallel.context: 2'"):
        recipe_of("causal", {"parallel.context": 2})


def run_of(plain: dict[str, Any], changes: dict[str, Any], out: Path, resume: str = "auto") -> int:
    return train(parse_recipe(plain, changes.items()), out, resume=resume).step


def curves(run: Path) -> list[float]:
    names = ("loss", "grad_norm", "valid_loss")
    return [float(line[name] or 0.0) for line in read_metrics(run) for name in names if name in line]


TEN = {"train.max_steps": 10, "train.batch_size": 4, "train.optimizer.lr": 1e-3, **STILL}


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["causal", "masked", "seq2seq"])
def test_ten_steps_by_several_processes_are_ten_steps_by_one(
    objective: str, plain: Callable[..., dict[str, Any]], tmp_path: Path, together: Together
) -> None:
    run_of(plain(objective), TEN, tmp_path / "one")
    expected = curves(tmp_path / "one")
    assert len(expected) == 10 + 10 + 4
    for kind in ("ddp", "fsdp"):
        for size in (2, 4):
            run = tmp_path / f"{kind}{size}"
            assert together(size, run_of, plain(objective), {**TEN, "parallel.data": kind}, run) == [10] * size
            assert curves(run) == pytest.approx(expected, rel=1e-5), (kind, size)
            names = {path.name for path in run.iterdir()}
            assert names == {path.name for path in (tmp_path / "one").iterdir()}


@pytest.mark.slow
def test_a_state_is_gone_on_from_by_another_number_of_processes(
    plain: Callable[..., dict[str, Any]], tmp_path: Path, together: Together
) -> None:
    """2 → 1 → 4 processes, sharded, whole, and sharded again."""
    recipe, sharded = plain("causal"), {**TEN, "parallel.data": "fsdp"}
    run_of(recipe, TEN, tmp_path / "one")
    run = tmp_path / "run"
    together(2, run_of, recipe, {**sharded, "train.max_steps": 3}, run)
    run_of(recipe, {**TEN, "train.max_steps": 6}, run)
    together(4, run_of, recipe, sharded, run)
    # the schedule of a shorter run is another one, so the same stops are made by one process
    one = tmp_path / "stops"
    for steps in (3, 6, 10):
        run_of(recipe, {**TEN, "train.max_steps": steps}, one)
    assert curves(run) == pytest.approx(curves(one), rel=1e-5)


class End(Quiet):
    """Sends a process a signal at a step, if it is the one."""

    def __init__(self, rank: int, number: signal.Signals) -> None:
        self.rank, self.number = rank, number

    def advance(self, step: int) -> None:
        if step == 3 and int(os.environ["RANK"]) == self.rank:
            os.kill(os.getpid(), self.number)


def run_until_one_ends(plain: dict[str, Any], changes: dict[str, Any], out: Path, end: End) -> str:
    begun = monotonic()
    try:
        train(parse_recipe(plain, changes.items()), out, resume="auto", loggers=[end])
    except TrainingError as error:
        assert monotonic() - begun < 30
        return str(error)
    return "finished"


LONG = {**TEN, "train.max_steps": 10**6, "train.save_every": 2}


@pytest.mark.slow
@pytest.mark.parametrize("dying", [0, 1])
def test_where_one_is_killed_the_other_ends_with_a_named_error_and_both_go_on(
    dying: int, plain: Callable[..., dict[str, Any]], tmp_path: Path, together: Together
) -> None:
    run = tmp_path / "run"
    said = together(2, run_until_one_ends, plain("causal"), LONG, run, End(dying, signal.SIGKILL))
    assert said[dying] == "died"
    assert "a process of this run is gone" in said[1 - dying] and "--resume auto" in said[1 - dying]
    assert read_state(run).step in (0, 2)
    together(2, run_of, plain("causal"), TEN, run)
    assert read_state(run).step == 10


@pytest.mark.slow
def test_one_that_is_stopped_is_missed(
    plain: Callable[..., dict[str, Any]], tmp_path: Path, together: Together, capfd: pytest.CaptureFixture[str]
) -> None:
    changes = {**LONG, "parallel.heartbeat": 3.0}
    end = End(1, signal.SIGSTOP)
    said = together(2, run_until_one_ends, plain("causal"), changes, tmp_path / "run", end, seconds=20.0)
    assert said == ["died", "silent"]
    assert "(got 'process 1, silent for 3 s')" in capfd.readouterr().err
