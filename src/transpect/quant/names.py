"""Formats by the names that commands take."""

from __future__ import annotations

from transpect.base.errors import ConfigError
from transpect.quant.formats import Format, GgufBlocks, Int4, Int8

FORMATS: dict[str, Format] = {
    "int8": Int8(),
    "int8-group": Int8(group=32),
    "int4": Int4(),
    "int4-64": Int4(group=64),
    "int4-zero": Int4(symmetric=False),
    "int4-zero-64": Int4(group=64, symmetric=False),
    "q8_0": GgufBlocks("Q8_0"),
    "q4_0": GgufBlocks("Q4_0"),
    "q4_1": GgufBlocks("Q4_1"),
    "q4_k": GgufBlocks("Q4_K"),
    "q6_k": GgufBlocks("Q6_K"),
}
"""Each name with its format; ``-zero`` formats store the code that means 0."""


def format_named(name: str) -> Format:
    """The format of a name, in either case.

    Raises:
        ConfigError: there is none.
    """
    found = FORMATS.get(name.lower())
    if found is None:
        raise ConfigError("no such weight format", value=name, remedy=f"Formats: {', '.join(FORMATS)}.")
    return found
