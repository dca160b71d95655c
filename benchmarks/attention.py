"""What each way to compute attention costs over length, beside torch's own with a dense mask, in one run.

    python benchmarks/attention.py            # 5 rounds, and then 3 of a table of all kernels
    python benchmarks/attention.py --quick    # 3 rounds of one call, and no table: within five minutes

One sequence, 4 heads of 64, float32, all cores. Each measurement is a process of its own; what is compared takes turns,
and a ratio is that of one round, given as the median of all rounds with the lowest and the highest. Time is the median
of three calls after a first one (`--quick`: one call). Memory is the highest resident size during a call above that
before it, when queries, keys, values and the gradient of the result are there: what the call itself takes, its own
results included. An exponent is the slope of the logarithm over that of the length. The last lines say which figures
fall short; the exit code is 1 if any does.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

HEADS, HEAD_DIM, WINDOW = 4, 64, 256
LENGTHS = (4096, 8192, 16384)


@dataclass(frozen=True)
class Work:
    """What one process measures.

    Attributes:
        way: how attention is computed; see `WAYS`.
        length: T = S.
        backward: forward and backward, or forward alone.
    """

    way: str
    length: int
    backward: bool = True


def _ours(kernel: str, rule: str, **options: Any) -> Callable[[int], Callable[..., Any]]:
    """A kernel of ours under a rule."""

    def make(length: int) -> Callable[..., Any]:
        import torch

        from transpect.base.codec import from_data
        from transpect.core.kernels import Kernel, Scoring, Sizes
        from transpect.core.kernels.linformer import LinformerWay
        from transpect.core.kernels.performer import PerformerWay
        from transpect.core.view import View

        way = from_data(Kernel, {"kind": kernel, **options}).build(Sizes(HEADS, HEADS, HEAD_DIM, length))
        if isinstance(way, PerformerWay):
            way.draw(layer=0, step=0)
        if isinstance(way, LinformerWay):
            with torch.no_grad():
                way.draw(torch.Generator().manual_seed(0))
        tags = _tags(length, rule)

        def call(query: Any, key: Any, value: Any) -> Any:
            return way.attend(query, key, value, View(_rule(rule), tags, tags), Scoring(HEAD_DIM**-0.5))

        return call

    return make


def _torch(rule: str) -> Callable[[int], Callable[..., Any]]:
    """torch's attention with the rule written out as a mask, as a program without a plan of blocks would do it."""

    def make(length: int) -> Callable[..., Any]:
        from torch.nn.functional import scaled_dot_product_attention

        tags = _tags(length, rule)

        def call(query: Any, key: Any, value: Any) -> Any:
            mask = _rule(rule).mask(tags, tags)[:, None]
            return scaled_dot_product_attention(query, key, value, mask)

        return call

    return make


def _learned_bias(way: str) -> Callable[[int], Callable[..., Any]]:
    """T5's learned bias with its gradient: our kernel `sdpa`, or torch's attention with the bias as a whole."""

    def make(length: int) -> Callable[..., Any]:
        import torch
        from torch.nn.functional import scaled_dot_product_attention

        from transpect.core.kernels import Scoring, Sdpa
        from transpect.core.positions import Dims, T5Buckets
        from transpect.core.tags import Tags
        from transpect.core.view import View
        from transpect.core.visibility import Full

        dims = Dims(HEADS * HEAD_DIM, HEADS * HEAD_DIM, HEADS, HEAD_DIM, length, looks_ahead=True)
        positions, tags = T5Buckets().build(dims), Tags.dense(1, length)

        def call(query: Any, key: Any, value: Any) -> Any:
            bias = positions.geometry(tags, tags, tags, torch.float32).bias
            assert bias is not None
            if way == "torch":
                return scaled_dot_product_attention(query, key, value, bias.whole, scale=1.0)
            return Sdpa().attend(query, key, value, View(Full(), tags, tags), Scoring(1.0, bias=bias))

        return call

    return make


WAYS: dict[str, Callable[[int], Callable[..., Any]]] = {
    "window: block_sparse": _ours("block_sparse", "window"),
    "window: torch, mask": _torch("window"),
    "longformer: block_sparse": _ours("block_sparse", "longformer"),
    "longformer: torch, mask": _torch("longformer"),
    "bigbird: block_sparse": _ours("block_sparse", "bigbird", block=64),
    "bigbird: torch, mask": _torch("bigbird"),
    "causal: naive": _ours("naive", "causal"),
    "causal: sdpa": _ours("sdpa", "causal"),
    "causal: flash": _ours("flash", "causal"),
    "causal: flash in tiles": _ours("flash", "causal", fused=False),
    "causal: performer": _ours("performer", "causal"),
    "causal: linear": _ours("linear", "causal"),
    "full: linformer": _ours("linformer", "full"),
    "full: performer": _ours("performer", "full"),
    "learned bias: sdpa": _learned_bias("ours"),
    "learned bias: torch": _learned_bias("torch"),
}


def _rule(name: str) -> Any:
    from transpect.core import Blocks, Causal, EdgeBlocks, Full, GlobalTokens, RandomBlocks, Window

    return {
        "full": Full(),
        "causal": Causal(),
        "window": Window(WINDOW),
        "longformer": Window(WINDOW, both_ways=True) | GlobalTokens(),
        "bigbird": Blocks(64) | EdgeBlocks(64) | RandomBlocks(64, n=3, seed=0),
    }[name]


def _tags(length: int, rule: str) -> Any:
    import torch

    from transpect.core.tags import Tags

    dense = Tags.dense(1, length)
    if rule != "longformer":
        return dense
    return Tags.of(dense.position.clone(), is_global=torch.arange(length)[None] < 16)


def measure(work: Work, calls: int) -> dict[str, float]:
    """Do one piece of work in this process: once for its memory, then ``calls`` times."""
    import torch

    generator = torch.Generator().manual_seed(0)
    call = WAYS[work.way](work.length)

    def inputs(length: int) -> list[Any]:
        shape = (1, HEADS, length, HEAD_DIM)
        return [torch.randn(shape, generator=generator).requires_grad_(work.backward) for _ in range(3)]

    def once(call: Callable[..., Any], tensors: list[Any], upward: Any) -> None:
        with torch.set_grad_enabled(work.backward):
            out = call(*tensors)
        if work.backward:
            torch.autograd.grad(out, tensors, upward)

    small = inputs(256)
    once(WAYS[work.way](256), small, small[0].detach())  # what libraries load and keep on their first call
    tensors = inputs(work.length)
    upward = torch.randn(tensors[0].shape, generator=generator)
    Path("/proc/self/clear_refs").write_text("5")  # the highest size so far is forgotten
    before = _memory("VmRSS")
    once(call, tensors, upward)
    memory = _memory("VmHWM") - before
    seconds = []
    for _ in range(calls):
        start = perf_counter()
        once(call, tensors, upward)
        seconds.append(perf_counter() - start)
    return {"seconds": statistics.median(seconds), "memory": memory}


def _memory(field: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


class Rounds:
    """All measurements, by piece of work: one number a round."""

    def __init__(self, threads: int, calls: int) -> None:
        self.threads, self.calls = threads, calls
        self.taken: dict[Work, list[dict[str, float]]] = {}

    def take(self, works: list[Work]) -> None:
        """One round."""
        for work in works:
            argument = json.dumps([work.way, work.length, work.backward, self.calls])
            command = [sys.executable, __file__, "--one", argument]
            environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads)}
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
            self.taken.setdefault(work, []).append(json.loads(done.stdout))

    def of(self, work: Work, what: str) -> list[float]:
        """One measure of all rounds."""
        return [one[what] for one in self.taken[work]]

    def ratio(self, what: str, above: Work, below: Work) -> list[float]:
        """One round's measure over that of the same round."""
        return [a / b for a, b in zip(self.of(above, what), self.of(below, what), strict=True)]

    def exponent(self, what: str, works: list[Work]) -> list[float]:
        """How a measure grows with length: 1 is linear."""
        x = [math.log(work.length) for work in works]
        rounds = zip(*(self.of(work, what) for work in works), strict=True)
        return [statistics.linear_regression(x, [math.log(value) for value in one]).slope for one in rounds]


@dataclass(frozen=True)
class Figure:
    """A figure and what it must reach.

    Attributes:
        name: of the figure.
        values: one a round.
        bar: what the median must be at least, or at most where ``least`` is False; None is told, and not judged.
    """

    name: str
    values: list[float]
    bar: float | None = None
    least: bool = True

    @property
    def falls_short(self) -> bool:
        """Whether the bar is missed."""
        middle = statistics.median(self.values)
        return self.bar is not None and (middle < self.bar if self.least else middle > self.bar)

    def line(self) -> str:
        """The figure as a line of the table."""
        spread = f"{statistics.median(self.values):9.3g}  ({min(self.values):.3g} … {max(self.values):.3g})"
        if self.bar is None:
            return f"{self.name:72s} {spread}"
        sign, verdict = "≥" if self.least else "≤", "falls short" if self.falls_short else "holds"
        return f"{self.name:72s} {spread:32s} {sign} {self.bar:<6.3g} {verdict}"


def pairs(rounds: int, threads: int, calls: int) -> list[Figure]:
    """What is judged."""
    taken = Rounds(threads, calls)
    window = [[Work("window: block_sparse", length, backward) for length in LENGTHS] for backward in (False, True)]
    ours, theirs = window[1][1], Work("window: torch, mask", 8192)
    tiles, naive = Work("causal: flash in tiles", 8192), Work("causal: naive", 8192)
    patterns = [[Work(f"{name}: {way}", 8192) for way in ("block_sparse", "torch, mask")] for name in PATTERNS]
    biased, whole = Work("learned bias: sdpa", 4096), Work("learned bias: torch", 4096)
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        taken.take(
            [*window[0], *window[1], theirs, tiles, naive, *(work for both in patterns for work in both), biased, whole]
        )
    figures = []
    for works, passes in zip(window, ("forward", "forward and backward"), strict=True):
        for what, word in (("seconds", "time"), ("memory", "memory")):
            name = f"window {WINDOW}, {passes}: exponent of {word} over 4k, 8k, 16k"
            figures.append(Figure(name, taken.exponent(what, works), 1.1, least=False))
    figures += [
        Figure(f"window {WINDOW} at 8k: times faster than torch with a mask", taken.ratio("seconds", theirs, ours), 4),
        Figure(f"window {WINDOW} at 8k: times smaller than torch with a mask", taken.ratio("memory", theirs, ours), 8),
        Figure("flash in tiles at 8k: memory of naive over its own", taken.ratio("memory", naive, tiles), 20),
        Figure("flash in tiles at 8k: times faster than naive", taken.ratio("seconds", naive, tiles)),
    ]
    for name, (sparse, masked) in zip(PATTERNS, patterns, strict=True):
        figures += [
            Figure(f"{name} at 8k: times faster than torch with a mask", taken.ratio("seconds", masked, sparse)),
            Figure(f"{name} at 8k: times smaller than torch with a mask", taken.ratio("memory", masked, sparse)),
        ]
    figures += [
        Figure("learned bias at 4k: times smaller than torch", taken.ratio("memory", whole, biased), 8),
        Figure("learned bias at 4k: times faster than torch", taken.ratio("seconds", whole, biased)),
    ]
    return figures


PATTERNS = ("longformer", "bigbird")
BASE, TABLE = "causal: sdpa", (1024, 8192)


FEATURES = (16, 64, 256, 1024)


def performer_errors() -> list[Figure]:
    """How far Performer's output is from softmax attention's, |out − exact| / |exact|, over 10 draws of its features.

    Queries and keys are normal, so that scores have the standard deviation that is told; where that is ¼, the error
    must fall as the features grow.
    """
    import torch

    from transpect.core.kernels.performer import mean_error

    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, HEADS, 512, HEAD_DIM, generator=generator) for _ in range(3))
    figures: list[Figure] = []
    for rule, spread in (("full", 0.25), ("causal", 0.25), ("full", 1.0)):
        before = math.inf
        scale = math.sqrt(spread)
        for features in FEATURES:
            errors = [
                mean_error(query * scale, key * scale, value, _rule(rule), features=features, seeds=[seed])
                for seed in range(10)
            ]
            name = f"performer, {rule}, scores ± {spread}: error of {features} features"
            bar = before if spread < 1.0 and before < math.inf else None
            figures.append(Figure(name, errors, bar, least=False))
            before = statistics.median(errors)
    return figures


def table(rounds: int, threads: int) -> None:
    """Every way at two lengths, forward and backward: time and memory over those of torch's fused causal attention."""
    taken = Rounds(threads, calls=1)
    for number in range(rounds):
        print(f"table, round {number + 1} of {rounds}", file=sys.stderr)
        taken.take([Work(way, length) for length in TABLE for way in WAYS])
    print(f"\n{'times sdpa under `causal`':28s}" + "".join(f"{f'time, memory at {n:,}':>44s}" for n in TABLE))
    for way in WAYS:
        cells = []
        for length in TABLE:
            both = (taken.ratio(what, Work(way, length), Work(BASE, length)) for what in ("seconds", "memory"))
            cells += [f"{statistics.median(r):8.3g} ({min(r):.2g} … {max(r):.2g})" for r in both]
        print(f"{way:28s}" + "".join(f"{cell:>22s}" for cell in cells))


def main() -> int:
    """Measure, print, judge."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="three rounds, no table of all kernels")
    options.add_argument("--rounds", type=int, help="how often each measurement is taken")
    options.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options.add_argument("--one", help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.one:
        *work, calls = json.loads(args.one)
        print(json.dumps(measure(Work(*work), calls)))
        return 0
    rounds, calls = (3, 1) if args.quick else (5, 3)
    figures = [*pairs(args.rounds or rounds, args.threads, calls), *performer_errors()]
    print("\n".join(figure.line() for figure in figures))
    if not args.quick:
        table(args.rounds or 3, args.threads)
    short = [figure.name for figure in figures if figure.falls_short]
    print("\nfalls short: " + "; ".join(short) if short else "\nall figures hold")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
