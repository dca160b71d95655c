"""AWQ: columns that meet large inputs are made larger before they are rounded, and their inputs smaller by as much
(Lin et al. 2024, https://arxiv.org/abs/2306.00978, §3.2).

Axes: N out, D in, M inputs.

For a scale s = rms(x)^α of each column, the α is taken that leaves the least Σ ‖(Ŵ(W·s)/s − W) Xᵀ‖² over the layers
that read one input. What gives the input is divided by s (`folds`), so the model in full stays what it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from transpect.base.checks import within
from transpect.quant.folds import Fold
from transpect.quant.formats import Format, Stored
from transpect.quant.gptq import Gptq
from transpect.quant.rounding import rounded

__all__ = ["Awq", "Clipped"]

ROWS = 256
"""Rows of a layer on which exponents are compared."""


@dataclass(frozen=True)
class Clipped:
    """Each weight to the nearest value of a grid that is clipped so that Σ x²·(ŵ − w)² over the inputs is least."""

    def stored(self, weight: Tensor, hessian: Tensor, format: Format) -> Stored:
        """[N, D] in a format, for H = XᵀX [D, D] in float64."""
        return rounded(weight, format, hessian.diagonal())


@dataclass(frozen=True)
class Awq:
    """Attributes:
    steps: exponents α = 0, 1/steps, …, 1 that are tried.
    then: how the scaled weights get their codes.
    """

    steps: int = 10
    then: Gptq | Clipped = field(default_factory=Clipped)

    def __post_init__(self) -> None:
        within("steps", self.steps)

    def stored(self, weight: Tensor, hessian: Tensor, format: Format) -> Stored:
        """See `then`."""
        return self.then.stored(weight, hessian, format)

    def scale(self, fold: Fold, formats: Sequence[Format | None], hessian: Tensor) -> Tensor:
        """s, [D], ones where no exponent is better.

        Args:
            fold: whose readers are to be put into formats.
            formats: of the readers; None stays in full.
            hessian: H of their input, [D, D] in float64.
        """
        size = fold.shared(hessian.diagonal().float()).sqrt()
        parts = [
            (reader.weight.detach()[:: max(1, len(reader.weight) // ROWS)].float(), format)
            for reader, format in zip(fold.readers, formats, strict=True)
            if format is not None
        ]
        best = torch.ones_like(size)
        if not bool((size > 0).any()):
            return best
        H = (hessian / hessian.diagonal().mean()).float()
        size = size.clamp(min=1e-4 * float(size.max()))
        least = sum(_error(weight, best, format, H) for weight, format in parts)
        for step in range(1, self.steps + 1):
            scale = size ** (step / self.steps)
            scale = scale / (scale.max() * scale.min()).sqrt()
            error = sum(_error(weight, scale, format, H) for weight, format in parts)
            if error < least:
                best, least = scale, error
        return best


def _error(weight: Tensor, scale: Tensor, format: Format, H: Tensor) -> float:
    """tr(Δ H Δᵀ) of Δ = Ŵ(W·s)/s − W."""
    stored = rounded(weight * scale, format, H.diagonal() / scale.square())
    off = format.unpack(stored) / scale - weight
    return float((off @ H * off).sum())
