"""A checkpoint is a Hugging Face directory: config.json, model.safetensors, generation_config.json.

A model of a known family is written in the family's own names and layout, so that every tool of the field opens it;
any other as ``model_type: transpect``, with our config and our names. What is read may lie elsewhere, too (see
`transpect.interop.sources`).
"""

from __future__ import annotations

import fnmatch
import json
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from transpect.base.codec import Data, did_you_mean
from transpect.base.devices import resolve_device, resolve_dtype
from transpect.base.errors import CheckpointError, ConfigError
from transpect.core import Kernel, ModelConfig, Pooled, Transformer
from transpect.interop.blank import blank
from transpect.interop.compressed import check, holds, packed_state
from transpect.interop.directory import atomic_directory
from transpect.interop.families import FAMILIES
from transpect.interop.family import Family, canonical
from transpect.interop.inference import with_family
from transpect.interop.loading import load_state
from transpect.interop.mapped import write_weights
from transpect.interop.names import locate
from transpect.interop.native import MODEL_TYPE, read_native, write_native
from transpect.interop.places import ADAPTER, ADAPTER_CONFIG, CERTIFICATE, is_adapter
from transpect.interop.quantising import quantising
from transpect.interop.sentence import MODULES, read_pooled, sayable, without_heads, write_head
from transpect.interop.sources import CONFIG, GENERATION, QUANTISED, Source, open_source
from transpect.interop.tensors import Link, Table, identity, link, pack_state
from transpect.quant import Format, Plan
from transpect.quant.swap import in_formats, in_full, swap, targets, weight_of

__all__ = [
    "as_family",
    "check_formats",
    "checkpoint_directory",
    "family_of",
    "load_config",
    "load_generation",
    "load_model",
    "save_model",
    "write_config",
    "write_model",
]

IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
# what a checkpoint's own files are called; all else in a directory is somebody else's and stays
OWN = (
    CONFIG,
    GENERATION,
    "*.safetensors",
    "*.safetensors.index.json",
    "pytorch_model*",
    "*.onnx",
    "*.onnx_data",
    MODULES,
    "1_Pooling",
    ADAPTER_CONFIG,
    ADAPTER,
    CERTIFICATE,  # it is of the weights that go
)


def family_of(config: ModelConfig) -> str:
    """The ``model_type`` under which a model of this config is saved; ``transpect`` where it belongs to no family."""
    return str(as_family(config)[1]["model_type"])


def save_model(
    model: Transformer,
    path: str | Path,
    *,
    generation: Mapping[str, Any] = {},
    extra_config: Mapping[str, Any] = {},
) -> None:
    """Write a checkpoint directory, replacing one that stands there only when the new one is complete.

    Other files of a directory that is replaced (a tokenizer, say) are kept. What belongs to training and not to the
    model is not in a checkpoint of a family: how weights were initialised, the kernel of softmax attention, and dropout
    rates that the family has no word for.

    Args:
        model: what to write, in the dtype that it has.
        path: the directory.
        generation: goes to generation_config.json, and its special ids to config.json too.
        extra_config: further entries of config.json; whatever is below ``transpect`` is yours, other names must be ones
            that the family knows.

    Raises:
        CheckpointError: it can't be written, or could not be read again (see also `checkpoint_directory`), or weights
            are in a format that the layout of compressed-tensors can't say.
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
    kind, data, table, links = _written_as(model)
    model_type = data["model_type"]
    packed = packed_state(model, links, table.aliases)
    state = in_full(model) | packed.whole
    names = [item.theirs for item in links]
    links = [item for item in links if all(name in state for name in item.ours)]  # the others are packed
    data = {**_ids(generation), **data}  # a family's own word stands: the padding's id may say where positions begin
    dtype = model.token.weight.dtype
    data |= {"torch_dtype": str(dtype).removeprefix("torch."), **extra_config}
    again = kind.read(data, lambda: names)
    if data["model_type"] != model_type or canonical(again) != canonical(model.config):
        raise CheckpointError("extra_config must not change what the model is", value=dict(extra_config))
    _write_json(folder / CONFIG, data | ({QUANTISED: packed.config} if packed.config else {}))
    _write_json(folder / GENERATION, dict(generation))
    if kind.pooled is not None:
        write_head(kind.pooled, model.config.d_model, model.config.context_length, folder)
    computed = {item.theirs: item.tensor(dtype) for item in table.computed if item.written}
    write_weights(pack_state(state, links, table.aliases) | computed | packed.tensors, folder)


def write_config(
    config: ModelConfig, folder: Path, *, generation: Mapping[str, Any] = {}, extra_config: Mapping[str, Any] = {}
) -> None:
    """What `write_model` writes beside weights, for a directory whose weights are kept in another way."""
    _write_json(folder / CONFIG, {**_ids(generation), **as_family(config)[1], **extra_config})
    _write_json(folder / GENERATION, dict(generation))


def check_formats(config: ModelConfig, plan: Plan) -> None:
    """Whether `save_model` can write a model of a config once a plan has put its weights into formats.

    Raises:
        ConfigError: a plan that does not fit the model.
        CheckpointError: formats that the layout of compressed-tensors can't say.
    """
    model = blank(config)
    for target in targets(model, plan):
        swap(model, target, target.format.empty(*weight_of(target.module).shape))
    check(model, _written_as(model)[3])


def load_model(
    path: str | Path,
    *,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype | None = None,
    kernel: Kernel | str | Mapping[str, Any] | None = None,
    allow_pickle: bool = False,
    quant: str | Format | Plan | None = None,
    adapter: str | Path | None = None,
) -> Transformer:
    """The model of a checkpoint, in evaluation mode.

    Weights that are stored as they are used stay in the mapped file until they are read, and in the file's pages
    after that; others are copied once. The files must not be written to while the model is in use (`save_model`
    replaces them instead).

    Args:
        path: see `locate`.
        device: where its weights go.
        dtype: what they become; None is as stored.
        kernel: how softmax attention is computed (a kernel, its name, or its name as
            ``kind`` and its options); None is the default.
        allow_pickle: read ``pytorch_model.bin`` where there are no safetensors.
        quant: a weight format for the linear layers, or its name (see `transpect.quant.format_named`), or a plan: each
            tensor is rounded as it is read. ``keep`` leaves the blocks of a GGUF file as they are, in the mapped file
            where their rows are in order; what has none that we compute with is restored. Weights that a directory
            holds in the layout of compressed-tensors stay in their formats, whatever is asked of the others; ``full``
            restores them.

    Raises:
        CheckpointError: missing, unexpected or mis-shaped tensors (named), damaged files.
        ConfigError: a configuration that can't be built, or no such format.
    """
    place = locate(path, allow_pickle=allow_pickle)
    asked: dict[str, Any] = {"device": device, "dtype": dtype, "kernel": kernel, "quant": quant}
    if adapter is not None or is_adapter(place):
        from transpect.interop.peft.opening import base_of, with_adapter

        if adapter is not None:
            return with_adapter(load_model(place, allow_pickle=allow_pickle, **asked), adapter)
        base = load_model(base_of(place), allow_pickle=allow_pickle, **asked)
        own = load_config(place) if (place / CONFIG).is_file() else None
        return with_adapter(base, place, own if own is None or kernel is None else own.computed_by(kernel))
    source = open_source(place, allow_pickle=allow_pickle)
    weights = source.weights()
    kind, config = _read(source)
    model = blank(config if kernel is None else config.computed_by(kernel))
    ours = {name: tensor.shape for name, tensor in model.state_dict().items()}
    table, links = Table(body=()), identity(ours)
    if kind.family is not None:
        table = kind.table(config).stored_as(weights)
        links = link(table.rows(bare=table.is_bare(weights)), ours)
    state = load_state(
        weights,
        table,
        links,
        ours,
        file=source.file.parent if source.file.name == CONFIG else source.file,
        dtype=resolve_dtype(dtype) if isinstance(dtype, str) else dtype,
        device=resolve_device(device) if isinstance(device, str) else device,
        quantising=(putting := quantising(model, quant, weights)),
    )
    if putting is not None:
        state |= putting.stored()
    model.load_state_dict(state, assign=True)
    return model.eval() if putting is None else model.eval().to(device)


def load_config(path: str | Path, *, allow_pickle: bool = False) -> ModelConfig:
    """The configuration of a checkpoint or run directory.

    Some configs leave to the tensors whether a model has a pooler, or a head of its own. Where there are no weights,
    it is the model that `transformers` makes of the config alone: with the pooler, and with a tied head.

    Args:
        path: see `locate`; of a model on a hub, no weights are downloaded.
        allow_pickle: pickled weights may be asked where the config leaves something open.

    Raises:
        CheckpointError: no such directory, a family or an option that is not known, or a question that only pickled
            weights could answer, which may not be asked.
        ConfigError: a configuration that can't be built.
    """
    return _read(open_source(locate(path, weights=False), allow_pickle=allow_pickle))[1]


def load_generation(path: str | Path) -> dict[str, Any]:
    """How the checkpoint wants to be decoded: generation_config.json over the special ids of config.json.

    The token that an encoder–decoder is forced to begin with stands in config.json where that is all there is.

    Raises:
        CheckpointError: no such directory, or a file that is not JSON.
    """
    source = open_source(locate(path, weights=False))
    ids = {name: source.config[name] for name in IDS if source.config.get(name) is not None}
    origin = ("transformers_version", "_from_model_config")
    return {**ids, **{name: value for name, value in source.generation.items() if name not in origin}}


@dataclass(frozen=True)
class _Kind:
    """How a config and tensors are read: by a family's table (None: ours), perhaps with a head from beside them."""

    family: Family | None
    pooled: Pooled | None = None

    def read(self, data: Mapping[str, Any], tensors: Callable[[], Collection[str]]) -> ModelConfig:
        if self.family is None:
            return read_native(data)
        if self.pooled is None:
            return self.family.read(data, tensors)
        return read_pooled(self.family, data, self.pooled, tensors)

    def table(self, config: ModelConfig) -> Table:
        assert self.family is not None
        return self.family.table(config) if self.pooled is None else without_heads(self.family, config)


def _read(source: Source) -> tuple[_Kind, ModelConfig]:
    try:
        data = source.config if source.config.get("model_type") else with_family(source.config, source.weights())
        name = data["model_type"] if isinstance(data["model_type"], str) else repr(data["model_type"])
        if name == MODEL_TYPE:
            kind = _Kind(None)
        elif name in FAMILIES:
            kind = _Kind(FAMILIES[name], source.pooled)
        else:
            known = ", ".join((*FAMILIES, MODEL_TYPE))
            raise CheckpointError(
                f"model_type must be one of {known}", value=name, remedy=did_you_mean(name, (*FAMILIES, MODEL_TYPE))
            )
        return kind, kind.read(data, source.names)
    except (CheckpointError, ConfigError) as error:
        error.file = error.file or source.file
        raise


def as_family(config: ModelConfig) -> tuple[_Kind, Data]:
    """Under which family's names a model of a config is saved, and its config.json."""
    candidates = sorted(FAMILIES.values(), key=lambda family: family.model_type != config.family)  # its own first
    if isinstance(config.head, Pooled) and sayable(config.head):
        for family in candidates:
            for head in family.heads.values():
                data = family.write(replace(config, head=head)) if isinstance(head, Pooled) else None
                if data is not None:
                    return _Kind(family, config.head), data
    for family in candidates:
        data = family.write(config)
        if data is not None:
            return _Kind(family), data
    if config.family is not None:
        warnings.warn(
            f"this model came as {config.family}, which has no word for something in it now: it is saved as "
            f"{MODEL_TYPE}, which other tools do not open",
            stacklevel=2,
        )
    return _Kind(None), write_native(config)


def _written_as(model: Transformer) -> tuple[_Kind, Data, Table, list[Link]]:
    """How a model is written: its kind, its config, and their names for its tensors in full."""
    kind, data = as_family(model.config)
    ours = {name: tensor.shape for name, tensor in in_full(model).items()}
    ours |= {name: torch.Size(module.shape) for name, module in in_formats(model).items()}
    if kind.family is not None:
        table = kind.family.table(model.config)
        links = kind.family.links(model.config, ours, bare=data["architectures"][0] in kind.family.bare)
        if holds(model, links):
            return kind, data, table, links
        warnings.warn(
            f"linear layers of {kind.family.model_type} are stored there in a way that has no packed layout: the model "
            f"is saved as {MODEL_TYPE}, which other tools do not open",
            stacklevel=3,
        )
    return _Kind(None), write_native(model.config), Table(body=()), identity(ours)


def _ids(generation: Mapping[str, Any]) -> Data:
    """The special ids that config.json repeats."""
    return {name: generation.get(name) for name in IDS if name in generation or name != "decoder_start_token_id"}


def _write_json(file: Path, data: Mapping[str, Any]) -> None:
    try:
        text = json.dumps(data, indent=2, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{file.name} must be plain data: {error}") from error
    file.write_text(text + "\n", encoding="utf-8")
