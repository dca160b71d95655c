"""What a chat template may use: an allow list, since what could do harm can't be listed."""

from __future__ import annotations

from collections.abc import Mapping, MappingView
from types import GeneratorType
from typing import Final

__all__ = ["FILTERS", "METHODS"]

FILTERS: Final = frozenset(
    {
        "abs",
        "capitalize",
        "count",
        "d",
        "default",
        "dictsort",
        "e",
        "escape",
        "first",
        "float",
        "forceescape",
        "groupby",
    }
    | {"indent", "int", "items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr"}
    | {"replace", "reverse", "safe", "select", "selectattr", "sort", "string", "sum", "title", "trim", "truncate"}
    | {"unique", "upper"}
)
"""Filters of jinja2 that chat templates use."""

METHODS: Final[Mapping[type, frozenset[str]]] = {
    str: frozenset(
        {"capitalize", "casefold", "count", "endswith", "find", "format", "index", "isalnum", "isalpha", "isascii"}
        | {"isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "join", "lower", "lstrip"}
        | {"partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip"}
        | {"split", "splitlines", "startswith", "strip", "swapcase", "title", "upper"}
    ),
    Mapping: frozenset({"copy", "get", "items", "keys", "values"}),
    list: frozenset({"copy", "count", "index"}),
    tuple: frozenset({"count", "index", "grouper", "list"}),  # the last two are those of what `groupby` gives
    float: frozenset({"is_integer"}),
    **dict.fromkeys((bytes, int, range, type, set, frozenset, MappingView, GeneratorType), frozenset()),
}
"""The methods and attributes that a template may use of values of Python's own types."""
