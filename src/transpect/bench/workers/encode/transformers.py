"""transformers: its model on one padded batch, and the mean over the tokens that are there."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any


def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """``directory``, ``dtype``, ``threads``; attention as it chooses by itself."""
    import torch
    import transformers

    torch.set_num_threads(options["threads"])
    dtype = getattr(torch, options["dtype"])
    kind: Any = transformers.AutoModel
    model = kind.from_pretrained(options["directory"], dtype=dtype).eval()

    @torch.inference_mode()
    def embed(texts: list[list[int]]) -> Any:
        longest = max(map(len, texts))
        ids = torch.tensor([text + [0] * (longest - len(text)) for text in texts])
        mask = torch.tensor([[1] * len(text) + [0] * (longest - len(text)) for text in texts])
        hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
        there = mask[..., None].to(hidden.dtype)
        return (hidden * there).sum(1) / there.sum(1)

    def run(asked: dict[str, Any]) -> dict[str, Any]:
        begun = perf_counter()
        for _ in range(asked["times"]):
            vectors = embed(asked["texts"])
        ended = perf_counter()
        return {
            "count": {"sentences": asked["times"] * len(asked["texts"])},
            "seconds": {"sentences": ended - begun},
            "vectors": torch.nn.functional.normalize(vectors.float(), dim=-1).tolist(),
        }

    return {
        "versions": {"transformers": transformers.__version__, "torch": torch.__version__},
        "bits": 8 * next(iter(model.parameters())).element_size(),
    }, run
