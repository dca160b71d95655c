"""transformers: `generate` of its M2M-100, which with sizes, weights and positions of ours is the same function."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

LAYER = {
    "self.branches.self.before": "self_attn_layer_norm",
    "self.branches.self.body": "self_attn",
    "cross.branches.cross.before": "encoder_attn_layer_norm",
    "cross.branches.cross.body": "encoder_attn",
    "ffn.branches.ffn.before": "final_layer_norm",
    "ffn.branches.ffn.body.up": "fc1",
    "ffn.branches.ffn.body.down": "fc2",
}
PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "out_proj"}


def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """``directory`` of ours, ``dtype``, ``threads``; attention as it chooses by itself."""
    import torch
    import transformers

    torch.set_num_threads(options["threads"])
    model = built(options["directory"]).to(getattr(torch, options["dtype"]))

    def run(asked: dict[str, Any]) -> dict[str, Any]:
        sources, new = asked["sources"], asked["new"]
        begun = perf_counter()
        longest = max(map(len, sources))
        out = model.generate(
            torch.tensor([source + [0] * (longest - len(source)) for source in sources]),
            attention_mask=torch.tensor([[1] * len(source) + [0] * (longest - len(source)) for source in sources]),
            min_new_tokens=new,
            max_new_tokens=new,
            do_sample=False,
            num_beams=asked["beams"],
        )
        ended = perf_counter()
        return {
            "count": {"call": len(sources) * new},
            "seconds": {"call": ended - begun},
            "ids": out[:, 1 : new + 1].tolist(),
        }

    return {
        "versions": {"transformers": transformers.__version__, "torch": torch.__version__},
        "bits": 8 * next(iter(model.parameters())).element_size(),
    }, run


def built(directory: str) -> Any:
    """The model of a directory of ours.

    Raises:
        ValueError: it is no encoder–decoder of the kind of ``recipes/translate-ui.yaml``.
    """
    import torch
    import transformers
    from safetensors.torch import load_file

    whole = json.loads((Path(directory) / "config.json").read_text(encoding="utf-8"))
    sizes = sizes_of(whole)
    config = transformers.M2M100Config(**sizes, **ids_of(whole), dropout=0.0, attention_dropout=0.0)
    config.tie_word_embeddings = True
    model: Any = transformers.M2M100ForConditionalGeneration(config)
    weights = load_file(Path(directory) / "model.safetensors")
    state = {"model.shared.weight": weights.pop("token.weight").float()}
    state |= {named(name): weight.float() for name, weight in weights.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    # the token table goes by four names
    if unexpected or any("embed_tokens" not in name and name != "lm_head.weight" for name in missing):
        raise ValueError(f"not the weights of such a model: {[*missing, *unexpected][:3]}")
    model.tie_weights()
    position = torch.arange(sizes["max_position_embeddings"], dtype=torch.float64)
    power = torch.arange(0, sizes["d_model"], 2, dtype=torch.float64) / sizes["d_model"]
    angle = position[:, None] * 10000.0**-power
    table = torch.stack([angle.sin(), angle.cos()], -1).flatten(-2).float()
    for tower in (model.model.encoder, model.model.decoder):
        # it counts positions from the padding's id on, which is 0
        tower.embed_positions.weights = torch.cat([table[:1] * 0, table, table[:2]])
        tower.embed_positions.offset = 1
    generation: Any = transformers.GenerationConfig
    model.generation_config = generation(**ids_of(whole))
    return model.eval()


def ids_of(whole: dict[str, Any]) -> dict[str, Any]:
    """The special tokens; none of ours is padding for it, since it is told what is there."""
    start, end = whole["decoder_start_token_id"], whole["eos_token_id"]
    if 0 in (start, end):
        raise ValueError("its padding is 0, which is another token here")
    return {"pad_token_id": 0, "bos_token_id": start, "eos_token_id": end, "decoder_start_token_id": start}


def sizes_of(whole: dict[str, Any]) -> dict[str, Any]:
    """What its config is told, where it can be the same function."""
    own = whole.get("config", {})
    towers = {name: own.get(name) or {} for name in ("encoder", "decoder")}
    for stack in towers.values():
        wanted = {
            "placement": {"kind": "pre"},
            "norm": {"kind": "layernorm", "eps": 1e-05, "bias": True},
            "shared_norm": False,
            "summaries": None,
            "n_unique": None,
            "others": [],
        }
        found = {name: stack.get(name) for name in wanted}
        positions, ffn, attention = stack.get("positions", {}), stack.get("ffn", {}), stack.get("attention", {})
        plain = {"kind": "sinusoidal", "base": 10000.0, "halves": False, "spread": False, "offset": 0}
        if found != wanted or positions != plain or (ffn.get("kind"), ffn.get("act")) != ("mlp", "relu"):
            raise ValueError("not an encoder-decoder with norms before, sinusoids interleaved, and ReLU")
        if any(attention.get(name) is not None for name in ("n_kv_heads", "head_dim", "qk_norm", "clip", "scale")):
            raise ValueError("not an encoder-decoder with plain attention")
    if not own["embedding"]["scaled"] or not own["head"]["tied"] or own["head"]["bias"]:
        raise ValueError("not an encoder-decoder with scaled embeddings and a tied head")
    sizes = {"vocab_size": own["vocab_size"], "d_model": own["d_model"], "scale_embedding": True}
    sizes |= {"max_position_embeddings": own["context_length"], "activation_function": "relu"}
    for name, stack in towers.items():
        sizes[f"{name}_layers"] = stack["n_layers"]
        sizes[f"{name}_attention_heads"] = stack["attention"]["n_heads"]
        sizes[f"{name}_ffn_dim"] = stack["ffn"]["d_ff"] or 4 * own["d_model"]
    return sizes


def named(name: str) -> str:
    """Its name of a weight of ours: ``towers.encoder.stack.layers.0.steps.ffn.branches.ffn.body.up.weight``."""
    _, tower, _, where, *rest = name.split(".")
    if where == "final_norm":
        return f"model.{tower}.layer_norm.{rest[-1]}"
    number, _, *path, kind = rest
    inner = ".".join(path)
    projection = PROJECTIONS.get(path[-1])
    place = LAYER[inner] if projection is None else f"{LAYER[inner.rpartition('.')[0]]}.{projection}"
    return f"model.{tower}.layers.{number}.{place}.{kind}"
