"""Checks that options make of their own values: one line a rule, the same words everywhere."""

from __future__ import annotations

import math

from transpect.base.errors import ConfigError

LARGEST = 2**31 - 1
"""The most that a single size may be: a width, a vocabulary, a context."""
MANY = 10_000
"""The most that may be built of one thing: layers, heads, experts."""


def at_least(name: str, value: float | None, low: float) -> None:
    """``value`` ≥ ``low``; None passes.

    Raises:
        ConfigError: it is smaller, or no number.
    """
    if value is not None and not value >= low:
        raise ConfigError(f"{name} must be at least {low}", value=value)


def at_most(name: str, value: float | None, high: float) -> None:
    """``value`` ≤ ``high``; None passes.

    The bounds are far above any model. What exceeds them is a damaged config, which would fill the memory before
    anything else could refuse it.

    Raises:
        ConfigError: it is larger, or no number.
    """
    if value is not None and not value <= high:
        raise ConfigError(f"{name} must be at most {high}", value=value, remedy="Is it a slip?")


def within(name: str, value: int | None, low: int = 1, high: int = LARGEST) -> None:
    """``low`` ≤ ``value`` ≤ ``high``; None passes.

    Raises:
        ConfigError: it is not between them.
    """
    at_least(name, value, low)
    at_most(name, value, high)


def above(name: str, value: float | None, low: float) -> None:
    """``value`` > ``low`` and finite; None passes.

    Raises:
        ConfigError: it is not.
    """
    if value is not None and not (value > low and math.isfinite(value)):
        raise ConfigError(f"{name} must be above {low}", value=value)


def not_negative(name: str, value: float | None) -> None:
    """``value`` ≥ 0 and finite; None passes.

    Raises:
        ConfigError: it is not.
    """
    if value is not None and not (value >= 0.0 and math.isfinite(value)):
        raise ConfigError(f"{name} must be a number from 0 up", value=value)


def share(name: str, value: float) -> None:
    """0 ≤ ``value`` < 1, as a dropout rate must be.

    Raises:
        ConfigError: it is not.
    """
    if not 0.0 <= value < 1.0:
        raise ConfigError(f"{name} must be at least 0 and below 1", value=value)
