"""Our trainer with logging, evaluation and checkpoints on, beside `transformers` Trainer and a nanoGPT-style script.

    python benchmarks/training.py                    # float32; 20 minutes on two cores that nobody else uses
    python benchmarks/training.py --steps 6 --rounds 1 --against nanogpt-style
    python benchmarks/training.py --out benchmarks/results/trainer.json    # then python benchmarks/tables.py

Prints tables, and one line of ratios at the end; the exit code is 1 where one is under its bar.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from transpect.bench.train import Training, known_dtypes
from transpect.bench.trainer import TASK, measure
from transpect.cli.bench import options_of, shown, words


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formats", default="float32", help="float32, bfloat16, parted by commas")
    parser.add_argument("--steps", type=int, default=12, help="updates of a run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--against", default="transformers,nanogpt-style")
    parser.add_argument("--out", type=Path, help="a JSON file of all that was measured")
    asked = parser.parse_args()
    what = Training(known_dtypes(words(asked.formats)), asked.steps)
    options = options_of(TASK, asked.against, asked.rounds, asked.threads, None)
    return shown(TASK, vars(what), measure(options, what), asked.out)


if __name__ == "__main__":
    sys.exit(main())
