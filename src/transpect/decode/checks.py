"""A check that options of decoding make of their own values."""

from __future__ import annotations

from transpect.base.errors import GenerationError


def check(holds: bool, rule: str, value: object, remedy: str) -> None:
    """Refuse a value.

    Raises:
        GenerationError: the rule does not hold.
    """
    if not holds:
        raise GenerationError(rule, value=value, remedy=remedy)
