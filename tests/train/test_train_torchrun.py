"""A run that `torchrun` starts by the command line, and goes on with other numbers of processes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

from transpect.train import parse_recipe, read_metrics, train

STILL = {f"model.{part}": 0.0 for part in ("dropout", "attention.dropout", "embedding.dropout")}


def start(size: int, *arguments: str) -> None:
    """``torchrun --nproc-per-node SIZE -m transpect …``, or without it for one process."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)] if size > 1 else []
    command = [sys.executable, *launch, "-m", "transpect", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_two_processes_then_one_then_four(plain: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    data = plain("causal")
    data["model"] |= {"d_model": 32, "n_layers": 2}
    data["train"] |= {"max_steps": 9, "batch_size": 4, "schedule": {"kind": "constant", "warmup": 2}, "save_every": 3}
    changes = {**STILL, "train.optimizer.lr": 1e-3, "parallel.data": "fsdp"}
    train(parse_recipe(data, changes.items()), tmp_path / "one")
    recipe, run = tmp_path / "recipe.yaml", tmp_path / "run"
    recipe.write_text(json.dumps(data), encoding="utf-8")
    options = [text for key, value in changes.items() for text in (f"--{key}", str(value))]
    for size, steps in ((2, 3), (1, 6), (4, 9)):
        more = ["--train.max_steps", str(steps), "--resume", "auto"]
        start(size, "train", str(recipe), "--out", str(run), *options, *more)
    names = ("step", "epoch", "tokens", "loss", "grad_norm", "lr")
    straight, gone_on = (
        [[line[name] for name in names] for line in read_metrics(path)] for path in (tmp_path / "one", run)
    )
    assert len(straight) == len(gone_on) == 9
    for one, other in zip(straight, gone_on, strict=True):
        assert other == pytest.approx(one, rel=1e-5)
    expected, found = (load_file(path / "last" / "model.safetensors") for path in (tmp_path / "one", run))
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert_close(found[name], value, rtol=1e-5, atol=1e-6)
