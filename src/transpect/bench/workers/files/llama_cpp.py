"""llama.cpp's own quantiser: one GGUF file made into another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

TYPES = {"BF16": 32, "F16": 1, "Q8_0": 7, "Q4_0": 2, "Q4_1": 3, "Q4_K_S": 14, "Q4_K_M": 15}
"""Its numbers for the types of files, ``enum llama_ftype``."""


def load(_options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """Nothing to open."""
    import llama_cpp

    def run(asked: dict[str, Any]) -> dict[str, Any]:
        params = llama_cpp.llama_model_quantize_default_params()
        params.ftype, params.nthread = TYPES[asked["type"]], asked["threads"]
        code = llama_cpp.llama_model_quantize(asked["source"].encode(), asked["target"].encode(), params)
        if code:
            raise RuntimeError(f"llama_model_quantize gives {code}")
        return {}

    return {"versions": {"llama-cpp-python": llama_cpp.__version__}}, run
