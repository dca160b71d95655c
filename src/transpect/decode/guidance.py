"""Classifier-free guidance: away from what the model would write without the condition.

Axes: B rows of a strategy, k tokens read at once, D model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from transpect.decode.request import Request
from transpect.decode.stepper import Read, ReadsAhead, Steps


def without(requests: Sequence[Request]) -> list[Request]:
    """What the model reads for each request instead of its condition; nothing where none of them is guided."""
    if not any(request.params.guided for request in requests):
        return []
    return [
        replace(request, prompt=request.negative or request.prompt[-1:])
        if request.source is None
        else replace(request, source=request.negative or request.source[-1:])
        for request in requests
    ]


class Guided:
    """`Steps` of B rows over `Steps` of 2B rows: B that read the condition, and after them B that read another one, or
    none. Both read all new tokens. The logits of a row are

        ln u + g (ln c − ln u),

    where c and u are what its two rows find probable. A g above 1 leads away from u, 1 is c alone (and then the logits
    are c's own), 0 is u alone.

    Args:
        steps: at the beginning.
        scales: g of each row.

    Source: Sanchez et al. 2023 (arXiv:2306.17806, eq. 7), as in ``transformers``
    (``UnbatchedClassifierFreeGuidanceLogitsProcessor``).
    """

    def __init__(self, steps: Steps, scales: Sequence[float]) -> None:
        self._steps = steps
        self.vocab_size, self.device = steps.vocab_size, steps.device
        self._scales = torch.tensor(scales, dtype=torch.float64, device=steps.device)

    @property
    def spare(self) -> int:
        """See `Steps.spare`: each token is read twice."""
        return self._steps.spare // 2

    def prefill(self, *, every: bool = False) -> Tensor:
        """See `Steps.prefill`."""
        return self._guided(self._steps.prefill(every=every))

    def advance(self, token: Tensor) -> Tensor:
        """See `Steps.advance`."""
        return self._guided(self._steps.advance(token.repeat(2)))

    def extend(self, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        """See `Steps.extend`."""
        return self._guided(self._steps.extend(tokens.repeat(2, 1), None if real is None else real.repeat(2, 1)))

    def forget(self, keep: Tensor) -> None:
        """See `Steps.forget`."""
        self._steps.forget(keep.repeat(2, 1))

    @contextmanager
    def ahead(self, n_layers: int) -> Iterator[Read]:
        """See `ReadsAhead.ahead`."""
        assert isinstance(self._steps, ReadsAhead), "only a model has layers"
        with self._steps.ahead(n_layers) as read:
            yield lambda tokens, real: self._guided(
                read(tokens.repeat(2, 1), None if real is None else real.repeat(2, 1))
            )

    @property
    def hidden(self) -> Tensor:
        """See `Steps.hidden`: of the rows with the condition."""
        return self._steps.hidden[: len(self._scales)]

    def select(self, rows: Sequence[int]) -> None:
        """See `Steps.select`."""
        others = len(self._scales)
        self._steps.select([*rows, *(others + row for row in rows)])
        self._scales = self._scales[torch.tensor(rows, device=self.device)]

    def _guided(self, logits: Tensor) -> Tensor:
        """[2B, ..., V] to [B, ..., V]."""
        with torch.inference_mode():
            with_it, without = logits.tensor_split(2)
            wide = torch.promote_types(logits.dtype, torch.float32)
            c, u = with_it.to(wide).log_softmax(-1), without.to(wide).log_softmax(-1)
            scale = self._scales.to(wide).reshape(-1, *[1] * (logits.ndim - 1))
            # −inf − −inf is no number: the condition alone decides there
            guided = torch.where(c.isinf() | u.isinf(), c, u + scale * (c - u))
            return torch.where(scale == 1, with_it.to(wide), guided)
