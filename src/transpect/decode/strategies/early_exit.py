"""Drafts by the first layers of the model itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from transpect.decode.checks import check
from transpect.decode.stepper import ReadsAhead, Steps
from transpect.decode.strategies.assisted import Assisted, Draftsman
from transpect.decode.strategies.speculative import Drafter, Drafts, at_least_one

if TYPE_CHECKING:
    from transpect.core import ModelConfig
    from transpect.decode.params import GenerationParams
    from transpect.decode.row import Row


@dataclass(frozen=True, kw_only=True)
class EarlyExit(Assisted):
    """Self-speculative decoding: the first layers draft, with the model's own final norm and head, and use its cache
    (Elhoushi et al. 2024, LayerSkip, §4.3). It pays for models that were trained to be left early.

    Attributes:
        early_exit: after which layer, counted from 1.
    """

    early_exit: int

    trigger: ClassVar[str] = "early_exit"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one("early_exit", self.early_exit)

    def check(self, params: GenerationParams, config: ModelConfig) -> None:
        """See `Strategy.check`."""
        check(
            self.early_exit < config.last.n_layers,
            f"early_exit must come before the last of {config.last.n_layers} layers",
            self.early_exit,
            "Try a quarter of them.",
        )

    def drafter(self, steps: Steps, rows: Sequence[Row]) -> Drafter:
        """See `Speculative.drafter`."""
        assert isinstance(steps, ReadsAhead), "only a model has layers"
        return ByLayers(self, steps, rows)


class ByLayers:
    """See `Drafter`."""

    def __init__(self, options: EarlyExit, steps: ReadsAhead, rows: Sequence[Row]) -> None:
        self._layers, self._steps = options.early_exit, steps
        self._draftsman = Draftsman(options, rows)

    def draft(self, rows: Sequence[Row], most: Sequence[int]) -> Drafts:
        """See `Drafter.draft`."""
        limits = self._draftsman.limits(most)
        if not any(limits):
            return self._draftsman.rest()
        last = torch.tensor([[row.trace.written[-1]] for row in rows], device=self._steps.device)  # [B, 1]
        with self._steps.ahead(self._layers) as read:
            return self._draftsman.write(rows, limits, read(last, None)[:, -1], read)

    def settle(self, accepted: Sequence[int]) -> None:
        """See `Drafter.settle`."""
        self._draftsman.settle(accepted)

    def select(self, rows: Sequence[int]) -> None:
        """See `Drafter.select`."""
        self._draftsman.select(rows)
