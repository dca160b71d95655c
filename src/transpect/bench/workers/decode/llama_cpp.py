"""llama.cpp: `llama_decode` on one batch of all sequences, and the best of each row's logits, as its own bench does."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

BITS = {"F32": 32, "F16": 16, "BF16": 16, "Q8_0": 8, "Q4_0": 4, "Q4_1": 4, "Q4_K": 4}


def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """``file``, ``threads``, ``batch`` (the most sequences) and ``capacity`` (tokens of one)."""
    import llama_cpp
    import numpy as np

    model, context = opened(options["file"], options["threads"], options["batch"], options["capacity"])
    memory = llama_cpp.llama_get_memory(context)
    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    batch = llama_cpp.llama_batch_init(options["batch"] * options["capacity"], 0, 1)

    def read(rows: Sequence[Sequence[int]], start: int) -> list[int]:
        """Read each sequence's next tokens; the best one to follow each."""
        place = 0
        for row, tokens in enumerate(rows):
            for offset, token in enumerate(tokens):
                batch.token[place], batch.pos[place] = token, start + offset
                batch.n_seq_id[place], batch.seq_id[place][0] = 1, row
                batch.logits[place] = offset == len(tokens) - 1
                place += 1
        batch.n_tokens = place
        if code := llama_cpp.llama_decode(context, batch):
            raise RuntimeError(f"llama_decode gives {code}")
        ends, end = [], -1
        for tokens in rows:
            end += len(tokens)
            logits = llama_cpp.llama_get_logits_ith(context, end)
            ends.append(int(np.ctypeslib.as_array(logits, (vocabulary,)).argmax()))
        return ends

    def run(asked: dict[str, Any]) -> dict[str, Any]:
        prompts, new = asked["prompts"], asked["new"]
        length = len(prompts[0])
        llama_cpp.llama_memory_clear(memory, True)
        begun = perf_counter()
        steps = [read(prompts, 0)]
        first = perf_counter()
        for step in range(new - 1):
            steps.append(read([[token] for token in steps[-1]], length + step))
        ended = perf_counter()
        return {
            "count": {
                "prompt": len(prompts) * length,
                "steps": len(prompts) * (new - 1),
                "call": len(prompts) * new,
            },
            "seconds": {"prompt": first - begun, "steps": ended - first, "call": ended - begun},
            "ids": [list(row) for row in zip(*steps)],  # noqa: B905 # a peer's Python may be older
        }

    return facts_of(model), run


def opened(file: str, threads: int, sequences: int, capacity: int) -> tuple[Any, Any]:
    """A model and a context with a cache of its usual kind."""
    import llama_cpp

    silent = llama_cpp.llama_log_callback(lambda _level, _text, _data: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    opened._kept = silent  # type: ignore[attr-defined] # C calls it as long as the process lives
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(file.encode(), llama_cpp.llama_model_default_params())
    if not model:
        raise RuntimeError(f"llama.cpp can't open {file}")
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_seq_max = capacity * sequences, sequences
    params.n_batch = capacity * sequences
    params.n_threads = params.n_threads_batch = threads
    context = llama_cpp.llama_init_from_model(model, params)
    if not context:
        raise RuntimeError("llama.cpp makes no context")
    return model, context


def facts_of(model: Any) -> dict[str, Any]:
    """Its version, what the CPU gives it, and what it says of the weights."""
    import llama_cpp

    text = ctypes.create_string_buffer(128)
    llama_cpp.llama_model_desc(model, text, len(text))
    kind = text.value.decode().split()[-3:]  # e.g. llama ?B Q4_K - Medium
    name = next((word for word in kind if word in BITS), "F32" if "F32" in text.value.decode() else "")
    return {
        "versions": {"llama-cpp-python": llama_cpp.__version__},
        "bits": BITS.get(name),
        "bytes": llama_cpp.llama_model_size(model),
        "machine": llama_cpp.llama_print_system_info().decode(),
        "describes": text.value.decode(),
    }
