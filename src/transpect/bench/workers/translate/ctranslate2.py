"""CTranslate2: `Translator.translate_batch`; ids are words of its vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

BITS = {"float32": 32, "bfloat16": 16, "float16": 16, "int8_float32": 8, "int8": 8}


def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """``folder`` as written for it, ``compute``: its name of a number format, ``threads``."""
    import ctranslate2

    model = ctranslate2.Translator(
        options["folder"],
        device="cpu",
        compute_type=options["compute"],
        inter_threads=1,
        intra_threads=options["threads"],
    )

    def run(asked: dict[str, Any]) -> dict[str, Any]:
        sources, new = asked["sources"], asked["new"]
        begun = perf_counter()
        results = model.translate_batch(
            [list(map(str, source)) for source in sources],
            beam_size=asked["beams"],
            min_decoding_length=new,
            max_decoding_length=new,
        )
        ids = [list(map(int, result.hypotheses[0])) for result in results]
        ended = perf_counter()
        return {"count": {"call": len(sources) * new}, "seconds": {"call": ended - begun}, "ids": ids}

    return {
        "versions": {"ctranslate2": ctranslate2.__version__},
        "bits": BITS.get(model.compute_type),
        "computes": model.compute_type,
    }, run
