"""No positions: order is known only through visibility (Haviv et al. 2022, "NoPE")."""

from __future__ import annotations

from dataclasses import dataclass

from transpect.core.positions.base import Dims, Position, PositionModule


@dataclass(frozen=True)
class NoPosition(Position, kind="none"):
    """Nothing is added anywhere."""

    def build(self, dims: Dims) -> PositionModule:
        return PositionModule()
