"""llama.cpp: a model, its tokenizer with it, a context, and then one token."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from time import perf_counter
from typing import Any


def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """``file``, ``bits``, ``threads``. Each run opens it anew."""
    import llama_cpp
    import numpy as np

    silent = llama_cpp.llama_log_callback(lambda _level, _text, _data: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    params = llama_cpp.llama_context_default_params()
    params.n_threads = params.n_threads_batch = options["threads"]

    def run(_asked: dict[str, Any]) -> dict[str, Any]:
        begun = perf_counter()
        model = llama_cpp.llama_model_load_from_file(options["file"].encode(), llama_cpp.llama_model_default_params())
        context = llama_cpp.llama_init_from_model(model, params)
        opened = perf_counter()
        if not context or llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one((ctypes.c_int * 1)(1), 1)):
            raise RuntimeError(f"llama.cpp can't read a token with {options['file']}")
        vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        logits = llama_cpp.llama_get_logits_ith(context, -1)
        token = int(np.ctypeslib.as_array(logits, (vocabulary,)).argmax())
        ended = perf_counter()
        llama_cpp.llama_free(context)
        llama_cpp.llama_model_free(model)
        return {"sizes": {"load": opened - begun, "first token": ended - begun}, "ids": [[token]]}

    run.kept = silent  # type: ignore[attr-defined] # C calls it as long as the process lives
    return {"versions": {"llama-cpp-python": llama_cpp.__version__}, "bits": options["bits"]}, run
