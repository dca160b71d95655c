"""Optimizers, precision and activations by two processes are those of one."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from transpect.train import parse_recipe, read_metrics, train

import_module("transpect.train.parallel.together")  # once, before processes are forked

STILL = {"model.dropout": 0.0, "model.attention.dropout": 0.0, "model.embedding.dropout": 0.0}
FOUR = {"train.max_steps": 4, "train.batch_size": 4, "train.eval_every": 4, **STILL}
WAYS: dict[str, dict[str, Any]] = {
    "adafactor": {"train.optimizer": {"kind": "adafactor", "lr": 1e-2}},
    "lion": {"train.optimizer": {"kind": "lion", "lr": 1e-4}},
    "muon": {"train.optimizer": {"kind": "muon", "lr": 1e-3}},
    "sgd": {"train.optimizer": {"kind": "sgd", "lr": 1e-2, "momentum": 0.9, "nesterov": True}},
    "rates": {"train.layer_decay": 0.5, "train.groups": [{"match": "*.bias", "rate": 2.0}]},
    "checkpoint": {"train.activations": "checkpoint"},
}


def run_of(plain: dict[str, Any], changes: dict[str, Any], out: Path) -> int:
    return train(parse_recipe(plain, changes.items()), out).step


def curves(run: Path) -> list[float]:
    return [float(line[name] or 0.0) for line in read_metrics(run) for name in ("loss", "grad_norm")]


@pytest.mark.slow
@pytest.mark.parametrize(("way", "kind"), [*((way, "fsdp") for way in WAYS), ("muon", "ddp")])
def test_two_processes_are_one(
    way: str, kind: str, plain: Callable[..., dict[str, Any]], tmp_path: Path, together: Callable[..., list[Any]]
) -> None:
    changes = {**FOUR, **WAYS[way]}
    run_of(plain("causal"), changes, tmp_path / "one")
    assert together(2, run_of, plain("causal"), {**changes, "parallel.data": kind}, tmp_path / "two") == [4, 4]
    # Muon rounds to bfloat16 and Lion to signs, so that the last bit of a gradient may count
    tolerance = 1e-2 if way in ("muon", "lion") else 1e-4
    assert curves(tmp_path / "two") == pytest.approx(curves(tmp_path / "one"), rel=tolerance)
