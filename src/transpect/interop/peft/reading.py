"""An adapter of PEFT put beside the layers of a model."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from transpect.adapters import Adapter, Dora, DoraLinear, Lora, adapters_of
from transpect.adapters.attach import put
from transpect.base.errors import CheckpointError
from transpect.core import Transformer
from transpect.interop.peft.places import Names, Place, names_of
from transpect.interop.peft.settings import PREFIX, Settings, read_settings
from transpect.interop.places import ADAPTER

__all__ = ["read_adapter"]

A, B, MAGNITUDE = ".lora_A.weight", ".lora_B.weight", ".lora_magnitude_vector"


def read_adapter(model: Transformer, folder: Path) -> Transformer:
    """Put the adapter of a directory beside the layers of a model, in place; modules that it holds as a whole (a head)
    take the place of the model's.

    Raises:
        CheckpointError: an adapter of another kind or for another model, a damaged file, or a model that has one.
    """
    if adapters_of(model):
        raise CheckpointError("a model can have one adapter at a time", value=folder, remedy="Merge the one it has.")
    settings = read_settings(folder)
    try:
        tensors = load_file(folder / ADAPTER)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"the adapter can't be read: {error}", file=folder / ADAPTER) from error
    try:
        _place_all(model, {_plain(name): tensor for name, tensor in tensors.items()}, settings)
    except CheckpointError as error:
        error.file = error.file or folder / ADAPTER
        raise
    return model


def _plain(name: str) -> str:
    """A tensor's name without what stands before all, and a magnitude's without what some versions put behind it."""
    return name.removeprefix(PREFIX).replace(f"{MAGNITUDE}.weight", MAGNITUDE)


def _place_all(model: Transformer, tensors: dict[str, Tensor], settings: Settings) -> None:
    names = names_of(model.config)
    left = set(tensors)
    for place in names.places:
        module = next((name for name in _spellings(place.module, names) if f"{name}{A}" in tensors), None)
        if module is None:
            continue
        left -= {f"{module}{end}" for end in (A, B, MAGNITUDE)}
        _put(model, place, module, tensors, settings)
    if not adapters_of(model):
        raise CheckpointError("no layer of this model has a change in the adapter", value=_some(left))
    for item in names.links:
        found = next((name for name in _spellings(item.theirs, names) if name in left), None)
        if found is not None:
            left.discard(found)
            shapes = [model.get_parameter(_now(model, name)).shape for name in item.ours]
            (expected,) = item.layout.shapes(list(shapes))
            if tensors[found].shape != expected:
                raise CheckpointError(
                    f"{found} must have the shape {list(expected)}",
                    value=list(tensors[found].shape),
                    remedy="A model with more tokens, or another head, needs its own config.json beside the adapter.",
                )
            for name, part in zip(item.ours, item.layout.unpack([tensors[found]], list(shapes)), strict=True):
                _assign(model, _now(model, name), part)
    for alias in [name for name in left if name in names.aliases]:
        if names.aliases[alias] in tensors and torch.equal(tensors[alias], tensors[names.aliases[alias]]):
            left.discard(alias)
    if left:
        raise CheckpointError(
            "the adapter has tensors that this model has no place for",
            value=_some(left),
            remedy="It is for another model, or changes a table, which can't be built: merge it with PEFT.",
        )


def _put(model: Transformer, place: Place, module: str, tensors: dict[str, Tensor], settings: Settings) -> None:
    """The adapters of our layers in one module there."""
    a, b = tensors[f"{module}{A}"], tensors.get(f"{module}{B}")
    magnitude = tensors.get(f"{module}{MAGNITUDE}")
    if b is None or b.shape != (sum(place.rows), len(a)) or settings.dora != (magnitude is not None):
        raise CheckpointError(
            f"{module} must have A [r, D], B [N, r]{' and N magnitudes' if settings.dora else ''}",
            value=[list(tensors[name].shape) for name in sorted(tensors) if name.startswith(f"{module}.lora")],
        )
    options: Adapter = (Dora if settings.dora else Lora)(rank=len(a), alpha=1.0)
    scale = settings.scale(module, len(a))
    magnitudes = [None] * len(place.ours) if magnitude is None else place.parted(magnitude.flatten())
    for name, rows, lengths in zip(place.ours, place.parted(b), magnitudes, strict=True):
        base = model.get_submodule(name)
        adapter = options.build(base)
        if adapter.a.weight.shape != a.shape:
            raise CheckpointError(f"A of {module} must be {list(adapter.a.weight.shape)}", value=list(a.shape))
        adapter.scale = scale
        with torch.no_grad():
            adapter.a.weight.copy_(a)
            adapter.b.weight.copy_(rows)
            if lengths is not None:
                assert isinstance(adapter, DoraLinear)
                adapter.magnitude.copy_(lengths)
        put(model, name, adapter)


def _assign(model: Transformer, name: str, value: Tensor) -> None:
    """A whole weight in the place of the model's, which may have no numbers yet."""
    before = model.get_parameter(name)
    device = "cpu" if before.is_meta else before.device
    owner, _, last = name.rpartition(".")
    weight = torch.nn.Parameter(value.to(device, before.dtype).contiguous(), requires_grad=before.requires_grad)
    setattr(model.get_submodule(owner), last, weight)


def _now(model: Transformer, name: str) -> str:
    """The name of a weight in a model with adapters."""
    owner, _, last = name.rpartition(".")
    return f"{owner}.base.{last}" if owner in adapters_of(model) else name


def _spellings(name: str, names: Names) -> tuple[str, ...]:
    """A name there as it is from a model with a head, and from a body alone."""
    return tuple(dict.fromkeys((name, name.removeprefix(names.prefix), names.prefix + name)))


def _some(names: set[str], limit: int = 5) -> str:
    shown = sorted(names)
    return ", ".join(shown[:limit]) + (f", and {len(shown) - limit} more" if len(shown) > limit else "")
