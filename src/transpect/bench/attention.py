"""What each way to compute attention costs over length, beside torch's own with a dense mask.

Each measurement is a process of its own (see `transpect.bench.workers.attention.ours`); what is compared takes turns.
An exponent is the slope of the logarithm of a cost over that of the length: 1 is linear.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from transpect.bench.harness import Options, Sitting
from transpect.bench.results import Bar, Figure, Ratio, ratios
from transpect.bench.worker import OURS, Worker, script_of
from transpect.bench.workers.attention.ours import HEAD_DIM, HEADS, WAYS, WINDOW, rule_of

__all__ = ["TASK", "Attending", "measure"]

TASK: Final = "attention"
LENGTHS: Final = (4096, 8192, 16384)
PATTERNS: Final = ("longformer", "bigbird")
BASE, TABLE = "causal: sdpa", (1024, 8192)
FEATURES: Final = (16, 64, 256, 1024)
TIME, MEMORY = COSTS = ("seconds", "memory")


@dataclass(frozen=True)
class Attending:
    """How much is measured.

    Attributes:
        calls: whose median is the time of a measurement.
        table: rounds of a table of every way at two lengths; 0 leaves it out.
    """

    calls: int = 3
    table: int = 3


@dataclass(frozen=True)
class Way:
    """What one process measures: see the worker's ``load``."""

    way: str
    length: int
    backward: bool = True


def measure(options: Options, what: Attending) -> Sitting:
    """Measure growth, time and memory beside torch, the errors of Performer, and the table.

    Raises:
        PeerError: a process fails, e.g. for want of memory.
    """
    with Sitting(options) as sitting:
        sitting.results.ratios += pairs(sitting, what.calls)
        options.see("errors of performer")
        sitting.results.ratios += performer_errors()
        if what.table:
            sitting.results.figures += table(sitting, what.table)
    return sitting


class Rounds:
    """All measurements, by what was measured: one a round."""

    def __init__(self, sitting: Sitting, calls: int) -> None:
        self._sitting, self._calls = sitting, calls
        self.taken: dict[Way, list[dict[str, float]]] = {}

    def take(self, ways: Sequence[Way]) -> None:
        """One round."""
        threads = self._sitting.options.threads
        for own in ways:
            with Worker(OURS, script_of(TASK, OURS), threads=threads) as worker:
                worker.load(way=own.way, length=own.length, backward=own.backward, threads=threads)
                self.taken.setdefault(own, []).append(worker.run(calls=self._calls))
                self._sitting.results.versions[OURS] = worker.facts["versions"]

    def of(self, own: Way, cost: str) -> list[float]:
        """One cost in all rounds."""
        return [answer[cost] for answer in self.taken[own]]

    def ratio(self, cost: str, above: Way, below: Way) -> tuple[float, ...]:
        """One cost over that of another in the same round."""
        return ratios(self.of(above, cost), self.of(below, cost))

    def exponent(self, cost: str, ways: Sequence[Way]) -> tuple[float, ...]:
        """How a cost grows with length."""
        x = [math.log(own.length) for own in ways]
        rounds = zip(*(self.of(own, cost) for own in ways), strict=True)
        return tuple(statistics.linear_regression(x, [math.log(value) for value in one]).slope for one in rounds)


def pairs(sitting: Sitting, calls: int) -> list[Ratio]:
    """What is judged: how our sparse ways grow, and how many times faster and smaller they are."""
    taken, masked = Rounds(sitting, calls), "torch with a mask"
    window = [[Way("window: block_sparse", length, backward) for length in LENGTHS] for backward in (False, True)]
    ours, theirs = window[1][1], Way("window: torch, mask", 8192)
    tiles, naive = Way("causal: flash in tiles", 8192), Way("causal: naive", 8192)
    patterns = {name: [Way(f"{name}: {way}", 8192) for way in ("block_sparse", "torch, mask")] for name in PATTERNS}
    biased, whole = Way("learned bias: sdpa", 4096), Way("learned bias: torch", 4096)
    for number in range(sitting.options.rounds):
        sitting.options.see(f"round {number + 1} of {sitting.options.rounds}")
        both = [own for pair in patterns.values() for own in pair]
        taken.take([*window[0], *window[1], theirs, tiles, naive, *both, biased, whole])
    found = [
        Ratio(
            f"window {WINDOW}, {passes}, 4k to 16k", "length", f"exponent of {cost}", taken.exponent(cost, ways), LINEAR
        )
        for ways, passes in zip(window, ("forward", "forward and backward"), strict=True)
        for cost in COSTS
    ]
    compared = [
        (f"window {WINDOW} at 8k", masked, theirs, ours, 4.0, 8.0),
        ("flash in tiles at 8k", "naive", naive, tiles, None, 20.0),
        *((f"{name} at 8k", masked, torch_s, own, None, None) for name, (own, torch_s) in patterns.items()),
        ("learned bias at 4k", "torch", whole, biased, None, 8.0),
    ]
    for case, against, above, below, faster, smaller in compared:
        for words, cost, bar in (("times faster", TIME, faster), ("times smaller", MEMORY, smaller)):
            found.append(
                Ratio(case, against, words, taken.ratio(cost, above, below), None if bar is None else Bar(bar))
            )
    return found


LINEAR: Final = Bar(1.1, least=False)


def performer_errors() -> list[Ratio]:
    """How far Performer's output is from softmax attention's, |out − exact| / |exact|, over 10 draws of its features.

    Queries and keys are normal, so that scores have the standard deviation that is told; where that is ¼, the error
    must fall as the features grow.
    """
    import torch

    from transpect.core.kernels.performer import mean_error

    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, HEADS, 512, HEAD_DIM, generator=generator) for _ in range(3))
    found: list[Ratio] = []
    for rule, deviation in (("full", 0.25), ("causal", 0.25), ("full", 1.0)):
        before = math.inf
        scale = math.sqrt(deviation)
        for features in FEATURES:
            errors = tuple(
                mean_error(query * scale, key * scale, value, rule_of(rule), features=features, seeds=[seed])
                for seed in range(10)
            )
            bar = Bar(before, least=False) if deviation < 1.0 and before < math.inf else None
            case = f"performer, {rule}, scores ± {deviation:g}, {features} features"
            found.append(Ratio(case, "softmax", "error", errors, bar))
            before = statistics.median(errors)
    return found


def table(sitting: Sitting, rounds: int) -> list[Figure]:
    """Every way at two lengths, forward and backward: time and memory over those of torch's fused causal attention."""
    taken = Rounds(sitting, calls=1)
    for number in range(rounds):
        sitting.options.see(f"table, round {number + 1} of {rounds}")
        taken.take([Way(way, length) for length in TABLE for way in WAYS])
    return [
        Figure(
            "forward and backward",
            way,
            f"{cost} at {length:,}",
            "× sdpa",
            taken.ratio(cost, Way(way, length), Way(BASE, length)),
        )
        for way in WAYS
        for length in TABLE
        for cost in COSTS
    ]
