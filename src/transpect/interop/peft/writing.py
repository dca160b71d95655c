"""The adapter of a model written as PEFT reads it.

Axes: N out, D in, R rank.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file
from torch import Tensor

from transpect.adapters import Adapter, DoraLinear, LowRankLinear, adapters_of
from transpect.adapters.attach import base_state, saved_names
from transpect.base.codec import Data
from transpect.core import Transformer
from transpect.interop.layouts import Transposed
from transpect.interop.peft.places import Names, Place, is_shared, names_of
from transpect.interop.peft.settings import PREFIX
from transpect.interop.places import ADAPTER, ADAPTER_CONFIG

__all__ = ["check_adapter", "write_adapter"]

_TASKS: Final[Mapping[str, str]] = {
    "sequence_class": "SEQ_CLS",
    "token_class": "TOKEN_CLS",
    "pooled": "FEATURE_EXTRACTION",
}


def check_adapter(model: Transformer) -> None:
    """Whether the adapters of a model can be written.

    Raises:
        CheckpointError: a layer that is stored there in a way that no adapter can be.
    """
    names = names_of(model.config)
    for name in adapters_of(model):
        names.place(name)


def write_adapter(model: Transformer, folder: Path, options: Adapter, base: str | None = None) -> None:
    """Write ``adapter_config.json`` and ``adapter_model.safetensors`` into a directory that exists.

    Args:
        model: with adapters.
        folder: the directory.
        options: what they were made by.
        base: the name of the model that they are for.

    Raises:
        CheckpointError: as `check_adapter`.
    """
    names, adapters = names_of(model.config), adapters_of(model)
    places = list(dict.fromkeys(names.place(name) for name in adapters))
    tensors: dict[str, Tensor] = {}
    ranks: dict[str, int] = {}
    alphas: dict[str, float] = {}
    for place in places:
        own = _packed(place, [adapters.get(name) for name in place.ours], model)
        tensors |= {f"{PREFIX}{place.module}.{name}": tensor for name, tensor in own.items()}
        rank = len(own["lora_A.weight"])
        if rank != options.rank:
            ranks[place.module] = rank
            alphas[place.module] = options.scale * (rank**0.5 if options.rslora else rank)
    whole, modules = _whole(model, options, names)
    save_file({name: value.contiguous().cpu() for name, value in (tensors | whole).items()}, folder / ADAPTER)
    conv = any(isinstance(getattr(item.layout, "inner", item.layout), Transposed) for item in names.links)
    data: Data = {
        "peft_type": "LORA",
        "task_type": _task(model),
        "base_model_name_or_path": base,
        "inference_mode": True,
        "r": options.rank,
        "lora_alpha": options.alpha,
        "lora_dropout": options.dropout,
        "use_rslora": options.rslora,
        "use_dora": options.kind == "dora",
        "target_modules": _targets(places, names),
        "modules_to_save": modules or None,
        "rank_pattern": ranks,
        "alpha_pattern": alphas,
        "fan_in_fan_out": conv,
        "bias": "none",
        "init_lora_weights": True,
    }
    (folder / ADAPTER_CONFIG).write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / ADAPTER).chmod((folder / ADAPTER_CONFIG).stat().st_mode & 0o777)


@torch.no_grad()
def _packed(place: Place, parts: list[LowRankLinear | None], model: Transformer) -> dict[str, Tensor]:
    """A, B and magnitudes of a module there, of which some of ours may have no adapter."""
    adapters = [part for part in parts if part is not None]
    shared = is_shared(adapters)
    a = adapters[0].a.weight if shared else torch.cat([adapter.a.weight for adapter in adapters])  # [R, D]
    blocks, start = [], 0
    for part, n in zip(parts, place.rows, strict=True):
        block = a.new_zeros(n, len(a))
        if part is not None:
            rank = len(part.a.weight)
            block[:, start : start + rank] = part.b.weight
            start += 0 if shared else rank
        blocks.append(block)
    out = {"lora_A.weight": a, "lora_B.weight": place.joined(blocks)}
    if isinstance(adapters[0], DoraLinear):
        lengths = [
            part.magnitude if isinstance(part, DoraLinear) else model.get_parameter(f"{name}.weight").norm(dim=1)
            for name, part in zip(place.ours, parts, strict=True)
        ]
        out["lora_magnitude_vector"] = place.joined(lengths)
    return out


def _whole(model: Transformer, options: Adapter, names: Names) -> tuple[dict[str, Tensor], list[str]]:
    """Modules that are saved as a whole: their tensors by name, and how PEFT finds them."""
    state = base_state(model)
    chosen = set(saved_names(model, options))
    tensors: dict[str, Tensor] = {}
    modules: dict[str, None] = {}
    for item in names.links:
        owners = {name.rpartition(".")[0] for name in item.ours}
        if any(name.rpartition(".")[0] in owners for name in chosen):
            tensors[item.theirs] = item.layout.pack([state[name] for name in item.ours])[0]
            modules[item.theirs.rpartition(".")[0]] = None
    for alias, of in names.aliases.items():
        if of in tensors and alias.startswith("lm_head."):  # PEFT would leave the head that is tied to it as it was
            tensors[alias] = tensors[of].clone()
            modules[alias.rpartition(".")[0]] = None
    return {f"{PREFIX}{name}": tensor for name, tensor in tensors.items()}, list(modules)


def _targets(places: list[Place], names: Names) -> list[str]:
    """Names of modules as PEFT looks for them: ends, where all modules with that end have an adapter."""
    adapted = {place.module for place in places}

    def end(module: str) -> str:
        return module.rpartition(".")[2]

    partly = {end(place.module) for place in names.places if place.module not in adapted}
    return sorted({module if end(module) in partly else end(module) for module in adapted})


def _task(model: Transformer) -> Any:
    head = model.config.head.kind
    if head == "causal_lm":
        return "SEQ_2_SEQ_LM" if model.config.kind == "encoder-decoder" else "CAUSAL_LM"
    return _TASKS.get(head)
