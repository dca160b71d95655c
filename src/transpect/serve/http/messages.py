"""Conversations as OpenAI's API writes them, checked, and made into what chat templates read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from transpect.base.errors import TokenizerError
from transpect.base.files import read_text_file
from transpect.serve.http.body import parse
from transpect.serve.http.errors import ApiError, bad
from transpect.serve.http.fields import Choice, Field, Integer, Items, Kind, Object, Text, read, wrong_type
from transpect.serve.http.limits import Limits
from transpect.serve.http.models import Served

__all__ = ["Content", "Messages", "arguments", "template_of"]

ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")
PARTS: Final = ("text", "input_text", "output_text")

_FUNCTION: Final = {"name": Field(Text(64, 1), required=True), "arguments": Field(Text(), required=True)}
_CALL: Final = {
    "id": Field(Text(128)),
    "type": Field(Choice(("function",))),
    "function": Field(Object(_FUNCTION), required=True),
    "index": Field(Integer(0, 1024)),
}


class Content(Kind):
    """A text, or parts of type ``text``; nothing that would have to be fetched."""

    def read(self, value: Any, param: str) -> str:
        """See `Kind.read`: the text."""
        if isinstance(value, str):
            return value
        if not isinstance(value, list):
            raise wrong_type(param, "a string or an array of parts", value)
        texts = []
        for place, part in enumerate(value):
            where = f"{param}[{place}]"
            if not isinstance(part, dict):
                raise wrong_type(where, "an object", part)
            kind = part.get("type")
            if kind not in PARTS:
                message = f"'{where}.type' must be 'text': this server reads text only, and fetches nothing."
                raise bad(f"{where}.type", message)
            if not isinstance(part.get("text"), str):
                raise wrong_type(f"{where}.text", "a string", part.get("text"))
            texts.append(part["text"])
        return "".join(texts)

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        part = {
            "type": "object",
            "properties": {"type": {"enum": list(PARTS)}, "text": {"type": "string"}},
            "required": ["type", "text"],
        }
        return {"anyOf": [{"type": "string"}, {"type": "array", "items": part}]}


class Messages(Kind):
    """A conversation.

    Args:
        limits: how many messages there may be, and calls of functions in each.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._fields = {
            "role": Field(Choice(ROLES), required=True),
            "content": Field(Content()),
            "name": Field(Text(64)),
            "tool_calls": Field(Items(Object(_CALL), limits.tools)),
            "tool_call_id": Field(Text(128)),
            "refusal": Field(Text()),
            "reasoning_content": Field(Text()),
            "annotations": Field(Items(Object({}), 0)),
            "audio": Field(Choice(())),
            "function_call": Field(Object(_FUNCTION)),
        }

    def read(self, value: Any, param: str) -> list[dict[str, Any]]:
        """See `Kind.read`: messages as a template takes them."""
        if not isinstance(value, list):
            raise wrong_type(param, "an array", value)
        if not value:
            raise bad(param, f"'{param}' must have at least one message.", "array_below_min_length")
        if len(value) > self._limits.messages:
            message = f"'{param}' may have at most {self._limits.messages} items (got {len(value)})."
            raise bad(param, message, "array_above_max_length")
        return [self._message(own, f"{param}[{place}]") for place, own in enumerate(value)]

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        others = Choice(tuple(role for role in ROLES if role != "assistant"))
        kinds = [{"role": others, "content": self._fields["content"].kind}]
        kinds += [
            {"role": Choice(("assistant",)), name: kind}  # who says something, or calls
            for name, kind in (
                ("content", self._fields["content"].kind),
                ("tool_calls", Items(Object(_CALL), self._limits.tools, 1)),
                ("function_call", self._fields["function_call"].kind),
            )
        ]
        needed = [{name: Field(kind, required=True) for name, kind in own.items()} for own in kinds]
        one = {"anyOf": [Object({**self._fields, **own}).schema() for own in needed]}
        return {"type": "array", "items": one, "minItems": 1, "maxItems": self._limits.messages}

    def _message(self, value: Any, param: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise wrong_type(param, "an object", value)
        found = read(self._fields, value, f"{param}.")
        if found["role"] == "developer":
            found["role"] = "system"  # which templates know
        calls = found.get("tool_calls")
        if "content" not in found and not (found["role"] == "assistant" and (calls or "function_call" in found)):
            raise bad(
                f"{param}.content", f"Missing required parameter: '{param}.content'.", "missing_required_parameter"
            )
        found.setdefault("content", "")
        for place, call in enumerate(calls or ()):
            where = f"{param}.tool_calls[{place}].function.arguments"
            call["function"]["arguments"] = arguments(call["function"]["arguments"], where)
            call.setdefault("type", "function")
            call.pop("index", None)
        return found


_INNER: Final = Limits()
"""Of JSON inside a text: the body that holds it is bounded."""


def template_of(model: Served) -> str:
    """The name of the model's chat template, or its source.

    Raises:
        ApiError: 400, it has none.
    """
    named = model.spec.chat_template
    if "{" in named or named in model.lm.tokenizer.chat_templates:
        return named
    if not Path(named).is_file():
        message = f"The model '{model.id}' has no chat template: ask it at /v1/completions."
        raise bad("model", f"{message} (Its server can be given one by --chat-template FILE.)", "model_not_capable")
    return read_text_file(Path(named), TokenizerError)


def arguments(text: str, param: str) -> Any:
    """The arguments of a call, which the API writes as the text of JSON, and templates read as an object."""
    try:
        found = parse(text.encode() or b"{}", _INNER)
    except ApiError as error:
        why = error.message.partition(": ")[2]
        raise bad(param, f"'{param}' must be the text of a JSON object: {why}") from None
    if not isinstance(found, dict):
        raise bad(param, f"'{param}' must be the text of a JSON object.")
    return found
