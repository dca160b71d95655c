"""Weights in formats as the blocks of a GGUF file, where these have the same numbers.

Axes: N out, D in, G groups of a row, g weights of a group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from transpect.base.errors import CheckpointError
from transpect.interop.layouts import Fused, Layout, Transposed, by_rows
from transpect.interop.tensors import Link
from transpect.quant import Format, GgufBlocks, Int4
from transpect.quant.formats import GgufKind
from transpect.quant.gguf_blocks import KINDS
from transpect.quant.grid import parted
from transpect.quant.linear import Quantised

__all__ = ["FILE_TYPES", "Blocks", "block_of", "blocks"]

FILE_TYPES: Final[Mapping[str, int]] = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q4_K": 15, "Q6_K": 18}
"""``general.file_type`` of a file most of whose matrices are in such blocks (llama.h, ``llama_ftype``)."""


@dataclass(frozen=True)
class Blocks:
    """A matrix of the file.

    Attributes:
        kind: of its blocks.
        rows: uint8 [N, bytes of a row].
        shape: N and D.
    """

    kind: GgufKind
    rows: Tensor
    shape: tuple[int, int]


def block_of(format: Format) -> GgufKind:
    """The kind of block that has the very numbers of a format.

    Raises:
        CheckpointError: none has.
    """
    if isinstance(format, GgufBlocks):
        return format.block
    if format == Int4(32):
        return "Q4_0"
    raise CheckpointError(
        "a GGUF file has no blocks with the numbers of this format",
        value=format,
        remedy="Use q8_0, q4_0, q4_1, q4_k, q6_k or int4 for a .gguf file, or save a directory.",
    )


def blocks(item: Link, quantised: Mapping[str, Quantised], *, transposed: bool) -> Blocks:
    """The matrix of a Hugging Face checkpoint as rows of blocks.

    Args:
        item: its name, and our weights that it holds.
        quantised: the modules of weights by name.
        transposed: whether the file has it turned over, as against the checkpoint.

    Raises:
        CheckpointError: its parts have several formats, one that GGUF has no blocks for, or columns where rows are.
    """
    found = {block_of(quantised[name].format) if name in quantised else None for name in item.ours}
    if len(found) > 1:
        raise CheckpointError(
            f"{item.theirs} holds {len(item.ours)} weights of this model in one tensor, so they must have one format",
            value=", ".join("full" if kind is None else kind for kind in found),
        )
    (kind,) = found
    assert kind is not None
    layout = _turned(item.layout) if transposed else item.layout
    if not by_rows(layout):
        raise CheckpointError("the file has this matrix by columns, and blocks stand in rows", value=item.theirs)
    parts = [quantised[name] for name in item.ours]
    rows = layout.pack([_rows(part) for part in parts])[0]
    return Blocks(kind, rows.cpu(), (sum(part.shape[0] for part in parts), parts[0].shape[1]))


def _turned(layout: Layout) -> Layout:
    """The layout of the transposed tensor, where that is one by rows."""
    if isinstance(layout, Fused):
        return Fused(_turned(layout.inner))
    return Fused() if isinstance(layout, Transposed) else layout


def _rows(part: Quantised) -> Tensor:
    stored = part.stored()
    if isinstance(part.format, GgufBlocks):
        return stored["packed"]
    codes = torch.stack([stored["packed"] & 15, stored["packed"] >> 4], -1).flatten(-2)
    scale = stored["scale"].float()[..., None]  # [N, G, 1]
    return KINDS["Q4_0"].pack(parted(codes, (-1, 32)), scale, scale).flatten(1)
