"""The fields of a request as a table: what each may hold, checked, and told as JSON schema.

One table serves three readers: the check of a request, the OpenAPI document, and the tests, which try each bound at,
above and below it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transpect.base.codec import did_you_mean
from transpect.serve.http.errors import ApiError, bad

__all__ = ["Choice", "Field", "Flag", "Integer", "Items", "Kind", "Number", "Object", "Table", "Text", "Union", "read"]


class Kind(ABC):
    """A set of JSON values."""

    @abstractmethod
    def read(self, value: Any, param: str) -> Any:
        """The value, where it is one of them.

        Raises:
            ApiError: 400 that names ``param``.
        """

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """The set as JSON schema."""


@dataclass(frozen=True)
class Integer(Kind):
    """Whole numbers from ``low`` to ``high``; 3.0 is one, for there are programs that know no other way to write 3."""

    low: int
    high: int

    def read(self, value: Any, param: str) -> int:
        """See `Kind.read`."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong_type(param, "an integer", value)
        if value < self.low:
            raise bad(param, f"'{param}' must be at least {self.low} (got {_short(value)}).", "integer_below_min_value")
        if value > self.high:
            raise bad(param, f"'{param}' must be at most {self.high} (got {_short(value)}).", "integer_above_max_value")
        return value

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True)
class Number(Kind):
    """Numbers from ``low`` to ``high``."""

    low: float
    high: float

    def read(self, value: Any, param: str) -> float:
        """See `Kind.read`."""
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise wrong_type(param, "a number", value)
        if value < self.low:
            raise bad(
                param, f"'{param}' must be at least {self.low:g} (got {_short(value)}).", "decimal_below_min_value"
            )
        if value > self.high:
            raise bad(
                param, f"'{param}' must be at most {self.high:g} (got {_short(value)}).", "decimal_above_max_value"
            )
        return value

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        return {"type": "number", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True)
class Flag(Kind):
    """True and false."""

    def read(self, value: Any, param: str) -> bool:
        """See `Kind.read`."""
        if not isinstance(value, bool):
            raise wrong_type(param, "a boolean", value)
        return value

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        return {"type": "boolean"}


@dataclass(frozen=True)
class Text(Kind):
    """Strings of ``least`` to ``most`` characters; a body's length bounds those without a bound of their own."""

    most: int | None = None
    least: int = 0

    def read(self, value: Any, param: str) -> str:
        """See `Kind.read`."""
        if not isinstance(value, str):
            raise wrong_type(param, "a string", value)
        if len(value) < self.least:
            raise bad(param, f"'{param}' must have at least {self.least} characters.", "string_below_min_length")
        if self.most is not None and len(value) > self.most:
            message = f"'{param}' may have at most {self.most} characters (got {len(value)})."
            raise bad(param, message, "string_above_max_length")
        return value

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        most = {} if self.most is None else {"maxLength": self.most}
        return {"type": "string", **({"minLength": self.least} if self.least else {}), **most}


@dataclass(frozen=True)
class Choice(Kind):
    """A few values."""

    values: tuple[str | int | bool | None, ...]

    def read(self, value: Any, param: str) -> Any:
        """See `Kind.read`."""
        for own in self.values:
            if type(own) is type(value) and own == value:
                return value
        known = ", ".join(map(repr, self.values))
        raise bad(param, f"'{param}' must be one of {known} (got {_short(value)}).")

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        return {"enum": list(self.values)} if self.values else {"not": {}}


@dataclass(frozen=True)
class Items(Kind):
    """Lists of ``least`` to ``most`` values of one kind."""

    item: Kind
    most: int
    least: int = 0

    def read(self, value: Any, param: str) -> list[Any]:
        """See `Kind.read`."""
        if not isinstance(value, list):
            raise wrong_type(param, "an array", value)
        if len(value) < self.least:
            raise bad(param, f"'{param}' must have at least {self.least} items.", "array_below_min_length")
        if len(value) > self.most:
            message = f"'{param}' may have at most {self.most} items (got {len(value)})."
            raise bad(param, message, "array_above_max_length")
        return [self.item.read(own, f"{param}[{place}]") for place, own in enumerate(value)]

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        return {"type": "array", "items": self.item.schema(), "minItems": self.least, "maxItems": self.most}


@dataclass(frozen=True)
class Union(Kind):
    """Values of one of several kinds, told apart by their type in JSON."""

    kinds: tuple[Kind, ...]
    named: str

    def read(self, value: Any, param: str) -> Any:
        """See `Kind.read`."""
        problem: ApiError | None = None
        for kind in self.kinds:
            try:
                return kind.read(value, param)
            except ApiError as error:
                # a value of the right type outside its range is told of as such, whichever kind comes first
                if error.code != "invalid_type":
                    problem = problem or error
        raise problem or wrong_type(param, self.named, value)

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        return {"anyOf": [kind.schema() for kind in self.kinds]}


@dataclass(frozen=True)
class Field:
    """One field of an object.

    Attributes:
        kind: what it may hold, besides null, which means that it is not given.
        required: whether it must be given.
        note: what it does, for the OpenAPI document.
    """

    kind: Kind
    required: bool = False
    note: str = ""


Table = Mapping[str, Field]


@dataclass(frozen=True)
class Object(Kind):
    """Objects with the fields of a table."""

    fields: Table

    def read(self, value: Any, param: str) -> dict[str, Any]:
        """See `Kind.read`."""
        if not isinstance(value, dict):
            raise wrong_type(param, "an object", value)
        return read(self.fields, value, f"{param}.")

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        return {
            "type": "object",
            "properties": {name: _described(own) for name, own in self.fields.items()},
            "required": [name for name, own in self.fields.items() if own.required],
            "additionalProperties": False,
        }


def read(table: Table, given: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    """The fields that are given and not null, each in its range.

    Args:
        table: what there may be.
        given: the object.
        within: what stands before a field's name where the object is inside another: ``stream_options.``.

    Raises:
        ApiError: 400 that names the first field that is unknown, missing or out of its range.
    """
    for name in given:
        if name not in table:
            near = did_you_mean(name, table)
            message = f"Unknown parameter: '{within}{_short(name, quoted=False)}'. {near}".strip()
            raise bad(f"{within}{name}"[:100], message, "unknown_parameter")
    found = {}
    for name, own in table.items():
        if given.get(name) is not None:
            found[name] = own.kind.read(given[name], f"{within}{name}")
        elif own.required:
            raise bad(f"{within}{name}", f"Missing required parameter: '{within}{name}'.", "missing_required_parameter")
    return found


def wrong_type(param: str, wanted: str, value: Any) -> ApiError:
    """A value of another type: 400."""
    names = {
        dict: "an object",
        list: "an array",
        str: "a string",
        bool: "a boolean",
        int: "an integer",
        float: "a number",
    }
    got = names.get(type(value), "null")
    return bad(param, f"Invalid type for '{param}': expected {wanted}, but got {got} instead.", "invalid_type")


def _described(field: Field) -> dict[str, Any]:
    nullable = field.kind.schema() if field.required else {"anyOf": [field.kind.schema(), {"type": "null"}]}
    return {**nullable, **({"description": field.note} if field.note else {})}


def _short(value: Any, *, quoted: bool = True) -> str:
    text = repr(value) if quoted else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
