"""transpect: `LanguageModel.complete`, greedily or by beam search."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any


def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """``model``, ``threads`` and ``open``, which `transpect.load` takes; ``bits`` of what that asks for."""
    import numba
    import torch

    import transpect
    from transpect.base.devices import set_threads

    set_threads(options["threads"])
    lm = transpect.load(options["model"], device="cpu", **options["open"])

    def run(asked: dict[str, Any]) -> dict[str, Any]:
        sources, new, beams = asked["sources"], asked["new"], asked["beams"]
        search = {"num_beams": beams} if beams > 1 else {}
        begun = perf_counter()
        results = lm.complete(
            sources,
            batch_size=len(sources) * beams,
            min_new_tokens=new,
            max_new_tokens=new,
            temperature=0,
            no_repeat_ngram_size=0,  # which the model may ask for, and the others are not told of
            **search,
        )
        ended = perf_counter()
        return {
            "count": {"call": len(sources) * new},
            "seconds": {"call": ended - begun},
            "ids": [list(result.ids) for result in results],
        }

    return {
        "versions": {"transpect": transpect.__version__, "torch": torch.__version__, "numba": numba.__version__},
        "bits": options["bits"],
    }, run
