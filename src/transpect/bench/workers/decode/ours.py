"""transpect: the events of `LanguageModel`, as everyone takes them."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any


def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """``model``, ``threads`` and ``open``, which `transpect.load` takes."""
    import numba
    import torch

    import transpect
    from transpect.base.devices import set_threads

    set_threads(options["threads"])
    lm = transpect.load(options["model"], device="cpu", **options["open"])
    weights = {tensor.data_ptr(): tensor for tensor in lm.model.state_dict().values()}

    def run(asked: dict[str, Any]) -> dict[str, Any]:
        prompts, new = asked["prompts"], asked["new"]
        ids: list[list[int]] = [[] for _ in prompts]
        times = []
        begun = perf_counter()
        # without guesses, as a step is a pass over the weights and the others do not guess
        plain = {"max_new_tokens": new, "ignore_eos": True, "temperature": 0, "prompt_lookup_num_tokens": 0}
        for event in lm.events(prompts, batch_size=len(prompts), **plain):
            times.append(perf_counter())
            ids[event.request] += [] if event.token is None else [event.token]
        ended = perf_counter()
        first = times[len(prompts) - 1]  # the last row's first token
        return {
            "count": {
                "prompt": sum(map(len, prompts)),
                "steps": len(prompts) * (new - 1),
                "call": len(prompts) * new,
            },
            "seconds": {"prompt": first - begun, "steps": times[-1] - first, "call": ended - begun},
            "ids": ids,
        }

    return {
        "versions": {"transpect": transpect.__version__, "torch": torch.__version__, "numba": numba.__version__},
        "bits": bits_of(lm.model),
        "bytes": sum(tensor.nbytes for tensor in weights.values()),
    }, run


def bits_of(model: Any) -> int:
    """Of a weight of its largest linear layer, scales left out."""
    linear = [child for child in model.modules() if hasattr(child, "in_features") and hasattr(child, "out_features")]
    largest = max(linear, key=lambda child: child.in_features * child.out_features)
    stored = getattr(largest, "format", None)
    return 8 * int(largest.weight.element_size()) if stored is None else int(stored.bits(largest.in_features))
