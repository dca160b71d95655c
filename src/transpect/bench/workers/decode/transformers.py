"""transformers: `generate`, with a criterion for stopping that only looks at the clock."""

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
    kind: Any = transformers.AutoModelForCausalLM
    model = kind.from_pretrained(options["directory"], dtype=dtype).eval()
    model.generation_config.eos_token_id = None  # nothing ends early

    def run(asked: dict[str, Any]) -> dict[str, Any]:
        ids, new = torch.tensor(asked["prompts"]), asked["new"]
        times = []

        def clock(rows: Any, _scores: Any, **_: Any) -> Any:
            times.append(perf_counter())
            return torch.zeros(len(rows), dtype=torch.bool)

        begun = perf_counter()
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new,
            do_sample=False,
            pad_token_id=0,
            stopping_criteria=transformers.StoppingCriteriaList([clock]),
        )
        ended = perf_counter()
        return {
            "count": {"prompt": ids.numel(), "steps": len(ids) * (new - 1), "call": len(ids) * new},
            "seconds": {"prompt": times[0] - begun, "steps": times[-1] - times[0], "call": ended - begun},
            "ids": out[:, ids.shape[1] :].tolist(),
        }

    return {
        "versions": {"transformers": transformers.__version__, "torch": torch.__version__},
        "bits": 8 * next(iter(model.parameters())).element_size(),
        "bytes": sum(parameter.nbytes for parameter in model.parameters()),
    }, run
