"""Runs of 20 updates that are killed (SIGKILL) after the tenth and go on from the state after the eighth, bit for bit.

``python -m tests.train.killed_runs [PARTS OF NAMES]`` tries every way to train, without and with two threads that make
batches ahead, and prints "k of K".
"""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from tests.train.processes import forked
from tests.train.ways import STEPS, ways

from transpect.data.batch import Batch
from transpect.train import Quiet, Recipe, read_metrics, session, train
from transpect.train.state import read_state

SAVED, DEAD = 8, 10
CLOCKS = {"seconds", "tokens_per_s"}
ENDLESS = ("fable", "mixture")
"""Sources that have no epochs of their own."""


class Die(Quiet):
    """Kills the process after an update."""

    def __init__(self, step: int) -> None:
        self._step = step

    def advance(self, step: int) -> None:
        if step == self._step:
            os.kill(os.getpid(), signal.SIGKILL)


def run(recipe: Recipe, out: Path, dead: int = 0) -> int:
    """Train in a process of its own, which may die on the way; its exit status. What every update read is noted."""

    def work() -> None:
        os.fsync = lambda _handle: None  # what it gives, safety from a power cut, nothing here can see
        real = session.update
        read = (out.parent / f"{out.name}.read").open("a", encoding="utf-8")

        def noted(model: Any, optimizer: Any, batches: list[Batch], **options: Any) -> Any:
            print(options["rate"], *map(fingerprint, batches), file=read, flush=True)
            return real(model, optimizer, batches, **options)

        session.update = noted  # type: ignore[assignment]
        train(recipe, out, resume="auto", loggers=[Die(dead)])

    return forked(work)


def fingerprint(batch: Batch) -> str:
    """Of all that a batch holds."""
    held = [batch.ids, batch.labels, *_tags(batch.tags), batch.source_ids, *_tags(batch.source_tags), batch.noise]
    read = b"".join(x.numpy().tobytes() if isinstance(x, torch.Tensor) else repr(x).encode() for x in held)
    return sha256(read).hexdigest()[:16]


def _tags(tags: Any) -> Iterator[Any]:
    return iter(()) if tags is None else iter(vars(tags).values())


def differences(one: Path, other: Path) -> list[str]:
    """What of two runs is not bit for bit the same: batches and rates, metrics, weights and all else of the state."""
    (a, b), found = (read_state(path) for path in (one, other)), []
    found += [name for name in a.tensors.keys() | b.tensors.keys() if not _same(a.tensors, b.tensors, name)]
    keys = (a.data.keys() | b.data.keys()) - {"recipe", "files"}
    found += [key for key in keys if _still(a.data.get(key)) != _still(b.data.get(key))]
    lines = [[_still(line) for line in read_metrics(path)] for path in (one, other)]
    return [*found, *(["metrics"] if lines[0] != lines[1] or len(lines[0]) != STEPS else [])]


def _same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], name: str) -> bool:
    return name in a and name in b and a[name].dtype == b[name].dtype and torch.equal(a[name], b[name])


def _still(value: Any) -> Any:
    return {key: kept for key, kept in value.items() if key not in CLOCKS} if isinstance(value, dict) else value


def faults(recipe: Recipe, folder: Path) -> list[str]:
    """What goes wrong where a run is killed and goes on: nothing."""
    straight, killed = folder / "straight", folder / "killed"
    statuses = [run(recipe, straight), run(recipe, killed, DEAD)]
    if statuses != [0, -signal.SIGKILL]:
        return [f"exit statuses {statuses}"]
    found = [] if (saved := read_state(killed).step) == SAVED else [f"killed after {DEAD}, it stands at {saved}"]
    if (status := run(recipe, killed)) != 0:
        return [*found, f"exit status {status}"]
    expected, seen = ((folder / f"{name}.read").read_text().splitlines() for name in ("straight", "killed"))
    if recipe.train.precision == "fp32" and seen != expected[:DEAD] + expected[SAVED:]:
        found.append("batches")
    if len({line["epoch"] for line in read_metrics(straight)}) < 2 and recipe.data.train.kind not in ENDLESS:
        found.append("it does not cross an epoch")
    return found + differences(straight, killed)


def main() -> None:
    torch.set_num_threads(1)
    wanted = sys.argv[1:] or [""]
    with tempfile.TemporaryDirectory() as place:
        folder, good, tried = Path(place), 0, 0
        for name, make in ways(folder).items():
            for workers in (0, 2):
                title = f"{name}, {workers} workers"
                if any(part in title for part in wanted):
                    tried += 1
                    (folder / f"run-{tried}").mkdir()
                    recipe = make()
                    one = replace(recipe, data=replace(recipe.data, workers=workers))
                    wrong = faults(one, folder / f"run-{tried}")
                    good += not wrong
                    print(f"{title}: {', '.join(wrong[:9]) or 'the same'}", flush=True)
        print(f"{good} of {tried}")


if __name__ == "__main__":
    main()
