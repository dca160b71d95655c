"""Runs by two processes that are the run by one: losses and norms of six updates, to 1e-5.

``python -m tests.train.shared_runs [PARTS OF NAMES]`` tries every way to train by DDP and by FSDP2, and prints "k of K,
and how many were refused by name". Without dropout, which each process draws for its own rows.
"""

import os
import sys
import tempfile
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import torch
from tests.train.processes import ended, forked, started
from tests.train.ways import ways

from transpect.base.errors import ConfigError
from transpect.train import Recipe, read_metrics, train
from transpect.train.parallel import ParallelSpec
from transpect.train.state import read_state

UPDATES = 6
REFUSED = 4


def run(recipe: Recipe, out: Path) -> int:
    """Train; the exit status, which is REFUSED where the recipe is refused by name."""
    os.fsync = lambda _handle: None
    try:
        train(recipe, out)
    except ConfigError as error:
        (out.parent / f"{out.name}.said").write_text(str(error))
        return REFUSED
    return 0


def distances(one: Path, other: Path) -> tuple[float, float]:
    """How far two runs are from each other, relative: the farthest loss or norm, and all weights together."""
    curves = [[line[key] for line in read_metrics(path) for key in ("loss", "grad_norm")] for path in (one, other)]
    a, b = (torch.tensor(curve, dtype=torch.float64) for curve in curves)
    x, y = (_weights(path) for path in (one, other))
    return float(((a - b) / a).abs().max()), float((x - y).norm() / x.norm())


def _weights(run: Path) -> torch.Tensor:
    return torch.cat([weight.flatten().double() for _, weight in sorted(read_state(run).part("model").items())])


def main() -> None:
    torch.set_num_threads(1)
    import_module("transpect.train.parallel.together")
    wanted = sys.argv[1:] or [""]
    good = tried = refused = 0
    with tempfile.TemporaryDirectory() as place:
        for name, make in ways(Path(place), dropout=0.0).items():
            if not any(part in name for part in wanted):
                continue
            recipe = make()
            short = replace(recipe, train=replace(recipe.train, max_steps=UPDATES, batch_size=4))
            folder = Path(place) / f"run-{name.replace(' ', '-')}"
            folder.mkdir()
            assert forked(partial(run, short, folder / "one")) == 0
            for kind in ("ddp", "fsdp"):
                tried += 1
                shared = replace(short, parallel=ParallelSpec(data=kind, heartbeat=100.0))  # type: ignore[arg-type]
                statuses = ended(started(2, partial(run, shared, folder / kind)))
                if statuses == [REFUSED] * 2:
                    refused += 1
                    said = (folder / f"{kind}.said").read_text()
                else:
                    curves, weights = distances(folder / "one", folder / kind) if statuses == [0, 0] else (9.0, 9.0)
                    good += curves <= 1e-5
                    said = f"curves {curves:.1e}, weights {weights:.1e}"
                print(f"{name}, {kind}: {said}", flush=True)
    print(f"{good} of {tried}, and {refused} refused by name")


if __name__ == "__main__":
    main()
