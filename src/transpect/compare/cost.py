"""Time and memory of a training step, each measured in a process of its own so that a peak is that step's alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transpect.base.codec import Data, to_data
from transpect.base.errors import ConfigError, first_line
from transpect.compare.plan import Entry, Plan
from transpect.compare.results import Spread
from transpect.compare.rows import Rows, cut_rows
from transpect.train.material import documents, make_tokenizer

COSTS = "costs.jsonl"
ROUNDS = 3


@dataclass(frozen=True)
class Cost:
    """A forward and a backward pass over as many tokens at every length, over `ROUNDS` fresh processes.

    Attributes:
        seconds: the median of several steps, spread over the processes.
        mebibytes: the peak of resident memory over that of the process before it held the model: weights, gradients
            and activations.
        time: seconds as a multiple of the first variant's at the same length and in the same round; None where that
            has none.
        memory: mebibytes likewise.
    """

    seconds: Spread
    mebibytes: Spread
    time: Spread | None
    memory: Spread | None


def measure_costs(plan: Plan, out: Path) -> dict[str, dict[int, Cost]]:
    """Measure every variant at every length where it can be evaluated; each measurement is a line of `COSTS`.

    The rounds go through all variants in turn, so that a machine that slows down slows all of them.

    Raises:
        ConfigError: a system without ``/proc/self/status``, or a step that fails.
    """
    if not Path("/proc/self/status").is_file():
        raise ConfigError("--cost reads peak memory from /proc/self/status, which this system lacks")
    tokenizer = make_tokenizer(plan.recipe.tokenizer, documents(plan.recipe)[0])
    rows = cut_rows(plan.recipe, tokenizer, plan.spec.lengths, plan.spec.tokens)
    measured: dict[tuple[str, int], list[tuple[float, float]]] = {}
    with (out / COSTS).open("w", encoding="utf-8") as file:
        for number in range(ROUNDS):
            for entry, n in _cells(plan):
                seconds, mebibytes = _step(_order(plan, entry, rows[n]))
                measured.setdefault((entry.variant.name, n), []).append((seconds, mebibytes))
                line = {
                    "variant": entry.variant.name,
                    "length": n,
                    "round": number,
                    "seconds": seconds,
                    "mebibytes": mebibytes,
                }
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
    first = plan.entries[0].variant.name
    costs: dict[str, dict[int, Cost]] = {}
    for (name, n), pairs in measured.items():
        costs.setdefault(name, {})[n] = cost_of(pairs, measured.get((first, n)))
    return costs


def cost_of(pairs: list[tuple[float, float]], first: list[tuple[float, float]] | None) -> Cost:
    """Rounds of (seconds, mebibytes) as means and as ratios to another variant's, round by round."""
    columns = list(zip(*pairs, strict=True))
    ratios: list[Spread | None] = [None, None]
    if first is not None:
        ratios = [Spread.of([mine[i] / theirs[i] for mine, theirs in zip(pairs, first, strict=True)]) for i in (0, 1)]
    return Cost(Spread.of(columns[0]), Spread.of(columns[1]), *ratios)


def _cells(plan: Plan) -> Iterator[tuple[Entry, int]]:
    for entry in plan.entries:
        for n in plan.spec.lengths:
            if entry.config is not None and n not in entry.refused:
                yield entry, n


def _order(plan: Plan, entry: Entry, rows: Rows) -> Data:
    """What `transpect.compare.step` reads: a config and rows with as many tokens as a batch of training has."""
    spec = plan.recipe.train
    batch = next(rows.batches(spec.batch_size // rows.times))
    return {
        "config": to_data(entry.config),
        "ids": batch.ids.tolist(),
        "labels": batch.labels.tolist(),
        "precision": spec.precision,
        "threads": spec.threads,
    }


def _step(order: Data) -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, "-m", "transpect.compare.step"],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it was killed"]
        raise ConfigError("a step must run to be measured", value=first_line(RuntimeError(lines[-1])))
    found: Any = json.loads(done.stdout)
    return float(found["seconds"]), float(found["mebibytes"])
