"""transformers: `from_pretrained` of model and tokenizer, and then one token."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any


def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """``directory``, ``dtype``, ``threads``. Each run opens it anew."""
    import torch
    import transformers

    torch.set_num_threads(options["threads"])
    dtype = getattr(torch, options["dtype"])
    kind: Any = transformers.AutoModelForCausalLM
    words: Any = transformers.AutoTokenizer

    def run(_asked: dict[str, Any]) -> dict[str, Any]:
        begun = perf_counter()
        model = kind.from_pretrained(options["directory"], dtype=dtype).eval()
        words.from_pretrained(options["directory"])
        opened = perf_counter()
        with torch.inference_mode():
            token = model(torch.tensor([[1]])).logits[0, -1].argmax().item()
        return {"sizes": {"load": opened - begun, "first token": perf_counter() - begun}, "ids": [[token]]}

    return {
        "versions": {"transformers": transformers.__version__, "torch": torch.__version__},
        "bits": 8 * dtype.itemsize,
    }, run
