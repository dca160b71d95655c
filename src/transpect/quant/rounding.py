"""Plain rounding: each weight to the nearest point of its group's grid.

Axes: N out, D in.
"""

from __future__ import annotations

import torch
from torch import Tensor

from transpect.quant.formats import Format, Stored

ROWS = 4096
"""Rows at once: the search for a grid needs several copies of them."""


def rounded(weight: Tensor, format: Format, importance: Tensor | None = None) -> Stored:
    """[N, D] in a format.

    Args:
        weight: in full.
        format: which.
        importance: [D], how much the error of a column counts; None is the same for all.
    """
    parts = []
    wide = weight.detach().to(torch.promote_types(weight.dtype, torch.float32))
    for rows in torch.split(wide, ROWS):
        grid = format.fit(rows, importance)
        parts.append(format.pack(grid.codes(rows), grid))
    return {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
