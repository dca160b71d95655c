"""How long a checkpoint takes to load and how much memory, beside `transformers` on the same directory.

    python benchmarks/loading.py                     # every case, 5 rounds
    python benchmarks/loading.py --case llama gpt2 --rounds 9 --layers 12

Each case is a made-up model of a few hundred MB, written by `transformers` (numbers where its header happens to end)
or by us (aligned). Each measurement is a process of its own, the two tools in turn; the file is in the system's cache.
Time is that of the call that gives the model, after all imports. Memory is the highest resident size above that of a
process that has imported torch, over the size of the weights in the dtype that was asked for.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Case:
    """A model, how it is stored, and what it is loaded as."""

    architecture: str
    stored: str = "float32"
    wanted: str = "float32"
    aligned: bool = False


LLAMA, GPT2, NEOX = "LlamaForCausalLM", "GPT2LMHeadModel", "GPTNeoXForCausalLM"
CASES = {
    "llama": Case(LLAMA),
    "llama-aligned": Case(LLAMA, aligned=True),
    "llama-narrow": Case(LLAMA, wanted="bfloat16"),
    "llama-widen": Case(LLAMA, stored="bfloat16"),
    "gpt2": Case(GPT2),
    "gpt2-aligned": Case(GPT2, aligned=True),
    "gpt2-narrow": Case(GPT2, wanted="bfloat16"),
    "gpt2-widen": Case(GPT2, stored="bfloat16"),
    "neox": Case(NEOX),
    "neox-aligned": Case(NEOX, aligned=True),
    "neox-narrow": Case(NEOX, wanted="bfloat16"),
    "neox-widen": Case(NEOX, stored="bfloat16"),
}
D, HEADS, VOCAB = 1024, 16, 16_000


def made_up(case: Case, layers: int, folder: Path) -> None:
    """Write the model of a case."""
    import torch
    import transformers

    sizes: dict[str, Any] = {
        LLAMA: {
            "num_hidden_layers": layers,
            "hidden_size": D,
            "num_attention_heads": HEADS,
            "intermediate_size": 3 * D,
        },
        GPT2: {"n_layer": layers, "n_embd": D, "n_head": HEADS},
        NEOX: {"num_hidden_layers": layers, "hidden_size": D, "num_attention_heads": HEADS, "intermediate_size": 4 * D},
    }[case.architecture]
    kind = getattr(transformers, case.architecture)
    config = kind.config_class(vocab_size=VOCAB, **sizes)
    with torch.device("cpu"):
        model = kind(config).to(getattr(torch, case.stored))
    model.save_pretrained(folder, max_shard_size="100GB")
    if case.aligned:
        from transpect.interop import load_model, save_model

        save_model(load_model(folder), folder)


def measure(tool: str, folder: Path, wanted: str) -> dict[str, float]:
    """Load once in this process."""
    import torch

    base = _memory("VmRSS")
    config = json.loads((folder / "config.json").read_text())
    if tool == "ours":
        from transpect.interop import load_model

        call = lambda: load_model(folder, dtype=wanted)  # noqa: E731
    else:
        import transformers

        kind = getattr(transformers, config["architectures"][0])
        call = lambda: kind.from_pretrained(folder, dtype=getattr(torch, wanted))  # noqa: E731
    from time import perf_counter

    start = perf_counter()
    model = call()
    seconds = perf_counter() - start
    tensors = {tensor.data_ptr(): tensor.nbytes for tensor in model.state_dict().values()}
    return {"seconds": seconds, "memory": (_memory("VmHWM") - base) / sum(tensors.values())}


def _memory(field: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def main() -> None:
    """Measure the cases that were asked for and print a line for each."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--case", nargs="*", default=list(CASES), choices=list(CASES))
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--layers", type=int, default=8)
    options.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.one:
        tool, folder, wanted = args.one
        print(json.dumps(measure(tool, Path(folder), wanted)))
        return
    print(f"{'case':16}{'ours s':>9}{'theirs s':>10}{'ratio':>8}   (lowest–highest)   {'memory':>7}{'theirs':>8}")
    for name in args.case:
        case = CASES[name]
        with tempfile.TemporaryDirectory() as place:
            made_up(case, args.layers, Path(place))
            found: dict[str, list[dict[str, float]]] = {"ours": [], "theirs": []}
            for turn in range(args.rounds + 1):
                for tool in sorted(found, reverse=turn % 2 == 1):
                    row = _in_a_process(tool, place, case.wanted, args.threads)
                    if turn:  # the first one fills the system's cache
                        found[tool].append(row)
        ours, theirs = ([row["seconds"] for row in found[tool]] for tool in ("ours", "theirs"))
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        memory = {tool: max(row["memory"] for row in rows) for tool, rows in found.items()}
        print(
            f"{name:16}{statistics.median(ours):9.3f}{statistics.median(theirs):10.3f}{statistics.median(ratios):8.2f}"
            f"   ({min(ratios):.2f}–{max(ratios):.2f})        {memory['ours']:7.2f}{memory['theirs']:8.2f}",
            flush=True,
        )


def _in_a_process(tool: str, folder: str, wanted: str, threads: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", tool, folder, wanted]
    quiet = {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **quiet, "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
    )
    row: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return row


if __name__ == "__main__":
    main()
