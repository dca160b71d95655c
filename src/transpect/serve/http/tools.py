"""Functions that a model may call: how they are offered, how a call is forced, and how one is found in an answer.

Models write calls in different ways. Two are known here, which cover the families that this package opens: an object
between ``<tool_call>`` and ``</tool_call>``, after text or not; and an answer that is nothing but an object, or an
array of objects, of a ``name`` and of ``arguments`` (or ``parameters``). Only a call of a function that was offered
counts.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from transpect.serve.http.errors import bad
from transpect.serve.http.fields import Choice, Field, Flag, Items, Kind, Object, Table, Text, wrong_type
from transpect.serve.http.limits import Limits
from transpect.serve.http.options import JsonObject
from transpect.text.stopping import begun_at

__all__ = ["Offer", "Parameters", "ToolCall", "ToolName", "fields", "offer_of"]

_OPEN: Final = "<tool_call>"
_BETWEEN: Final = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)

_DATA: Final = frozenset({"const", "enum", "default", "examples"})
"""Keywords of JSON schema whose values are no schemas."""

_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


@dataclass(frozen=True)
class ToolCall:
    """A call of a function.

    Attributes:
        name: of the function.
        arguments: the text of a JSON object.
    """

    name: str
    arguments: str

    def body(self, index: int | None = None) -> dict[str, Any]:
        """As an answer has it; ``index`` in a stream."""
        place = {} if index is None else {"index": index}
        function = {"name": self.name, "arguments": self.arguments}
        return {**place, "id": f"call_{secrets.token_hex(12)}", "type": "function", "function": function}


class ToolName(Kind):
    """Names of functions."""

    def read(self, value: Any, param: str) -> str:
        """See `Kind.read`."""
        if not isinstance(value, str):
            raise wrong_type(param, "a string", value)
        if not _NAME.fullmatch(value):
            raise bad(param, f"'{param}' must be 1 to 64 letters, digits, '_', '-' or '.'.")
        return value

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        return {"type": "string", "pattern": f"^{_NAME.pattern}$"}


class Parameters(Kind):
    """JSON schemas of objects: the arguments of a function."""

    _object = JsonObject()

    def read(self, value: Any, param: str) -> dict[str, Any]:
        """See `Kind.read`."""
        found = self._object.read(value, param)
        if found.get("type", "object") != "object":
            raise bad(param, f"'{param}' must describe an object: 'type' is 'object', or left out.", "invalid_schema")
        return found

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        return {"type": "object", "properties": {"type": {"const": "object"}}}


class ToolChoice(Kind):
    """Which function is to be called: none, one that the model chooses or leaves out, one at least, a certain one."""

    _words = Choice(("none", "auto", "required"))
    _named = Object(
        {
            "type": Field(Choice(("function",)), required=True),
            "function": Field(Object({"name": Field(ToolName(), required=True)}), required=True),
        }
    )

    def read(self, value: Any, param: str) -> str | tuple[str]:
        """See `Kind.read`: a word, or a name alone in a tuple."""
        if isinstance(value, dict):
            return (self._named.read(value, param)["function"]["name"],)
        if not isinstance(value, str):
            raise wrong_type(param, "a string or an object", value)
        word: str = self._words.read(value, param)
        return word

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        return {"anyOf": [self._words.schema(), self._named.schema()]}


def fields(limits: Limits) -> Table:
    """The fields of a request that are about functions."""
    function = {
        "name": Field(ToolName(), required=True),
        "description": Field(Text()),
        "parameters": Field(Parameters()),
        "strict": Field(Flag()),
    }
    tool = {"type": Field(Choice(("function",)), required=True), "function": Field(Object(function), required=True)}
    return {
        "tools": Field(Items(Object(tool), limits.tools), note="Functions that the model may call."),
        "tool_choice": Field(ToolChoice(), note="Whether it calls one, and which."),
        "parallel_tool_calls": Field(Flag(), note="Accepted; false leaves out all calls but the first."),
    }


@dataclass(frozen=True)
class Offer:
    """The functions of one request.

    Attributes:
        tools: as the template reads them; none where there are none, or none is to be called.
        forced: the names among which the answer must call one; none where it need not.
        several: whether the answer may call more than one.
    """

    tools: tuple[Mapping[str, Any], ...] = ()
    forced: tuple[str, ...] = ()
    several: bool = True

    def schema(self) -> dict[str, Any]:
        """What a forced call looks like, as JSON schema."""
        calls: list[dict[str, Any]] = []
        for tool in self.tools:
            name = tool["function"]["name"]
            if name in self.forced:
                own = tool["function"].get("parameters", {})
                one = "#" if len(self.forced) == 1 else f"#/anyOf/{len(calls)}"
                arguments = {"type": "object", **_moved(own, f"{one}/properties/arguments")}
                calls.append(
                    {
                        "type": "object",
                        "properties": {"name": {"const": name}, "arguments": arguments},
                        "required": ["name", "arguments"],
                        "additionalProperties": False,
                    }
                )
        held = calls[0] if len(calls) == 1 else {"anyOf": calls}
        return {**held, "x-guidance": {"whitespace_pattern": "[ ]?"}}  # a call is for a program to read

    def held_from(self, text: str) -> int:
        """From where on a text that is still growing may be a call, and must not be given out as text."""
        if not self.tools:
            return len(text)
        start = text.lstrip()
        if not start or start[0] in "{[":
            return 0
        found = text.find(_OPEN)
        return found if found >= 0 else begun_at(text, (_OPEN,))

    def calls_in(self, text: str) -> tuple[str, list[ToolCall]]:
        """The text of a whole answer without its calls, and these; all of the text where there are none."""
        if not self.tools:
            return text, []
        if _OPEN in text:
            found = [call for inner in _BETWEEN.findall(text) for call in self._read(inner)]
            before = text[: text.index(_OPEN)].rstrip()
        else:
            found, before = self._read(text), ""
        if not found:
            return text, []
        return before, found if self.several else found[:1]

    def _read(self, text: str) -> list[ToolCall]:
        """Calls written as JSON; none where it is anything else."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return []
        calls = []
        for one in value if isinstance(value, list) else [value]:
            if not isinstance(one, dict) or one.get("name") not in self._names:
                return []
            arguments = one.get("arguments", one.get("parameters", {}))
            if isinstance(arguments, str):
                calls.append(ToolCall(one["name"], arguments))
            elif isinstance(arguments, dict):
                calls.append(ToolCall(one["name"], json.dumps(arguments, ensure_ascii=False)))
            else:
                return []
        return calls

    @property
    def _names(self) -> Sequence[str]:
        return [tool["function"]["name"] for tool in self.tools]


def _moved(schema: Any, place: str) -> Any:
    """A schema that means at a place of another what it meant alone: references to its parts begin there.

    Values that are data, not schemas, stay as they are.
    """
    if isinstance(schema, list):
        return [_moved(own, place) for own in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: own if name in _DATA else _moved(own, place) for name, own in schema.items()}
    target = schema.get("$ref")
    if isinstance(target, str) and (target == "#" or target.startswith("#/")):
        found["$ref"] = place + target[1:]
    return found


def offer_of(given: Mapping[str, Any]) -> Offer:
    """What checked fields offer.

    Raises:
        ApiError: 400, a choice without functions, or of one that is not there; two of one name.
    """
    tools, choice = tuple(given.get("tools", ())), given.get("tool_choice", "auto")
    names = [tool["function"]["name"] for tool in tools]
    if len(set(names)) < len(names):
        raise bad("tools", "Each function in 'tools' needs a name of its own.")
    if "tool_choice" in given and not tools and choice != "none":
        raise bad("tool_choice", "'tool_choice' is only allowed when 'tools' are given.")
    if choice == "none":
        return Offer()
    if isinstance(choice, tuple) and choice[0] not in names:
        raise bad("tool_choice", f"There is no function '{choice[0]}' in 'tools'.")
    forced = choice if isinstance(choice, tuple) else tuple(names) if choice == "required" else ()
    if forced and given.get("response_format", {"type": "text"})["type"] != "text":
        raise bad("tool_choice", "An answer can't be both a call of a function and of a 'response_format'.")
    return Offer(tools, forced, given.get("parallel_tool_calls", True))
