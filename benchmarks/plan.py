"""How near `transpect plan` comes: predicted and measured peak memory and time of twelve runs.

    python benchmarks/plan.py                # all twelve; leave the machine alone meanwhile
    python benchmarks/plan.py --only 3,7 --steps 20
    python benchmarks/plan.py --memory       # peaks alone, of three updates each; others may use the machine

Each recipe is planned in one process and trained in another. Peak memory is what the system says that the process held
at most (``ru_maxrss``); time is ``seconds`` of the last line of ``metrics.jsonl``, which is spent on updates. The exit
code is 1 where one is further off than is allowed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from subprocess import PIPE, Popen, run
from typing import Any

COMMAND = [sys.executable, "-m", "transpect"]
ALLOWED = {"memory": 0.15, "time": 0.25}
WARM = 3
"""Updates that are not counted: pages are touched for the first time."""

FABLE = {"train": {"kind": "fable", "stories": 1500}, "valid": {"kind": "fable", "stories": 40, "seed": 1}}
Z = {"dropout": 0.0, "attention.dropout": 0.0, "embedding.dropout": 0.0}


def recipe(
    model: dict[str, Any], rows: int, length: int, accumulate: int = 1, objective: Any = None, **train: Any
) -> dict[str, Any]:
    """One of the twelve."""
    data: dict[str, Any] = {**FABLE, "seq_len": length}
    if objective is not None:
        data["objective"] = objective
    return {
        "model": {"context_length": max(length, 64), **model},
        "tokenizer": {"kind": "char", "special_tokens": {"mask": "<mask>"}},
        "data": data,
        "train": {"batch_size": rows, "accumulate": accumulate, "log_every": 1, **train},
        "logging": {"progress": "none"},
    }


GPT2, LLAMA, BERT, SEQ = ({"preset": name} for name in ("gpt2", "llama", "bert-base", "transformer-base"))
RECIPES = [
    recipe({**GPT2, **Z, "d_model": 192, "n_layers": 4, "n_heads": 4}, 32, 128),
    recipe({**GPT2, "d_model": 256, "n_layers": 6, "n_heads": 8}, 16, 256),
    recipe({**GPT2, **Z, "d_model": 512, "n_layers": 8, "n_heads": 8}, 8, 256, 2),
    recipe({**LLAMA, "d_model": 256, "n_layers": 4, "n_heads": 4, "d_ff": 688}, 32, 128),
    recipe({**LLAMA, "d_model": 384, "n_layers": 6, "n_heads": 6, "n_kv_heads": 2, "d_ff": 1024}, 8, 512),
    recipe({**LLAMA, "d_model": 768, "n_layers": 8, "n_heads": 12, "d_ff": 2048}, 4, 256, 2),
    recipe({**BERT, **Z, "d_model": 256, "n_layers": 4, "n_heads": 4, "d_ff": 1024}, 32, 128),
    recipe({**BERT, "d_model": 384, "n_layers": 6, "n_heads": 6, "d_ff": 1536}, 16, 128),
    recipe({**GPT2, **Z, "d_model": 384, "n_layers": 6, "n_heads": 6, "vocab_size": 32000}, 8, 256),
    recipe({**GPT2, "d_model": 256, "n_layers": 4, "n_heads": 4}, 64, 64, 2, optimizer={"kind": "sgd"}),
    recipe({**GPT2, **Z, "d_model": 384, "n_layers": 4, "n_heads": 6}, 16, 256, precision="bf16"),
    recipe({**LLAMA, "d_model": 320, "n_layers": 12, "n_heads": 5, "d_ff": 864}, 16, 192, optimizer={"kind": "lion"}),
]


def measured(file: Path, out: Path, steps: int) -> tuple[float, float]:
    """(bytes at most, seconds an update) of a run."""
    words = ["train", str(file), "--out", str(out), f"--train.max_steps={steps}", f"--train.eval_every={steps}"]
    process = Popen([*COMMAND, *words], stdout=PIPE, text=True)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{file.name}: training ended with {status}")
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    later = lines[WARM - 1]
    return usage.ru_maxrss * 1024, (lines[-1]["seconds"] - later["seconds"]) / (lines[-1]["step"] - later["step"])


def main() -> int:
    """Plan, train, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="numbers of recipes, parted by commas")
    parser.add_argument("--steps", type=int, default=12, help="updates of a run, more than the first three")
    parser.add_argument("--memory", action="store_true", help="do not look at time")
    asked = parser.parse_args()
    steps = WARM + 1 if asked.memory else max(asked.steps, WARM + 1)
    numbers = range(1, len(RECIPES) + 1) if asked.only is None else [int(one) for one in asked.only.split(",")]
    print("recipe | parameters | peak MB, plan | peak MB, run | off | s/update, plan | s/update, run | off")
    worst = dict.fromkeys(ALLOWED, 0.0)
    for number in numbers:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"recipe-{number}.yaml"
            file.write_text(json.dumps(RECIPES[number - 1]), encoding="utf-8")
            said = run([*COMMAND, "plan", str(file), "--json"], check=True, stdout=PIPE, text=True).stdout
            way = (found := json.loads(said))["ways"][0]
            peak, seconds = measured(file, Path(folder) / "run", steps)
        off = {"memory": way["peak_bytes"] / peak - 1, "time": way["seconds"] / seconds - 1}
        worst = {name: max(far, abs(off[name])) for name, far in worst.items()}
        memory = f"{way['peak_bytes'] / 1e6:.0f} | {peak / 1e6:.0f} | {off['memory']:+.1%}"
        time = f"{way['seconds']:.3f} | {seconds:.3f} | {off['time']:+.1%}"
        print(f"{number} | {found['parameters']:,} | {memory} | {time}", flush=True)
    judged = {name: far for name, far in worst.items() if name == "memory" or not asked.memory}
    told = ", ".join(f"{name} {far:.1%} (at most {ALLOWED[name]:.0%})" for name, far in judged.items())
    print(f"furthest off: {told}")
    return int(any(far > ALLOWED[name] for name, far in judged.items()))


if __name__ == "__main__":
    sys.exit(main())
