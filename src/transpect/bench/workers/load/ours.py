"""transpect: `transpect.load`, and then one token."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any


def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """``model``, ``open`` for `transpect.load`, ``threads``. Each run opens it anew."""
    import torch

    import transpect
    from transpect.base.devices import set_threads

    set_threads(options["threads"])

    def run(_asked: dict[str, Any]) -> dict[str, Any]:
        begun = perf_counter()
        lm = transpect.load(options["model"], device="cpu", **options["open"])
        opened = perf_counter()
        (result,) = lm.complete([[1]], max_new_tokens=1, ignore_eos=True, temperature=0)
        return {"sizes": {"load": opened - begun, "first token": perf_counter() - begun}, "ids": [list(result.ids)]}

    return {
        "versions": {"transpect": transpect.__version__, "torch": torch.__version__},
        "bits": options["bits"],  # of what `open` asks for
    }, run
