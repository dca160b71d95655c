"""A model whose weights are in formats, as tensors of such a directory and the ``quantization_config`` of its config.

Axes: N out, D in, G groups of a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from transpect.base.errors import CheckpointError
from transpect.core import Transformer
from transpect.interop.compressed import words
from transpect.interop.compressed.scheme import METHOD, PACKED
from transpect.interop.compressed.weights import CODES, FULL, SCALE, SHAPE, ZERO
from transpect.interop.layouts import Layout, by_rows
from transpect.interop.tensors import Alias, Link
from transpect.quant import Format, GgufBlocks, Int4, Int8
from transpect.quant.formats import Stored
from transpect.quant.grid import parted
from transpect.quant.linear import Quantised
from transpect.quant.swap import HEAD, TABLE, in_formats

__all__ = ["Packed", "check", "holds", "packed_state"]

BLOCKS: dict[str, Format] = {"Q8_0": Int8(32), "Q4_0": Int4(32)}
"""Blocks of a GGUF file whose values are whole numbers of a scale."""

LM_HEAD = "lm_head"
"""What `transformers` calls a projection to the vocabulary in memory, whatever the directory calls it."""


@dataclass
class Packed:
    """What is written of weights in formats.

    Attributes:
        tensors: by the names of the directory.
        whole: weights of ours that are written in full after all, by their names: token tables.
        config: the entry ``quantization_config``; empty where nothing is packed.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    whole: dict[str, Tensor] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)


def holds(model: Transformer, links: Sequence[Link]) -> bool:
    """Whether every weight that is in a format stands by rows there: nothing else is packed."""
    quantised = in_formats(model)
    return all(by_rows(item.layout) for item in links if any(name in quantised for name in item.ours))


def check(model: Transformer, links: Sequence[Link]) -> None:
    """Whether `packed_state` can write a model's formats; no weight is looked at.

    Raises:
        CheckpointError: see there.
    """
    quantised = in_formats(model)
    for item in links:
        if any(name in quantised and name != f"{TABLE}.{FULL}" for name in item.ours):
            _one_format(item, quantised)


def packed_state(model: Transformer, links: Sequence[Link], aliases: Sequence[Alias]) -> Packed:
    """The weights that are in formats, by the names of the directory.

    A token table is written in full: no tool of the field opens a packed one that a head is tied to.

    Args:
        model: with weights in formats, or none.
        links: their tensors and ours.
        aliases: second names of theirs, which are not packed.

    Raises:
        CheckpointError: a format that the layout can't say exactly, or parts of one tensor in several.
    """
    quantised = in_formats(model)
    found = Packed()
    table = quantised.pop(f"{TABLE}.{FULL}", None)
    if table is not None:
        found.whole[f"{TABLE}.{FULL}"] = table.dequantised(model.token.weight.dtype)
    if not quantised:
        return found
    formats: dict[str, Format] = {}
    dtype = model.token.weight.dtype
    ignored = [alias.theirs.removesuffix(f".{FULL}") for alias in aliases]
    for item in links:
        module = item.theirs.removesuffix(f".{FULL}")
        if not any(name in quantised for name in item.ours):
            if item.theirs.endswith(f".{FULL}"):
                ignored += [module, *([LM_HEAD] if item.ours[0].startswith(HEAD) else [])]
            continue
        format, parts = _one_format(item, quantised), [quantised[name] for name in item.ours]
        stored = _joined(item.layout, [_exact(part) for part in parts])
        shape = (sum(part.shape[0] for part in parts), parts[0].shape[1])
        found.tensors |= {f"{module}.{name}": value for name, value in _tensors(format, stored, shape, dtype).items()}
        formats[module] = format
    found.config = _config(formats, sorted(set(ignored)))
    return found


def _one_format(item: Link, quantised: Mapping[str, Quantised]) -> Format:
    formats = {_exact_format(quantised[name].format) if name in quantised else None for name in item.ours}
    if len(formats) > 1:
        raise CheckpointError(
            f"{item.theirs} holds {len(item.ours)} weights of this model in one tensor, so they must have one format",
            value=", ".join("full" if format is None else str(format) for format in formats),
            remedy=f"Give {', '.join(name.rsplit('.', 2)[-2] for name in item.ours)} the same format.",
        )
    (format,) = formats
    assert format is not None
    return format


def _exact_format(format: Format) -> Format:
    """The format of whole numbers and scales that has the same values.

    Raises:
        CheckpointError: a block whose values are not whole numbers of a scale.
    """
    if not isinstance(format, GgufBlocks):
        return format
    if format.block in BLOCKS:
        return BLOCKS[format.block]
    raise CheckpointError(
        f"the layout of {METHOD} has no word for blocks of this kind",
        value=format.block,
        remedy="Save them as a .gguf file, or quantise the model in full to int8, int4 or int4-zero.",
    )


def _exact(part: Quantised) -> Stored:
    """What is stored of `_exact_format`."""
    stored, format = part.stored(), part.format
    if not isinstance(format, GgufBlocks):
        return stored
    packed = parted(stored["packed"], (-1, 34 if format.block == "Q8_0" else 18))  # [N, G, bytes]
    scale = packed[..., :2].contiguous().view(torch.float16)[..., 0]
    if format.block == "Q8_0":
        return {"packed": packed[..., 2:].flatten(1).view(torch.int8), "scale": scale.float()}
    codes = torch.cat([packed[..., 2:] & 15, packed[..., 2:] >> 4], -1).flatten(1)
    empty = torch.empty(0, 0, dtype=torch.uint8)
    return {"packed": codes[:, 0::2] | codes[:, 1::2] << 4, "scale": scale, "zero": empty}


def _joined(layout: Layout, parts: Sequence[Stored]) -> Stored:
    """The rows of several parts as they stand in the one tensor there."""
    first = parts[0]
    return {key: layout.pack([part[key] for part in parts])[0] if first[key].numel() else first[key] for key in first}


def _tensors(format: Format, stored: Stored, shape: tuple[int, int], dtype: torch.dtype) -> dict[str, Tensor]:
    stored = {key: value.detach().cpu() for key, value in stored.items()}
    # others multiply in the scale's dtype: it is the model's where that holds the scale exactly
    scale = stored["scale"].float() if dtype in (torch.float32, torch.float64) else stored["scale"]
    shaped = {SCALE: scale, SHAPE: torch.tensor(shape)}
    if isinstance(format, Int8):
        return {CODES: words.pack((stored["packed"].to(torch.int16) + 128).to(torch.uint8), 8), **shaped}
    nibbles = torch.stack([stored["packed"] & 15, stored["packed"] >> 4], -1).flatten(-2)
    zero = stored["zero"].t()  # [G, N]: words run along the rows of the matrix here
    middle = {ZERO: words.pack(zero, 4).t().contiguous()} if zero.numel() else {}
    return {CODES: words.pack(nibbles, 4), **shaped, **middle}


def _config(formats: dict[str, Format], ignored: list[str]) -> dict[str, Any]:
    """The most frequent format for all linear layers, the others by the names of theirs."""
    (usual, _), *others = Counter(formats.values()).most_common()
    groups = {usual: ["Linear"]}
    for format, _ in others:
        groups[format] = [name for name, each in formats.items() if each == format]
    return {
        "quant_method": METHOD,
        "format": PACKED,
        "quantization_status": "compressed",
        "config_groups": {
            f"group_{index}": {
                "targets": targets,
                "weights": _arguments(format),
                "input_activations": None,
                "output_activations": None,
                "format": PACKED,
            }
            for index, (format, targets) in enumerate(groups.items())
        },
        "ignore": ignored,
        "kv_cache_scheme": None,
        "global_compression_ratio": None,
    }


def _arguments(format: Format) -> dict[str, Any]:
    assert isinstance(format, Int8 | Int4)
    return {
        "num_bits": 8 if isinstance(format, Int8) else 4,
        "type": "int",
        "symmetric": isinstance(format, Int8) or format.symmetric,
        "strategy": "channel" if format.group is None else "group",
        "group_size": format.group,
        "dynamic": False,
    }
