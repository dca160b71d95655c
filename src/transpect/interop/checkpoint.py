"""A checkpoint is a Hugging Face directory: config.json, model.safetensors, generation_config.json."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from transpect.base.codec import from_data, to_data
from transpect.base.devices import resolve_device, resolve_dtype
from transpect.base.errors import CheckpointError
from transpect.core import ModelConfig, Transformer, override
from transpect.interop.directory import atomic_directory, settled
from transpect.interop.weights import Weights, read_json, write_weights

__all__ = ["load_config", "load_generation", "load_model", "resolve", "save_model", "write_model"]

CONFIG, GENERATION = "config.json", "generation_config.json"
NATIVE = "transpect"
IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
# what a checkpoint's own files are called; all else in a directory is somebody else's and stays
OWN = (CONFIG, GENERATION, "*.safetensors", "*.safetensors.index.json", "pytorch_model*", "*.tmp")


def resolve(path: str | Path) -> Path:
    """The checkpoint directory that ``path`` means: itself, or the ``best`` (then ``last``) of a run directory.

    Raises:
        CheckpointError: there is none.
    """
    given = Path(path)
    for folder in (settled(given), settled(given / "best"), settled(given / "last")):
        if (folder / CONFIG).is_file():
            return folder
    what = "no config.json, best/ or last/ in this directory" if given.is_dir() else "no such checkpoint directory"
    raise CheckpointError(what, value=given, remedy="Give a Hugging Face directory, or a run directory that has one.")


def save_model(
    model: Transformer,
    path: str | Path,
    *,
    generation: Mapping[str, Any] = {},
    extra_config: Mapping[str, Any] = {},
) -> None:
    """Write a checkpoint directory, replacing one that stands there only when the new one is complete.

    Other files of a directory that is replaced (a tokenizer, say) are kept.

    Args:
        model: what to write, in the dtype that it has.
        path: the directory.
        generation: goes to generation_config.json, and its special ids to config.json too.
        extra_config: further entries of config.json.

    Raises:
        CheckpointError: it can't be written, or the directory holds something, but no checkpoint.
    """
    folder = Path(path)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / CONFIG).is_file():
        raise CheckpointError(
            "this directory holds something, but no checkpoint, so it is not replaced",
            value=folder,
            remedy="Choose a new directory.",
        )
    with atomic_directory(path, keep=lambda name: not any(fnmatch.fnmatch(name, own) for own in OWN)) as staging:
        write_model(model, staging, generation=generation, extra_config=extra_config)


def write_model(
    model: Transformer, folder: Path, *, generation: Mapping[str, Any] = {}, extra_config: Mapping[str, Any] = {}
) -> None:
    """As `save_model`, straight into a directory that exists; for use inside `atomic_directory`."""
    config = {"model_type": NATIVE, "config": to_data(model.config)}
    ids = {name: generation.get(name) for name in IDS}
    _write_json(folder / CONFIG, {**config, **ids, **extra_config})
    _write_json(folder / GENERATION, dict(generation))
    write_weights(model.state_dict(), folder)


def load_model(
    path: str | Path, *, device: str | torch.device = "cpu", dtype: str | torch.dtype | None = None, kernel: Any = None
) -> Transformer:
    """The model of a checkpoint or run directory, in evaluation mode.

    Args:
        path: see `resolve`.
        device: where its weights go.
        dtype: what they become; None is as stored.
        kernel: how attention is computed (a kernel, or its name); None is the default.

    Raises:
        CheckpointError: missing, unexpected or mis-shaped tensors (named), damaged files.
        ConfigError: a configuration that can't be built.
    """
    folder = resolve(path)
    config = load_config(folder)
    if kernel is not None:
        config = override(config, [("kernel", kernel)])
    if isinstance(dtype, str):
        dtype = resolve_dtype(dtype)
    with torch.device("meta"):
        model = Transformer(config)
    weights = Weights(folder)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    wrong = [name for name in expected if name in weights and weights.shapes[name] != expected[name]]
    for what, names in (
        ("missing", sorted(expected.keys() - weights.keys())),
        ("unexpected", sorted(weights.keys() - expected.keys())),
        ("mis-shaped", wrong),
    ):
        if names:
            raise CheckpointError(f"{len(names)} tensors are {what}", value=", ".join(names[:10]), file=folder)
    place = resolve_device(device) if isinstance(device, str) else device
    state = {name: weights[name].to(device=place, dtype=dtype) for name in expected}
    model.load_state_dict(state, assign=True)
    return model.eval()


def load_config(path: str | Path) -> ModelConfig:
    """The configuration of a checkpoint or run directory.

    Raises:
        CheckpointError: no such directory, or a model type that is not known.
        ConfigError: a configuration that can't be built.
    """
    file = resolve(path) / CONFIG
    data = read_json(file)
    if data.get("model_type") != NATIVE:
        raise CheckpointError("unknown model_type", value=data.get("model_type"), file=file)
    return from_data(ModelConfig, data.get("config"))


def load_generation(path: str | Path) -> dict[str, Any]:
    """How the checkpoint wants to be decoded: generation_config.json over the special ids of config.json."""
    folder = resolve(path)
    config = read_json(folder / CONFIG)
    ids = {name: config[name] for name in IDS if config.get(name) is not None}
    own = read_json(folder / GENERATION) if (folder / GENERATION).is_file() else {}
    return {
        **ids,
        **{key: value for key, value in own.items() if key not in ("transformers_version", "_from_model_config")},
    }


def _write_json(file: Path, data: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
