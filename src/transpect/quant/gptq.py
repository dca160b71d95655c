"""GPTQ: columns are put into a format one after another, and what each got wrong is made up for by those still to come
(Frantar et al. 2023, https://arxiv.org/abs/2210.17323, Algorithm 1).

Axes: N out, D in, G groups of a row, M inputs.

It lowers ‖(W − Ŵ)Xᵀ‖² of inputs X [M, D], which depends on them by H = XᵀX alone. The grids are chosen once from W
before any column changes, so columns may go in the order of their weight in H whatever the groups are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from transpect.base.checks import above, within
from transpect.quant.formats import Format, Stored
from transpect.quant.grid import Grid

ROWS = 4096
"""Rows at once."""


@dataclass(frozen=True)
class Gptq:
    """Attributes:
    damping: what is added to the diagonal of H, as a share of its mean.
    ordered: columns go by falling diagonal of H, not from the first to the last.
    block: columns whose errors reach later blocks together; changes nothing but the speed.
    """

    damping: float = 0.01
    ordered: bool = True
    block: int = 128

    def __post_init__(self) -> None:
        above("damping", self.damping, 0)
        within("block", self.block)

    def stored(self, weight: Tensor, hessian: Tensor, format: Format) -> Stored:
        """[N, D] in a format.

        Args:
            weight: in full.
            hessian: H, [D, D] in float64.
            format: which.
        """
        H = hessian.clone()
        mean = float(H.diagonal().mean())
        H.diagonal().add_(self.damping * mean if mean > 0 else 1.0)
        importance = H.diagonal().clone()
        D = len(H)
        order = importance.argsort(descending=True, stable=True) if self.ordered else torch.arange(D, device=H.device)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(H[order][:, order]))
        upper = torch.linalg.cholesky(inverse, upper=True)
        parts = []
        wide = weight.detach().to(torch.promote_types(weight.dtype, torch.float32))
        for rows in torch.split(wide, ROWS):
            grid = format.fit(rows, importance)
            parts.append(format.pack(self._codes(rows, grid, order, upper.to(wide.dtype)), grid))
        return {key: torch.cat([part[key] for part in parts]) for key in parts[0]}

    def _codes(self, weight: Tensor, grid: Grid, order: Tensor, upper: Tensor) -> Tensor:
        """The chosen q, [N, D]. Columns stand as rows here, so that each lies in one piece."""
        D = len(order)
        group = order // (D // grid.scale.shape[-1])
        scale, offset = grid.scale.T[group].contiguous(), grid.offset.T[group].contiguous()  # [D, N]
        rest = weight.T[order].contiguous()
        codes = torch.empty_like(rest)
        pivots = upper.diagonal().tolist()
        for start in range(0, D, self.block):
            end = min(D, start + self.block)
            errors = torch.empty_like(rest[start:end])
            for at in range(start, end):
                column = rest[at]
                q = grid.nearest(column, scale[at], offset[at])
                codes[at] = q
                error = (column - torch.addcmul(offset[at], q, scale[at])) / pivots[at]
                errors[at - start] = error
                rest[at + 1 : end].addr_(upper[at, at + 1 : end], error, alpha=-1)
            rest[end:].addmm_(upper[start:end, end:].T, errors, alpha=-1)
        out = torch.empty_like(codes)
        out[order] = codes
        return out.T.contiguous()
