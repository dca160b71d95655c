"""Checks that options make of their own values: one line a rule, the same words everywhere."""

from __future__ import annotations

import math

from transpect.base.errors import ConfigError


def at_least(name: str, value: float | None, low: float) -> None:
    """``value`` ≥ ``low``; None passes.

    Raises:
        ConfigError: it is smaller, or no number.
    """
    if value is not None and not value >= low:
        raise ConfigError(f"{name} must be at least {low}", value=value)


def above(name: str, value: float | None, low: float) -> None:
    """``value`` > ``low`` and finite; None passes.

    Raises:
        ConfigError: it is not.
    """
    if value is not None and not (value > low and math.isfinite(value)):
        raise ConfigError(f"{name} must be above {low}", value=value)


def share(name: str, value: float) -> None:
    """0 ≤ ``value`` < 1, as a dropout rate must be.

    Raises:
        ConfigError: it is not.
    """
    if not 0.0 <= value < 1.0:
        raise ConfigError(f"{name} must be at least 0 and below 1", value=value)
