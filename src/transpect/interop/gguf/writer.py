"""A model and its tokenizer as a GGUF file, which llama.cpp and the tools around it open."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transpect.base.errors import CheckpointError
from transpect.core import ModelConfig, Pooled, Transformer
from transpect.interop.blank import blank
from transpect.interop.directory import atomic_file
from transpect.interop.families import FAMILIES
from transpect.interop.family import Family, canonical
from transpect.interop.gguf.architectures import ARCHITECTURES
from transpect.interop.gguf.blocks import FILE_TYPES, Blocks, block_of, blocks
from transpect.interop.gguf.reader import NORMALIZE, POOLS, SAMPLING
from transpect.interop.gguf.rope import FACTORS, factors, older
from transpect.interop.gguf.table import Architecture, Layout, Source
from transpect.interop.tensors import pack_state
from transpect.quant import Plan
from transpect.quant.gguf_blocks import KINDS
from transpect.quant.swap import in_formats, in_full, targets
from transpect.text import Tokenizer
from transpect.text.gguf import tokenizer_metadata

__all__ = ["DType", "check_gguf", "write_gguf"]

DType = Literal["f32", "f16", "q8_0"]
"""How matrices are written: 4, 2 or 1 1/16 bytes a number. Vectors and positions are always f32."""

_FILE_TYPE: Final = {"f32": 0, "f16": 1, "q8_0": 7}
_ALWAYS_F32: Final = ("position_embd.weight", "token_types.weight")
_BLOCK: Final = 32

Metadata = dict[str, Any]
Held = Tensor | tuple[Tensor, Layout, int] | Blocks
"""What a tensor of the file is made of."""


def write_gguf(
    model: Transformer,
    tokenizer: Tokenizer,
    path: str | Path,
    dtype: DType = "f32",
    *,
    generation: Mapping[str, Any] = {},
    name: str = "",
) -> None:
    """Write a GGUF file, all or nothing: a file that stands there is replaced once the new one is complete.

    Weights that are in formats are written as the blocks that have their very numbers.

    Args:
        model: of a family that llama.cpp knows and a table here describes.
        tokenizer: of the model.
        path: the file.
        dtype: of the matrices that are in no format; a row that is not whole blocks of 32 numbers is f16 where q8_0
            was asked for.
        generation: how the model wants to be decoded; its sampling goes into the file.
        name: what the model is called.

    Raises:
        CheckpointError: a model or a format that GGUF has no word for, or a file that can't be written.
        TokenizerError: a tokenizer that llama.cpp would not read the same way.
    """
    if dtype not in _FILE_TYPE:
        raise CheckpointError(f"the dtype of a GGUF file must be one of {', '.join(_FILE_TYPE)}", value=dtype)
    architecture, family, config, data = _described(model.config)
    tensors = _tensors(model, architecture, family, data)
    metadata: Metadata = {
        "general.name": name or architecture.name,
        "general.file_type": _file_type(tensors, dtype),
        "general.quantization_version": 2,
        **architecture.write(data),
        **tokenizer_metadata(tokenizer, model.config.vocab_size),
        **{key: generation[option] for key, option in SAMPLING.items() if generation.get(option) is not None},
    }
    if isinstance(model.config.head, Pooled):
        metadata[f"{architecture.name}.pooling_type"] = POOLS[model.config.head.pool]
        if model.config.head.normalize:
            metadata[NORMALIZE] = True
    _check(architecture, family, config, metadata, tensors)
    _write(Path(path), architecture.name, metadata, tensors, dtype)


def _described(config: ModelConfig) -> tuple[Architecture, Family, ModelConfig, dict[str, Any]]:
    """The architecture of a config, its family, the config as that family has it, and its config.json."""
    for architecture in ARCHITECTURES.values():
        family = FAMILIES.get(architecture.model_type)
        if family is None:
            continue
        as_theirs = config
        if not architecture.causal and isinstance(config.head, Pooled) and config.head.transform is None:
            as_theirs = replace(config, head=family.heads[architecture.head])
        elif not architecture.causal:
            continue  # the file has no place for another head
        data = family.write(as_theirs)
        if data is not None and data["architectures"] == [architecture.head]:
            return architecture, family, as_theirs, older(data)
    raise CheckpointError(
        f"a model that is written as GGUF must be one of {', '.join(ARCHITECTURES)}, with the head that llama.cpp has "
        "for it (a language model's, or for bert a pooled embedding)",
        value=f"{config.family or config.kind} with the head {config.head.kind}",
        remedy="Save a Hugging Face directory instead.",
    )


def check_gguf(config: ModelConfig, plan: Plan) -> None:
    """Whether `write_gguf` can write a model of a config once a plan has put its weights into formats.

    Raises:
        ConfigError: a plan that does not fit the model.
        CheckpointError: a model or a format that GGUF has no word for.
    """
    _described(config)
    for target in targets(blank(config), plan):
        block_of(target.format)


def _tensors(
    model: Transformer, architecture: Architecture, family: Family, data: Mapping[str, Any]
) -> dict[str, Held]:
    """The file's tensors, by the file's names, each with what is still to be done to it."""
    state, quantised = in_full(model), in_formats(model)
    shapes = {name: tensor.shape for name, tensor in state.items()}
    shapes |= {name: torch.Size(module.shape) for name, module in quantised.items()}
    links = family.links(model.config, shapes, bare=not architecture.causal)
    packed = {item.theirs: item for item in links if any(name in quantised for name in item.ours)}
    whole = pack_state(state, [item for item in links if item.theirs not in packed])
    found: dict[str, Held] = {}
    for theirs in (item.theirs for item in links):
        place = architecture.place_of(theirs)
        if place is None:
            raise CheckpointError(f"the architecture {architecture.name} has no place for a tensor", value=theirs)
        gguf_name, layout = place
        heads = int(data[layout.heads] or 0) if layout.heads else 0
        if theirs in packed:
            held = blocks(packed[theirs], quantised, transposed=layout.transposed)
            found[gguf_name] = replace(held, rows=_ordered(held.rows, layout, heads))
        else:
            found[gguf_name] = (whole[theirs].detach(), layout, heads)
    scaling = factors(data) if FACTORS in architecture.absorbed else None
    if scaling is not None:
        found[FACTORS] = torch.from_numpy(scaling)
    return found


def _ordered(rows: Tensor, layout: Layout, heads: int) -> Tensor:
    """Rows as the file has them, within heads."""
    if not heads:
        return rows
    turned = torch.empty_like(rows)
    turned[torch.from_numpy(layout.order(len(rows), heads))] = rows
    return turned


def _array(value: Held) -> npt.NDArray[np.float32]:
    """A tensor that is in no format as it stands in the file, in float32."""
    assert not isinstance(value, Blocks)
    tensor, layout, heads = value if isinstance(value, tuple) else (value, Layout(), 0)
    tensor = tensor.cpu().float()
    if layout.transposed and tensor.ndim == 2:
        tensor = tensor.t()
    if layout.shift:
        tensor = tensor + layout.shift
    array: npt.NDArray[np.float32] = _ordered(tensor.contiguous(), layout, heads).numpy()
    return array


def _shape(value: Held) -> tuple[int, ...]:
    if isinstance(value, Blocks):
        return value.shape
    tensor, layout = (value[0], value[1]) if isinstance(value, tuple) else (value, Layout())
    return tuple(tensor.shape[::-1] if layout.transposed and tensor.ndim == 2 else tensor.shape)


def _check(
    architecture: Architecture, family: Family, config: ModelConfig, metadata: Metadata, tensors: Mapping[str, Any]
) -> None:
    """What the file says must be the model.

    Raises:
        CheckpointError: GGUF has no word for something in it.
    """
    shapes = {name: _shape(value) for name, value in tensors.items()}
    said = {key: float(np.float32(value)) if isinstance(value, float) else value for key, value in metadata.items()}
    data = architecture.read(Source(architecture.name, said, shapes, lambda name: _array(tensors[name])))
    names = [architecture.name_of(name)[0] for name in tensors]
    read = family.read(data, lambda: names)
    if not architecture.causal:  # the head is not in the family's options but in the pooling type
        read = replace(read, head=config.head)
    wanted, found = canonical(config), canonical(read)
    if found != wanted:
        raise CheckpointError(
            f"GGUF's architecture {architecture.name} has no word for something in this model's config",
            value="; ".join(_differences(wanted, found))[:200],
            remedy="Save a Hugging Face directory instead.",
        )


def _differences(wanted: Any, found: Any, place: str = "") -> Iterator[str]:
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in wanted.keys() | found.keys():
            yield from _differences(wanted.get(key), found.get(key), f"{place}.{key}" if place else key)
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for i, (one, other) in enumerate(zip(wanted, found, strict=True)):
            yield from _differences(one, other, f"{place}.{i}")
    elif wanted != found:
        yield f"{place}={wanted!r}"


def _write(path: Path, name: str, metadata: Metadata, tensors: Mapping[str, Any], dtype: DType) -> None:
    from gguf import GGMLQuantizationType, GGUFWriter
    from gguf.quants import quantize

    kinds = {key: _kind(key, value, dtype) for key, value in tensors.items()}
    wider = [key for key, kind in kinds.items() if dtype == "q8_0" and kind == "F16"]
    if wider:
        warnings.warn(
            f"{len(wider)} tensors are written as f16, since their rows are not whole blocks of {_BLOCK} numbers as "
            f"q8_0 needs them: {', '.join(wider[:3])}{', …' if len(wider) > 3 else ''}",
            stacklevel=3,
        )
    with atomic_file(path) as temporary:
        writer = GGUFWriter(temporary, name)
        try:
            for key, value in metadata.items():
                _add(writer, key, value)
            for key, value in tensors.items():
                kind, shape = GGMLQuantizationType[kinds[key]], _shape(value)
                writer.add_tensor_info(key, shape, np.dtype(np.float32), _nbytes(shape, kinds[key]), kind)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            for key, value in tensors.items():
                if isinstance(value, Blocks):
                    _put(writer, value.rows.contiguous().numpy())
                    continue
                array = _array(value)
                if kinds[key] == "Q8_0" and not np.isfinite(array).all():
                    raise CheckpointError(
                        "what is quantised must be finite numbers, and a tensor has others",
                        value=key,
                        remedy="Write it as f32, or mend the weights.",
                    )
                if kinds[key] == "F16" and np.abs(array[np.isfinite(array)]).max(initial=0) > np.finfo(np.float16).max:
                    raise CheckpointError("a number is too large for f16", value=key, remedy="Write it as f32.")
                _put(writer, quantize(array, GGMLQuantizationType[kinds[key]]))
        finally:
            writer.close()


def _put(writer: Any, data: npt.NDArray[Any]) -> None:
    try:
        writer.write_tensor_data(data)
    except OSError as error:
        if error.errno is None:  # numpy says how much it wrote and not why; the system says it if asked again
            writer.fout[0].write(bytes(data.nbytes))
            writer.fout[0].flush()
        raise


def _file_type(tensors: Mapping[str, Held], dtype: DType) -> int:
    kinds = Counter(value.kind for value in tensors.values() if isinstance(value, Blocks))
    return FILE_TYPES[kinds.most_common(1)[0][0]] if kinds else _FILE_TYPE[dtype]


def _kind(name: str, value: Held, dtype: DType) -> str:
    if isinstance(value, Blocks):
        return value.kind
    shape = _shape(value)
    if len(shape) < 2 or name in _ALWAYS_F32 or dtype == "f32":
        return "F32"
    return "Q8_0" if dtype == "q8_0" and shape[-1] % _BLOCK == 0 else "F16"


def _nbytes(shape: tuple[int, ...], kind: str) -> int:
    numbers = int(np.prod(shape))
    whole = {"F32": 4 * numbers, "F16": 2 * numbers}
    return whole[kind] if kind in whole else numbers // KINDS[kind].weights * KINDS[kind].bytes


def _add(writer: Any, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
