"""Runs that other numbers of processes go on with, 2 → 1 → 4, are the run that one process makes without a stop.

``python -m tests.train.resharded_runs [PARTS OF NAMES]`` tries every optimizer, and what is trained in part, and prints
"k of K": losses and norms of six updates, to 1e-5.
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
from tests.train.shared_runs import UPDATES, distances
from tests.train.ways import ways

from transpect.train import Recipe, train
from transpect.train.parallel import ParallelSpec

STOPS = ((2, 2), (1, 4), (4, UPDATES))
"""By how many processes up to which step."""


def run(recipe: Recipe, out: Path, last: int) -> None:
    os.fsync = lambda _handle: None
    train(recipe, out, resume="auto", should_stop=lambda made: made == last)


def distance(recipe: Recipe, folder: Path) -> tuple[float, float]:
    """How far curves and weights are from those of a run by one process, the relative largest."""
    sharded = replace(recipe, parallel=ParallelSpec(data="fsdp", heartbeat=100.0))
    assert forked(partial(run, recipe, folder / "one", UPDATES)) == 0
    for size, last in STOPS:
        one = recipe if size == 1 else sharded
        assert ended(started(size, partial(run, one, folder / "parts", last)), 300.0) == [0] * size
    return distances(folder / "one", folder / "parts")


def main() -> None:
    torch.set_num_threads(1)
    import_module("transpect.train.parallel.together")
    wanted, good, tried = sys.argv[1:] or ["causal, ", "lora", "frozen"], 0, 0
    with tempfile.TemporaryDirectory() as place:
        for name, make in ways(Path(place), dropout=0.0).items():
            if any(part in name for part in wanted):
                recipe = make()
                short = replace(recipe, train=replace(recipe.train, max_steps=UPDATES, batch_size=4))
                tried += 1
                (Path(place) / f"run-{tried}").mkdir()
                curves, weights = distance(short, Path(place) / f"run-{tried}")
                good += curves <= 1e-5
                print(f"{name}: curves {curves:.1e}, weights {weights:.1e}", flush=True)
    print(f"{good} of {tried}")


if __name__ == "__main__":
    main()
