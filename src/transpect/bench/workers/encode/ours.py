"""transpect: `LanguageModel.embed`."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any


def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """``model``, ``threads`` and ``open``, which `transpect.load` takes; ``bits`` of what that asks for."""
    import torch

    import transpect
    from transpect.base.devices import set_threads

    set_threads(options["threads"])
    lm = transpect.load(options["model"], device="cpu", **options["open"])

    def run(asked: dict[str, Any]) -> dict[str, Any]:
        begun = perf_counter()
        for _ in range(asked["times"]):
            vectors = lm.embed(asked["texts"], batch_size=len(asked["texts"]))
        ended = perf_counter()
        return {
            "count": {"sentences": asked["times"] * len(asked["texts"])},
            "seconds": {"sentences": ended - begun},
            "vectors": torch.nn.functional.normalize(vectors.float(), dim=-1).tolist(),
        }

    return {
        "versions": {"transpect": transpect.__version__, "torch": torch.__version__},
        "bits": options["bits"],
    }, run
