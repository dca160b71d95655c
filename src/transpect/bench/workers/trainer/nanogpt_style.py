"""A script as nanoGPT's ``train.py`` is one: a loop over the model of ``train/nanogpt_style.py``, eager or compiled,
that prints losses, estimates the valid loss and saves a checkpoint as often as the others."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn


def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """``directory``, ``dtype``, ``threads``, ``keep``, ``rows`` (a file of ``train`` and ``valid``, [N, 2, T]: what is
    read and what is answered), ``batch``, ``every``, ``lr``, ``clip``; ``compiled``."""
    if options["keep"]:
        libc = ctypes.CDLL(None)
        assert libc.mallopt(-3, 1 << 30) and libc.mallopt(-1, 1 << 30)
    torch.set_num_threads(options["threads"])
    style = _model_file()
    model = style.opened(Path(options["directory"]))
    begun_with = {name: weight.clone() for name, weight in model.state_dict().items()}
    loss_of: Any = torch.compile(model) if options["compiled"] else model
    rows: Any = load_file(options["rows"])
    train, valid = (rows[name].split(options["batch"]) for name in ("train", "valid"))
    lower = options["dtype"] != "float32"

    def loss(batch: torch.Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=lower):
            return loss_of(batch[:, 0], batch[:, 1])

    @torch.no_grad()
    def estimate() -> float:
        model.eval()
        mean = sum(float(loss(batch)) for batch in valid) / len(valid)
        model.train()
        return mean

    def run(asked: dict[str, Any]) -> dict[str, Any]:
        model.load_state_dict(begun_with)
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=options["lr"], betas=(0.9, 0.95), weight_decay=0.0, fused=True
        )
        estimated = 0.0
        with TemporaryDirectory() as folder:
            begun = perf_counter()
            for step in range(1, asked["steps"] + 1):
                own = loss(train[step - 1])
                own.backward()
                nn.utils.clip_grad_norm_(model.parameters(), options["clip"])
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                if step % options["log_every"] == 0:
                    sys.stderr.write(f"iter {step}: loss {own.item():.4f}\n")
                if step % options["every"] == 0:
                    estimated = estimate()
                    save_file(_tensors(model, optimizer), Path(folder) / "ckpt.safetensors")
            seconds = perf_counter() - begun
        return {
            "count": {"run": asked["steps"] * options["tokens"]},
            "seconds": {"run": seconds},
            "sizes": {"peak memory": style.peak()},
            "loss": estimated,
        }

    return {"versions": {"torch": str(torch.__version__)}}, run


def _tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Weights and what the optimizer remembers."""
    states = optimizer.state_dict()["state"].items()
    moments = {f"optimizer.{index}.{name}": value for index, state in states for name, value in state.items()}
    return {**model.state_dict(), **moments}


def _model_file() -> Any:
    file = Path(__file__).parents[1] / "train" / "nanogpt_style.py"
    spec = importlib.util.spec_from_file_location("style", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
