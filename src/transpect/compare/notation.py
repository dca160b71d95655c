"""How values to compare are written on a command line: ``model.positions=rope,alibi,ntk=rope{scaling: {...}}``.

A value is anything that YAML reads as one: a kind (``rope``), a number, a mapping in braces. ``KIND{options}`` is short
for ``{kind: KIND, options}``, and ``LABEL=VALUE`` gives a value the name by which tables call it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from transpect.base.codec import parse_scalar
from transpect.base.errors import ConfigError

HOW = "Write --vary model.positions=rope,alibi or --vary model.positions=a=rope,'b=rope{theta: 5e5}'."
_LABEL = re.compile(r"\s*([^\s=,{}\[\]\"']+)\s*=(.*)", re.DOTALL)
_OPTIONS = re.compile(r"\s*([A-Za-z]\w*)\s*\{(.*)\}\s*", re.DOTALL)
_CLOSING = {"{": "}", "[": "]"}


@dataclass(frozen=True)
class Choice:
    """One value of a key.

    Attributes:
        label: what tables call it.
        value: as YAML reads it.
    """

    label: str
    value: Any


def parse_vary(text: str) -> tuple[str, tuple[Choice, ...]]:
    """The key and the values of ``KEY=VALUE,VALUE,…``.

    Raises:
        ConfigError: no key, no value, brackets that do not match, or a label that stands twice.
    """
    key, equals, values = text.partition("=")
    if not equals or not key.strip() or not values.strip():
        raise ConfigError("--vary needs a dotted key and its values", value=text, remedy=HOW)
    choices = tuple(_choice(part, text) for part in split_values(values))
    check_distinct([choice.label for choice in choices])
    return key.strip(), choices


def split_values(text: str) -> list[str]:
    """Part a list at its commas, leaving alone those inside brackets and quotes.

    Raises:
        ConfigError: brackets or quotes that do not match.
    """
    parts, expected, quote = [""], list[str](), ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in _CLOSING:
            expected.append(_CLOSING[char])
        elif char in _CLOSING.values():
            if not expected or expected.pop() != char:
                raise ConfigError(f"a {char!r} closes nothing", value=text, remedy=HOW)
        elif char == "," and not expected:
            parts.append("")
            continue
        parts[-1] += char
    if quote or expected:
        raise ConfigError(f"a {quote or expected[-1]!r} is missing", value=text, remedy=HOW)
    return parts


def check_distinct(labels: list[str]) -> None:
    """Refuse two variants of one name.

    Raises:
        ConfigError: a label stands twice.
    """
    for label in labels:
        if labels.count(label) > 1:
            raise ConfigError(
                "each variant needs a name of its own", value=label, remedy="Name one of them: OTHER=VALUE."
            )


def _choice(part: str, whole: str) -> Choice:
    found = _LABEL.fullmatch(part)
    text = found[2] if found else part
    label = found[1] if found else " ".join(part.split())
    if not text.strip():
        raise ConfigError("a value of --vary must not be empty", value=whole, remedy=HOW)
    short = _OPTIONS.fullmatch(text)
    return Choice(label, parse_scalar(f"{{kind: {short[1]}, {short[2]}}}" if short else text, "a value of --vary"))
