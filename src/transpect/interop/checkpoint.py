"""A checkpoint is a Hugging Face directory: config.json, model.safetensors, generation_config.json.

A model of a known family is written in the family's own names and layout, so that every tool of the field opens it;
any other as ``model_type: transpect``, with our config and our names.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from transpect.base.codec import Data
from transpect.base.devices import resolve_device, resolve_dtype
from transpect.base.errors import CheckpointError, ConfigError
from transpect.core import Kernel, ModelConfig, Transformer, override
from transpect.interop.blank import blank
from transpect.interop.directory import atomic_directory, settled
from transpect.interop.families import FAMILIES
from transpect.interop.family import Family, canonical
from transpect.interop.native import MODEL_TYPE, read_native, write_native
from transpect.interop.tensors import Table, identity, link, load_state, pack_state
from transpect.interop.weights import Weights, read_json, write_weights

__all__ = [
    "checkpoint_directory",
    "family_of",
    "load_config",
    "load_generation",
    "load_model",
    "resolve",
    "save_model",
    "write_model",
]

CONFIG, GENERATION = "config.json", "generation_config.json"
IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
# what a checkpoint's own files are called; all else in a directory is somebody else's and stays
OWN = (CONFIG, GENERATION, "*.safetensors", "*.safetensors.index.json", "pytorch_model*")


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


def family_of(config: ModelConfig) -> str:
    """The ``model_type`` under which a model of this config is saved; ``transpect`` where it belongs to no family."""
    return str(_as_family(config)[1]["model_type"])


def save_model(
    model: Transformer,
    path: str | Path,
    *,
    generation: Mapping[str, Any] = {},
    extra_config: Mapping[str, Any] = {},
) -> None:
    """Write a checkpoint directory, replacing one that stands there only when the new one is complete.

    Other files of a directory that is replaced (a tokenizer, say) are kept. What belongs to training and not to the
    model is not in a checkpoint of a family: how weights were initialised, the attention kernel, and dropout rates that
    the family has no word for.

    Args:
        model: what to write, in the dtype that it has.
        path: the directory.
        generation: goes to generation_config.json, and its special ids to config.json too.
        extra_config: further entries of config.json; whatever is below ``transpect`` is yours, other names must be ones
            that the family knows.

    Raises:
        CheckpointError: it can't be written, or could not be read again (see also `checkpoint_directory`).
    """
    with checkpoint_directory(path) as staging:
        write_model(model, staging, generation=generation, extra_config=extra_config)


@contextmanager
def checkpoint_directory(path: str | Path) -> Iterator[Path]:
    """An `atomic_directory` for a checkpoint: files that are no checkpoint's own go over to the new directory.

    Raises:
        CheckpointError: it can't be written, or there is a directory of directories and no checkpoint.
    """
    folder = Path(path)
    if folder.is_dir() and not (folder / CONFIG).is_file() and any(entry.is_dir() for entry in folder.iterdir()):
        raise CheckpointError(
            "this directory holds other directories and no checkpoint, so it is not replaced by one",
            value=folder,
            remedy="Choose a new directory, e.g. one below it.",
        )
    with atomic_directory(path, keep=lambda name: not any(fnmatch.fnmatch(name, own) for own in OWN)) as staging:
        yield staging


def write_model(
    model: Transformer, folder: Path, *, generation: Mapping[str, Any] = {}, extra_config: Mapping[str, Any] = {}
) -> None:
    """As `save_model`, straight into a directory that exists; for use inside `checkpoint_directory`."""
    state = model.state_dict()
    family, data = _as_family(model.config)
    ours = {name: tensor.shape for name, tensor in state.items()}
    table, links = Table(body=()), identity(ours)
    if family is not None:
        table = family.table(model.config)
        links = family.links(model.config, ours, bare=data["architectures"][0] in family.bare)
    ids = {name: generation.get(name) for name in IDS if name in generation or name != "decoder_start_token_id"}
    data = {**ids, **data}  # a family's own word stands: the padding's id may say where positions begin
    data |= {"torch_dtype": str(model.token.weight.dtype).removeprefix("torch."), **extra_config}
    _, again = _read_config(data, folder / CONFIG, lambda: [item.theirs for item in links])
    if canonical(again) != canonical(model.config):
        raise CheckpointError("extra_config must not change what the model is", value=dict(extra_config))
    _write_json(folder / CONFIG, data)
    _write_json(folder / GENERATION, dict(generation))
    computed = {item.theirs: item.tensor(model.token.weight.dtype) for item in table.computed if item.written}
    write_weights(pack_state(state, links, table.aliases) | computed, folder)


def load_model(
    path: str | Path,
    *,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype | None = None,
    kernel: Kernel | str | None = None,
) -> Transformer:
    """The model of a checkpoint or run directory, in evaluation mode.

    Weights that are stored as they are used stay in the mapped file until they are read, and in the file's pages
    after that; others are copied once. The files must not be written to while the model is in use (`save_model`
    replaces them instead).

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
    data, weights = read_json(folder / CONFIG), Weights(folder)
    family, config = _read_config(data, folder / CONFIG, lambda: weights)
    model = blank(config if kernel is None else _with_kernel(config, kernel))
    ours = {name: tensor.shape for name, tensor in model.state_dict().items()}
    table, links = Table(body=()), identity(ours)
    if family is not None:
        table = family.table(config).stored_as(weights)
        links = link(table.rows(bare=table.is_bare(weights)), ours)
    state = load_state(
        weights,
        table,
        links,
        ours,
        file=folder,
        dtype=resolve_dtype(dtype) if isinstance(dtype, str) else dtype,
        device=resolve_device(device) if isinstance(device, str) else device,
    )
    model.load_state_dict(state, assign=True)
    return model.eval()


def load_config(path: str | Path) -> ModelConfig:
    """The configuration of a checkpoint or run directory.

    Raises:
        CheckpointError: no such directory, or a family or an option that is not known.
        ConfigError: a configuration that can't be built.
    """
    folder = resolve(path)
    return _read_config(read_json(folder / CONFIG), folder / CONFIG, lambda: Weights(folder))[1]


def load_generation(path: str | Path) -> dict[str, Any]:
    """How the checkpoint wants to be decoded: generation_config.json over the special ids of config.json.

    The token that an encoder–decoder is forced to begin with stands in config.json where that is all there is.

    Raises:
        CheckpointError: no such directory, or a file that is not JSON.
    """
    folder = resolve(path)
    config = read_json(folder / CONFIG)
    ids = {name: config[name] for name in IDS if config.get(name) is not None}
    own = read_json(folder / GENERATION) if (folder / GENERATION).is_file() else _forced_bos(config)
    origin = ("transformers_version", "_from_model_config")
    return {**ids, **{name: value for name, value in own.items() if name not in origin}}


def _forced_bos(config: Mapping[str, Any]) -> dict[str, Any]:
    """What an early config.json says about the first token to write, in either of its words."""
    forced = config.get("forced_bos_token_id")
    if forced is None and config.get("force_bos_token_to_be_generated"):
        forced = config.get("bos_token_id")
    return {} if forced is None else {"forced_bos_token_id": forced}


def _read_config(
    data: Mapping[str, Any], file: Path, tensors: Callable[[], Collection[str]]
) -> tuple[Family | None, ModelConfig]:
    kind = data.get("model_type")
    try:
        if kind == MODEL_TYPE:
            return None, read_native(data)
        family = FAMILIES.get(str(kind))
        if family is None:
            known = ", ".join((*FAMILIES, MODEL_TYPE))
            raise CheckpointError(f"model_type must be one of {known}", value=kind)
        return family, family.read(data, tensors)
    except (CheckpointError, ConfigError) as error:
        error.file = error.file or file
        raise


def _as_family(config: ModelConfig) -> tuple[Family | None, Data]:
    for family in FAMILIES.values():
        data = family.write(config)
        if data is not None:
            return family, data
    return None, write_native(config)


def _with_kernel(config: ModelConfig, kernel: Kernel | str) -> ModelConfig:
    crossing = [name for name, stack in config.towers.items() if stack.cross is not None]
    return override(config, [("kernel", kernel), *((f"{name}.cross.kernel", kernel) for name in crossing)])


def _write_json(file: Path, data: Mapping[str, Any]) -> None:
    try:
        text = json.dumps(data, indent=2, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{file.name} must be plain data: {error}") from error
    file.write_text(text + "\n", encoding="utf-8")
