"""CTranslate2: `Generator.generate_batch`, with a callback that only looks at the clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

BITS = {"float32": 32, "bfloat16": 16, "float16": 16, "int8_float32": 8, "int8": 8}


def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """``folder`` as its converter writes it, ``compute``: its name of a number format, ``threads``."""
    import ctranslate2

    model = ctranslate2.Generator(
        options["folder"], device="cpu", compute_type=options["compute"], intra_threads=options["threads"]
    )
    tokens = tokens_of(Path(options["folder"]))

    def run(asked: dict[str, Any]) -> dict[str, Any]:
        prompts, new = asked["prompts"], asked["new"]
        times: list[float] = []
        begun = perf_counter()
        results = model.generate_batch(
            [[tokens[token] for token in prompt] for prompt in prompts],
            max_length=new,
            min_length=new,
            beam_size=1,
            sampling_topk=1,
            include_prompt_in_result=False,
            callback=lambda _step: bool(times.append(perf_counter())),  # type: ignore[func-returns-value] # goes on
        )
        ended = perf_counter()
        first = times[len(prompts) - 1]
        return {
            "count": {
                "prompt": sum(map(len, prompts)),
                "steps": len(prompts) * (new - 1),
                "call": len(prompts) * new,
            },
            "seconds": {"prompt": first - begun, "steps": times[-1] - first, "call": ended - begun},
            "ids": [result.sequences_ids[0] for result in results],
        }

    return {
        "versions": {"ctranslate2": ctranslate2.__version__},
        "bits": BITS.get(model.compute_type),
        "computes": model.compute_type,
    }, run


def tokens_of(folder: Path) -> list[str]:
    """The vocabulary that stands beside its weights."""
    import json

    found: list[str] = json.loads((folder / "vocabulary.json").read_text(encoding="utf-8"))
    return found
