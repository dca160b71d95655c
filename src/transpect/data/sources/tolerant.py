"""A source with another way to treat bad lines, as after ``--on-bad-line``."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, get_args

from transpect.base.errors import ConfigError
from transpect.data.skipping import OnBadLine

T = TypeVar("T")


def with_bad_lines(source: T, policy: str) -> T:
    """The same source, and all sources inside it, with ``on_bad_line`` set wherever they have it.

    Raises:
        ConfigError: there is no such policy.
    """
    if policy not in get_args(OnBadLine):
        raise ConfigError("--on-bad-line must be error or skip", value=policy)
    changed: T = _changed(source, policy)
    return changed


def _changed(value: Any, policy: str) -> Any:
    if isinstance(value, tuple):
        return tuple(_changed(item, policy) for item in value)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    fields = {field.name: _changed(getattr(value, field.name), policy) for field in dataclasses.fields(value)}
    if "on_bad_line" in fields:
        fields["on_bad_line"] = policy
    return dataclasses.replace(value, **fields)
