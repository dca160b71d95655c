"""transformers: `GPT2LMHeadModel` with its own loss and torch's attention."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

TABLES = ("wte.weight", "wpe.weight")


def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """``directory``, ``dtype``, ``threads``, ``keep``, ``ids`` [N, B, T+1] (a file), ``lr``, ``clip``, ``decay``."""
    if options["keep"]:
        libc = ctypes.CDLL(None)
        assert libc.mallopt(-3, 1 << 30) and libc.mallopt(-1, 1 << 30)
    import torch
    import transformers
    from safetensors.torch import load_file

    torch.set_num_threads(options["threads"])
    kind: Any = transformers.GPT2LMHeadModel
    model = kind.from_pretrained(options["directory"], dtype=torch.float32, attn_implementation="sdpa").train()
    decaying = [name for name, weight in model.named_parameters() if weight.ndim > 1 and name[-10:] not in TABLES]
    groups = [
        {"params": [w for name, w in model.named_parameters() if name in decaying], "weight_decay": options["decay"]},
        {"params": [w for name, w in model.named_parameters() if name not in decaying], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=options["lr"], betas=(0.9, 0.95), fused=True)
    batches = load_file(options["ids"])["ids"]
    lower = options["dtype"] != "float32"

    def run(asked: dict[str, Any]) -> dict[str, Any]:
        losses = []
        begun = perf_counter()
        for number in range(asked["steps"]):
            ids = batches[number % len(batches)]
            answers = ids[:, 1:].contiguous()
            with torch.autocast("cpu", torch.bfloat16, enabled=lower):
                loss = model(ids[:, :-1], labels=answers, shift_labels=answers, use_cache=False).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), options["clip"])
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
        seconds = perf_counter() - begun
        return {
            "count": {"updates": asked["steps"] * batches[0][:, 1:].numel()},
            "seconds": {"updates": seconds},
            "sizes": {"peak memory": peak()},
            "losses": losses,
        }

    return {"versions": {"transformers": transformers.__version__, "torch": torch.__version__}}, run


def peak() -> float:
    """The most memory that this process has held, MiB."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
