"""Whole runs of training: the trainer that a user calls, with logging, evaluation and checkpoints on, beside others'.

All begin with the same weights of a small GPT-2, read the same rows in the same order, log, evaluate and save as often,
and keep weights and moments in float32. No weight decays, for programs differ in which do. First every program is as
it comes, then all with glibc's setting of ours, as in `transpect.bench.train`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from transpect.bench import train as updates
from transpect.bench.harness import Options, Sitting, Taken, Work
from transpect.bench.results import Bar
from transpect.bench.train import Training
from transpect.bench.worker import OURS

__all__ = ["TASK", "measure", "prepare"]

TASK: Final = "trainer"
INPUT: Final = Bar(0.02, least=False)
"""Share of a run that may be spent on waiting for batches."""
HELD: Final = 2
"""Batches to evaluate on."""


def measure(options: Options, what: Training) -> Sitting:
    """Measure every format, as shipped and with the same allocator.

    Args:
        options: of the sitting.
        what: is trained; ``steps`` updates are a run, which is logged, evaluated and saved twice.

    Raises:
        PeerError: ours can't train.
    """
    with TemporaryDirectory() as folder, Sitting(options) as sitting:
        for dtype in what.formats:
            common = prepare(Path(folder) / dtype, what, dtype)
            for shared in (False, True):
                name = f"{dtype}, {'one allocator setting' if shared else 'as shipped'}"
                loads = updates.loads_of(options, common, shared=shared)
                limits = {
                    (peer, "run" if of == "updates" else of): bar
                    for (peer, of), bar in updates.bars(shared=shared).items()
                }
                with sitting.field(TASK, name, loads, {peer for peer, _ in limits}) as field:
                    work = Work("", {"steps": what.steps}, {"run": "tokens/s"}, {"peak memory": "MiB"}, limits, _same)
                    _shares(sitting, name, sitting.race(field, work))
    return sitting


def prepare(folder: Path, what: Training, dtype: str) -> dict[str, Any]:
    """Write weights, a recipe and the rows that it reads; return what every ``load`` is given."""
    import torch
    from safetensors.torch import save_file

    from transpect.train import load_recipe
    from transpect.train.job import build

    folder.mkdir(parents=True)
    common = updates.prepare(folder, what)
    every = max(1, what.steps // 2)
    log_every = max(1, what.steps // 4)
    stories = 3 + what.rows * what.length * (what.steps + HELD) // 40  # of at least so many tokens
    recipe = {
        "model": {"path": common["directory"]},
        "tokenizer": {"kind": "char"},
        "data": {
            "train": {"kind": "fable", "stories": stories},
            "valid": {"kind": "fable", "stories": HELD * (3 + what.rows * what.length // 40), "seed": 1},
            "objective": {"kind": "causal", "separate": False},
            "seq_len": what.length,
        },
        "train": {
            "max_steps": what.steps,
            "batch_size": what.rows,
            "optimizer": {"kind": "adamw", "lr": common["lr"], "betas": [0.9, 0.95], "weight_decay": 0.0},
            "schedule": {"kind": "constant"},
            "clip": common["clip"],
            "precision": "fp32" if dtype == "float32" else "bf16",
            "eval_every": every,
            "save_every": every,
            "log_every": log_every,
        },
        "logging": {"progress": "none"},
    }
    file = folder / "recipe.yaml"
    file.write_text(json.dumps(recipe), encoding="utf-8")
    job = build(load_recipe(file))
    assert job.valid is not None
    rows = {"train": islice(job.batches, what.steps), "valid": job.valid.once()}
    pairs = {
        name: torch.cat([torch.stack([batch.ids, batch.labels], 1) for batch in batches])
        for name, batches in rows.items()
    }
    save_file(pairs, folder / "rows.safetensors")
    return {
        **common,
        "dtype": dtype,
        "recipe": str(file),
        "rows": str(folder / "rows.safetensors"),
        "batch": what.rows,
        "tokens": what.rows * what.length,
        "every": every,
        "log_every": log_every,
    }


def _same(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """How far two programs do the same."""
    return f"valid loss at the end {theirs['loss']:.4f}, ours {ours['loss']:.4f}"


def _shares(sitting: Sitting, case: str, taken: Taken) -> None:
    """What of our own run is no update."""
    for name in taken[OURS][0]["shares"]:
        values = tuple(answer["shares"][name] for answer in taken[OURS])
        sitting.judge(case, "the whole run", f"{name}, share", values, INPUT if name == "input" else None)
