"""What can go wrong while training."""

from __future__ import annotations

from transpect.base.errors import TranspectError


class TrainingError(TranspectError):
    """A run that can't go on: its loss or its gradient is no longer a number."""
