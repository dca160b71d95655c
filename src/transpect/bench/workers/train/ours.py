"""transpect: `update`, as `transpect train` makes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any


def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """``directory``, ``dtype``, ``threads``, ``keep``, ``ids`` [N, B, T+1] (a file), ``lr``, ``clip``, ``decay``."""
    from transpect.base.allocator import keep_freed_memory

    kept = options["keep"] and keep_freed_memory()
    import torch
    from safetensors.torch import load_file

    import transpect
    from transpect.base.devices import set_threads
    from transpect.core.tags import Tags
    from transpect.data.batch import Batch
    from transpect.interop import load_model
    from transpect.train.optimizers import AdamW
    from transpect.train.precision import Precision
    from transpect.train.readers import readers_of
    from transpect.train.recompute import recompute_activations
    from transpect.train.updates import update

    set_threads(options["threads"])
    model = recompute_activations(load_model(options["directory"]).train())
    readers = readers_of(model)
    optimizer = AdamW(weight_decay=options["decay"]).build(model)
    precision: Precision = "fp32" if options["dtype"] == "float32" else "bf16"
    batches = [
        Batch(ids[:, :-1].contiguous(), Tags.dense(*ids[:, 1:].shape), ids[:, 1:].contiguous())
        for ids in load_file(options["ids"])["ids"]
    ]

    def run(asked: dict[str, Any]) -> dict[str, Any]:
        losses = []
        begun = perf_counter()
        for number in range(asked["steps"]):
            batch = batches[number % len(batches)]
            done = update(
                model,
                optimizer,
                [batch],
                rate=options["lr"],
                clip=options["clip"],
                precision=precision,
                readers=readers,
            )
            losses.append(float(done.loss))
        seconds = perf_counter() - begun
        return {
            "count": {"updates": asked["steps"] * batches[0].ids.numel()},
            "seconds": {"updates": seconds},
            "sizes": {"peak memory": peak()},
            "losses": losses,
        }

    return {"versions": {"transpect": transpect.__version__, "torch": str(torch.__version__)}, "kept": kept}, run


def peak() -> float:
    """The most memory that this process has held, MiB."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
