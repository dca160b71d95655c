"""Plain rounding: each weight to the nearest point of its group's grid.

Axes: N out, D in.
"""

from __future__ import annotations

import torch
from torch import Tensor

from transpect.quant.formats import Format, Stored
from transpect.quant.grid import SEARCH, Search

CHUNK = 2**17
"""Weights at once: the search for a grid passes over them many times, in the processor's cache."""


def rounded(weight: Tensor, format: Format, importance: Tensor | None = None, search: Search = SEARCH) -> Stored:
    """[N, D] in a format.

    Args:
        weight: in full.
        format: which.
        importance: [D], how much the error of a column counts; None is the same for all.
        search: for the grids.
    """
    parts = []
    for rows in torch.split(weight.detach(), max(1, CHUNK // weight.shape[1])):
        wide = rows.to(torch.promote_types(rows.dtype, torch.float32))
        grid = format.fit(wide, importance, search)
        parts.append(format.pack(grid.codes(wide), grid))
    return {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
