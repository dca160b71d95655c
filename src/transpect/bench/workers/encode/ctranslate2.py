"""CTranslate2: `Encoder.forward_batch`, and the mean over the tokens that are there."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

BITS = {"float32": 32, "bfloat16": 16, "float16": 16, "int8_float32": 8, "int8": 8}


def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """``folder`` as its converter writes it, ``compute``: its name of a number format, ``threads``."""
    import ctranslate2
    import numpy as np

    model = ctranslate2.Encoder(
        options["folder"], device="cpu", compute_type=options["compute"], intra_threads=options["threads"]
    )

    def embed(texts: list[list[int]]) -> Any:
        storage = model.forward_batch(texts).last_hidden_state
        if storage.dtype != ctranslate2.DataType.float32:
            storage = storage.to(ctranslate2.DataType.float32)
        hidden = np.asarray(storage)
        return np.stack([row[: len(text)].mean(0) for row, text in zip(hidden, texts)])  # noqa: B905 # see decode/

    def run(asked: dict[str, Any]) -> dict[str, Any]:
        begun = perf_counter()
        for _ in range(asked["times"]):
            vectors = embed(asked["texts"])
        ended = perf_counter()
        return {
            "count": {"sentences": asked["times"] * len(asked["texts"])},
            "seconds": {"sentences": ended - begun},
            "vectors": (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).tolist(),
        }

    return {
        "versions": {"ctranslate2": ctranslate2.__version__},
        "bits": BITS.get(model.compute_type),
        "computes": model.compute_type,
    }, run
