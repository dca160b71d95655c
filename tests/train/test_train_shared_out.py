"""Optimizers, precision and activations by two processes are those of one."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from transpect.core import Transformer, override, preset
from transpect.train import Adafactor, AdamW, Lion, Muon, Optimizer, Sgd, parse_recipe, read_metrics, train
from transpect.train.criteria import CROSS_ENTROPY
from transpect.train.optimizers import set_rate
from transpect.train.parallel import ALONE, ParallelSpec, World
from transpect.train.parallel.joining import joined

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


OPTIMIZERS: dict[str, Optimizer] = {
    "adamw": AdamW(weight_decay=0.1),
    "adafactor": Adafactor(),
    "adafactor with a mean": Adafactor(beta1=0.9, scale_by_weight=False),
    "lion": Lion(),
    "muon": Muon(),
    "sgd": Sgd(momentum=0.9, nesterov=True),
}


def weights_after(optimizer: Optimizer, world: World) -> list[Tensor]:
    """Six updates with gradients that are given, whatever the world."""
    sizes = {"d_model": 16, "n_layers": 2, "n_heads": 2, "context_length": 8, "vocab_size": 11}
    model = Transformer(override(preset("gpt2"), sizes.items()), seed=1)
    world.spread(model, CROSS_ENTROPY)
    built = optimizer.build(model)
    generator = torch.Generator().manual_seed(0)
    for step in range(6):
        for weight in model.parameters():
            drawn = torch.randn(weight.shape, generator=generator) * 10.0 ** (step - 3)
            shared = isinstance(weight, DTensor)
            weight.grad = distribute_tensor(drawn, weight.device_mesh, weight.placements) if shared else drawn
        set_rate(built, 1e-2)
        built.step()
    return [weight.full_tensor() if isinstance(weight, DTensor) else weight.detach() for weight in model.parameters()]


def farthest(kind: Any) -> dict[str, float]:
    """How far the weights of several processes are from those of one, for each optimizer."""
    with joined(ParallelSpec(data=kind, heartbeat=100.0), torch.device("cpu")) as world:
        shared = {name: weights_after(optimizer, world) for name, optimizer in OPTIMIZERS.items()}
    found = {}
    for name, weights in shared.items():
        alone = weights_after(OPTIMIZERS[name], ALONE)
        found[name] = max(float((a - b).norm() / b.norm()) for a, b in zip(weights, alone, strict=True))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "size"), [("ddp", 2), ("fsdp", 2), ("fsdp", 3)])
def test_of_equal_gradients_every_optimizer_makes_equal_updates(
    kind: str, size: int, together: Callable[..., list[Any]]
) -> None:
    """To the last bit but one, where torch's fused AdamW takes several numbers at a time and the last ones singly."""
    for found in together(size, farthest, kind, seconds=300.0):
        assert all(far <= 1e-6 for far in found.values()), found
        assert all(found[name] == 0.0 for name in ("lion", "sgd")), found


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
    # Muon rounds to bfloat16 and Lion to signs, so that the last bit of the norm by which FSDP clips may count
    tolerance = 1e-4 if kind == "fsdp" and way in ("muon", "lion") else 1e-5
    assert curves(tmp_path / "two") == pytest.approx(curves(tmp_path / "one"), rel=tolerance)
