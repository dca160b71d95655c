"""litgpt: its `GPT` with its cache, the best of the last logits, as its own `generate` does it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

SIZES = {
    "n_layer": "num_hidden_layers",
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_query_groups": "num_key_value_heads",
    "intermediate_size": "intermediate_size",
    "rope_base": "rope_theta",
}


def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """``directory``, ``dtype``, ``threads``, ``capacity``; a llama of sizes that litgpt has a row for."""
    from importlib.metadata import version

    import torch
    from litgpt.config import Config, configs
    from litgpt.model import GPT
    from litgpt.scripts.convert_hf_checkpoint import copy_weights_hf_llama
    from safetensors.torch import load_file

    torch.set_num_threads(options["threads"])
    directory, dtype = Path(options["directory"]), getattr(torch, options["dtype"])
    theirs = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    theirs = {"rope_theta": (theirs.get("rope_parameters") or {}).get("rope_theta"), **theirs}
    rows = [Config(**row) for row in configs]
    same = (row for row in rows if all(getattr(row, own) == theirs.get(name) for own, name in SIZES.items()))
    config = next(same, None)
    if config is None or theirs["model_type"] != "llama":
        raise ValueError("litgpt has no row for a model of these sizes")
    state: dict[str, Any] = {}
    weights: dict[str, Any] = {}
    for file in sorted(directory.glob("*.safetensors")):
        weights |= load_file(file)
    copy_weights_hf_llama(config, {}, state, weights)
    with torch.device("meta"):
        model = GPT(config)
    model.load_state_dict({name: tensor.to(dtype) for name, tensor in state.items()}, assign=True)
    model.max_seq_length = options["capacity"]
    model.cos, model.sin = model.rope_cache(device=torch.device("cpu"))
    model.eval()

    @torch.inference_mode()
    def run(asked: dict[str, Any]) -> dict[str, Any]:
        token, new = torch.tensor(asked["prompts"]), asked["new"]
        rows, length = token.shape
        begun = perf_counter()
        model.set_kv_cache(rows, dtype=dtype)
        times, written, start = [], [], 0
        for _ in range(new):
            end = start + token.shape[1]
            logits = model(token, torch.arange(start, end), input_pos_maxp1=end)
            token, start = logits[:, -1].argmax(-1, keepdim=True), end
            written.append(token[:, 0].tolist())
            times.append(perf_counter())
        return {
            "count": {"prompt": rows * length, "steps": rows * (new - 1), "call": rows * new},
            "seconds": {"prompt": times[0] - begun, "steps": times[-1] - times[0], "call": times[-1] - begun},
            "ids": [list(row) for row in zip(*written)],  # noqa: B905 # a peer's Python may be older
        }

    return {
        "versions": {"litgpt": version("litgpt"), "torch": torch.__version__},
        "bits": 8 * dtype.itemsize,
    }, run
