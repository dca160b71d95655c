"""Formats, and plans for whole models, by the names that commands take."""

from __future__ import annotations

from collections.abc import Mapping

from transpect.base.errors import ConfigError
from transpect.core import Transformer
from transpect.core.heads import Projection
from transpect.quant.formats import Format, GgufBlocks, Int4, Int8
from transpect.quant.swap import HEAD, TABLE, Plan, fits

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


TABLES: Format = Int8()
"""What token tables and heads take."""

SENSITIVE: dict[str, Format | None] = {"value": Int8(), "down": Int8()}
"""What loses most in 4 bits: values, and what ends a feed-forward, whose inputs have outliers."""

MIXED: dict[str, Format] = {"int4-mixed": Int4(), "int4-zero-mixed": Int4(symmetric=False)}
"""Names of plans that have `SENSITIVE` parts in 8 bits, with the format of the other layers."""


def format_named(name: str) -> Format:
    """The format of a name, in either case.

    Raises:
        ConfigError: there is none.
    """
    found = FORMATS.get(name.lower())
    if found is None:
        raise ConfigError("no such weight format", value=name, remedy=f"Formats: {', '.join((*FORMATS, *MIXED))}.")
    return found


def plan_named(
    name: str, model: Transformer, keep: Mapping[str, Format | None] = {}, *, table: Format | None = TABLES
) -> Plan:
    """What a name stands for in a model: its format for linear layers, and the token table and a head's own in 8 bits.

    Args:
        name: of a format or of one of `MIXED`.
        model: whose parts are asked for.
        keep: other formats by pattern (see `Plan`), which come first.
        table: of the token table and the head, where ``keep`` names neither.

    Raises:
        ConfigError: no such name.
    """
    mixed = MIXED.get(name.lower())
    parts = {} if mixed is None else {part: how for part, how in SENSITIVE.items() if part not in keep}
    own = [
        f"head.{path}"
        for path, each in model.head.named_modules()
        if isinstance(each, Projection) and each.weight is not None
    ]
    tied = (TABLE,) if own else (TABLE, HEAD)
    tables = [] if any(fits(pattern, each) for pattern in keep for each in tied) else [TABLE]
    tables += [path for path in own if not any(fits(pattern, path) for pattern in keep)]
    return Plan(format_named(name) if mixed is None else mixed, {**keep, **parts, **dict.fromkeys(tables, table)})
