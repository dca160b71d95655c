"""``adapter_config.json``: what can be read of it, and what is refused by name.

Source: PEFT, ``LoraConfig``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from transpect.base.errors import CheckpointError
from transpect.interop.options import words
from transpect.interop.places import ADAPTER_CONFIG
from transpect.interop.weights import read_json

__all__ = ["PREFIX", "Settings", "read_settings"]

PREFIX: Final = "base_model.model."
"""Before each name of a tensor."""

_VOID: Final = words(
    """auto_mapping base_model_name_or_path ensure_weight_tying ephemeral_gpu_offload exclude_modules fan_in_fan_out
    inference_mode layers_pattern layers_to_transform loftq_config lora_dropout megatron_config megatron_core
    modules_to_save peft_version qalora_group_size revision runtime_config target_modules task_type"""
)
"""Which layers have an adapter, and which modules are saved, the tensors themselves say."""
_READ: Final = frozenset({"peft_type", "r", "lora_alpha", "use_rslora", "use_dora", "rank_pattern", "alpha_pattern"})
_ALLOWED: Final[Mapping[str, tuple[Any, ...]]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    # the others change the weights of the base when they begin
    "init_lora_weights": (True, False, "gaussian", "orthogonal", "eva"),
}


@dataclass(frozen=True)
class Settings:
    """What a config says of the numbers beside it.

    Attributes:
        rank: r of most layers.
        alpha: of most layers.
        rslora: whether a change counts alpha/√r.
        dora: whether there are magnitudes.
        ranks, alphas: by pattern, of the others.
        base: the name of the model that the adapter is for, if it is said.
    """

    rank: int
    alpha: float
    rslora: bool
    dora: bool
    ranks: Mapping[str, int]
    alphas: Mapping[str, float]
    base: str | None

    def scale(self, module: str, rank: int) -> float:
        """What the change of a layer counts, by its name there.

        Raises:
            CheckpointError: its matrices have another rank than is said.
        """
        said = _by_pattern(self.ranks, module, self.rank)
        if said != rank:
            raise CheckpointError(f"the rank of {module} must be the {said} of {ADAPTER_CONFIG}", value=rank)
        alpha = float(_by_pattern(self.alphas, module, self.alpha))
        return alpha / (rank**0.5 if self.rslora else rank)


def read_settings(folder: Path) -> Settings:
    """Read a config.

    Raises:
        CheckpointError: there is none, or it asks for something that can't be built, by name.
    """
    file = folder / ADAPTER_CONFIG
    if not file.is_file():
        raise CheckpointError(f"an adapter is a directory with {ADAPTER_CONFIG}", value=folder)
    data = read_json(file)
    for name, values in _ALLOWED.items():
        if name in data and data[name] not in values:
            said = ", ".join(map(str, values))
            raise CheckpointError(f"{name} of an adapter must be one of {said}", value=data[name], file=file)
    others = {name: data[name] for name in data.keys() - _VOID - _READ - _ALLOWED.keys() if data[name]}
    if others:
        raise CheckpointError(
            "this adapter has options that can't be built",
            value=", ".join(f"{name}={value!r}" for name, value in sorted(others.items())),
            file=file,
            remedy="Merge it with PEFT (merge_and_unload), and load what that gives.",
        )
    try:
        return Settings(
            rank=int(data.get("r", 8)),
            alpha=float(data.get("lora_alpha", 8)),
            rslora=bool(data.get("use_rslora")),
            dora=bool(data.get("use_dora")),
            ranks={str(key): int(value) for key, value in (data.get("rank_pattern") or {}).items()},
            alphas={str(key): float(value) for key, value in (data.get("alpha_pattern") or {}).items()},
            base=data.get("base_model_name_or_path") or None,
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"not the config of an adapter: {error}", file=file) from error


def _by_pattern(patterns: Mapping[str, Any], module: str, otherwise: Any) -> Any:
    """The value of the first pattern that is the whole of a module's name, or its end from a dot on."""
    for pattern, value in patterns.items():
        try:
            found = re.match(rf"(.*\.)?({pattern})$", module)
        except re.error as error:
            raise CheckpointError(f"not a regular expression: {error}", value=pattern) from error
        if found:
            return value
    return otherwise
