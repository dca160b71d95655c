"""One stage of a pipeline, cut out of a whole model.

A stage is the same Transformer with the same names, but that what another stage has passes on what it is given: other
layers, the embeddings before the first stage's, the final norm and the head after the last one's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from transpect.core.attention import Pass
from transpect.core.model import Tower, Transformer
from transpect.core.positions import PositionModule
from transpect.core.positions.learned import LearnedModule
from transpect.core.tags import Tags


def keep_stage(model: Transformer, stage: int, stages: int) -> None:
    """Take from a model of one tower what is not of stage ``stage`` of ``stages``; in place.

    Layers of equal number go to each stage, earlier ones to earlier stages.
    """
    (tower,) = model.towers.values()
    assert isinstance(tower, Tower)
    stack, count = tower.stack, len(tower.stack.layers)
    own = range(count * stage // stages, count * (stage + 1) // stages)
    for index in range(count):
        if index not in own:
            stack.layers[index] = Elsewhere()
    last = stage == stages - 1
    if stage > 0:
        reads_table = last and getattr(getattr(model.head, "project", None), "weight", model.token) is None
        model.token = _handing(model.token, keeps_table=reads_table)
        tower.embeddings = Handed()  # type: ignore[assignment]
        if isinstance(stack.positions, LearnedModule):
            stack.positions = PositionModule()
    if not last:
        stack.final_norm, model.head = nn.Identity(), nn.Identity()


class Elsewhere(nn.Module):
    """A layer that another stage computes."""

    def forward(self, x: Tensor, run: Pass) -> Tensor:
        return x


class Handed(nn.Module):
    """In the place of embeddings: what the stage before gave."""

    def forward(self, x: Tensor, tags: Tags, positions: PositionModule, token_types: Tensor | None) -> Tensor:
        return x


class Handing(nn.Module):
    """In the place of a token table: gives what was received, whatever the ids are.

    Attributes:
        received: [B, T, D].
    """

    received: Tensor
    weight: Any

    def forward(self, ids: Tensor) -> Tensor:
        return self.received


class _Without(Handing):
    """One that has no table; it still says where the model is."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.weight = None
        self.register_buffer("place", torch.empty(0, device=device), persistent=False)


def _handing(token: nn.Module, *, keeps_table: bool) -> Any:
    if not keeps_table:
        return _Without(next(token.parameters()).device)
    kind: Any = type(token)
    token.__class__ = type("HandingTable", (Handing, kind), {})
    return token
