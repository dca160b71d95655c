"""The input of ``/v1/responses``: items, checked, and made into messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from transpect.serve.http.errors import bad
from transpect.serve.http.fields import Choice, Field, Kind, Object, Text, read, wrong_type
from transpect.serve.http.limits import Limits
from transpect.serve.http.messages import Content, arguments

__all__ = ["InputItems", "as_messages"]

_ROLES: Final = ("system", "developer", "user", "assistant")
_COMMON: Final = {"id": Field(Text(128)), "status": Field(Choice(("completed", "incomplete", "in_progress")))}
_TABLES: Final = {
    "message": {"role": Field(Choice(_ROLES), required=True), "content": Field(Content(), required=True)},
    "function_call": {
        "call_id": Field(Text(128), required=True),
        "name": Field(Text(64, 1), required=True),
        "arguments": Field(Text(), required=True),
    },
    "function_call_output": {"call_id": Field(Text(128), required=True), "output": Field(Content(), required=True)},
}


class InputItems(Kind):
    """Lists of messages, calls of functions, and what these gave.

    Args:
        limits: how many items there may be.
    """

    def __init__(self, limits: Limits) -> None:
        self._most = limits.messages

    def read(self, value: Any, param: str) -> list[dict[str, Any]]:
        """See `Kind.read`: each with its type."""
        if not isinstance(value, list):
            raise wrong_type(param, "an array", value)
        if not 0 < len(value) <= self._most:
            code = "array_above_max_length" if value else "array_below_min_length"
            raise bad(param, f"'{param}' must have 1 to {self._most} items (got {len(value)}).", code)
        return [self._item(own, f"{param}[{place}]") for place, own in enumerate(value)]

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        kinds = [
            Object({**_COMMON, "type": Field(Choice((kind,)), required=kind != "message"), **table}).schema()
            for kind, table in _TABLES.items()
        ]
        return {"type": "array", "items": {"anyOf": kinds}, "minItems": 1, "maxItems": self._most}

    def _item(self, value: Any, param: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise wrong_type(param, "an object", value)
        said = value.get("type")
        kind = Choice(tuple(_TABLES)).read("message" if said is None else said, f"{param}.type")
        table = {**_COMMON, "type": Field(Text(64)), **_TABLES[kind]}
        found = {**read(table, value, f"{param}."), "type": kind}
        if kind == "function_call":
            found["arguments"] = arguments(found["arguments"], f"{param}.arguments")
        return found


def as_messages(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The conversation of a checked request, as a chat template takes it."""
    told = given.get("instructions")
    messages: list[dict[str, Any]] = [] if told is None else [{"role": "system", "content": told}]
    if isinstance(given["input"], str):
        return [*messages, {"role": "user", "content": given["input"]}]
    for item in given["input"]:
        if item["type"] == "message":
            role = "system" if item["role"] == "developer" else item["role"]
            messages.append({"role": role, "content": item["content"]})
        elif item["type"] == "function_call":
            function = {"name": item["name"], "arguments": item["arguments"]}
            call = {"id": item["call_id"], "type": "function", "function": function}
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        else:
            messages.append({"role": "tool", "content": item["output"], "tool_call_id": item["call_id"]})
    return messages
