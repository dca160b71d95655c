"""``POST /v1/responses``: the next items of a conversation, in the words of OpenAI's newer API. Nothing is stored."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from transpect.serve.http import tools
from transpect.serve.http.body import read_body
from transpect.serve.http.errors import ApiError
from transpect.serve.http.fields import Choice, Field, Flag, Integer, Items, Number, Object, Table, Text, Union, read
from transpect.serve.http.generation import Generation
from transpect.serve.http.items import InputItems, as_messages
from transpect.serve.http.limits import Limits
from transpect.serve.http.options import LARGEST, JsonObject
from transpect.serve.http.routes.chat import begin_chat
from transpect.serve.http.service import service_of
from transpect.serve.http.streams import Stream, whole


def fields(limits: Limits) -> Table:
    """What a request may hold."""
    function = {
        "type": Field(Choice(("function",)), required=True),
        "name": Field(tools.ToolName(), required=True),
        "description": Field(Text()),
        "parameters": Field(tools.Parameters()),
        "strict": Field(Flag()),
    }
    form = {
        "type": Field(Choice(("text", "json_object", "json_schema")), required=True),
        "name": Field(Text(64)),
        "description": Field(Text()),
        "schema": Field(JsonObject()),
        "strict": Field(Flag()),
    }
    return {
        "model": Field(Text(256)),
        "input": Field(Union((Text(), InputItems(limits)), "a string or an array of items"), required=True),
        "instructions": Field(Text(), note="A system message before the input."),
        "max_output_tokens": Field(Integer(0, LARGEST)),
        "temperature": Field(Number(0, 2)),
        "top_p": Field(Number(0, 1)),
        "tools": Field(Items(Object(function), limits.tools)),
        "tool_choice": Field(_NamedChoice()),
        "parallel_tool_calls": Field(Flag()),
        "text": Field(Object({"format": Field(Object(form))}), note="Hold the output to JSON, or to a JSON schema."),
        "stream": Field(Flag()),
        "store": Field(Choice((False,)), note="Nothing is stored."),
        "truncation": Field(Choice(("disabled",))),
        "background": Field(Choice((False,))),
        "include": Field(Items(Text(64), 0)),
        "metadata": Field(JsonObject(), note="Given back as it is."),
        "user": Field(Text(512), note="Accepted, and not used."),
    }


_NAMES: Final = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "response_format.json_schema": "text.format.schema",
    "response_format": "text.format",
}
"""What conversations call otherwise."""


class _NamedChoice(tools.ToolChoice):
    """As `tools.ToolChoice`, with the name beside the type."""

    def read(self, value: Any, param: str) -> str | tuple[str]:
        """See `Kind.read`."""
        if isinstance(value, dict) and set(value) == {"type", "name"}:
            value = {"type": value["type"], "function": {"name": value["name"]}}
        return super().read(value, param)

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        named = {"type": Field(Choice(("function",)), required=True), "name": Field(tools.ToolName(), required=True)}
        return {"anyOf": [*super().schema()["anyOf"], Object(named).schema()]}


async def create(request: HttpRequest) -> Response:
    """Answer a conversation."""
    service = service_of(request)
    given = read(fields(service.limits), await read_body(request, service.limits))
    same = ("model", "temperature", "top_p", "stream", "tool_choice", "parallel_tool_calls")
    asked: dict[str, Any] = {name: given[name] for name in same if name in given}
    if "tools" in given:
        asked["tools"] = [
            {"type": "function", "function": {name: own[name] for name in own if name != "type"}}
            for own in given["tools"]
        ]
    if "max_output_tokens" in given:
        asked["max_tokens"] = given["max_output_tokens"]
    form = given.get("text", {}).get("format")
    if form is not None:
        described = {name: form[name] for name in form if name != "type"}
        asked["response_format"] = {
            "type": form["type"],
            **({"json_schema": described} if "schema" in described else {}),
        }
    generation, offer = await begin_chat(request, {**asked, "messages": as_messages(given)}, _NAMES)
    answer = Output(generation, offer, given)
    if given.get("stream"):
        return ItemStream(request, generation, answer.pieces(), done=False)
    return await whole(request, generation, answer.whole)


class ItemStream(Stream):
    """A stream whose errors are events of the same kind as the others."""

    def problem(self, error: ApiError) -> Any:
        """See `Stream.problem`."""
        return "error", {"type": "error", "code": error.code, "message": error.message, "param": error.param}


class Output:
    """The items of a response, as they are answered.

    Args:
        generation: where they come from.
        offer: the functions that may be called.
        given: the request.
    """

    def __init__(self, generation: Generation, offer: tools.Offer, given: Mapping[str, Any]) -> None:
        self._generation, self._offer, self._given = generation, offer, given
        self._id, self._created = f"resp_{secrets.token_hex(12)}", int(time.time())
        self._message = f"msg_{secrets.token_hex(12)}"

    async def whole(self) -> dict[str, Any]:
        """All in one piece."""
        text, reason = "", ""
        async for _, event in self._generation.events():
            text += event.text
            reason = event.finish_reason or reason
        content, calls = self._offer.calls_in(text)
        items = [self._text(content, _status(reason))] if content or not calls else []
        return self._response(reason, [*items, *map(_call, calls)])

    async def pieces(self) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """The same as events, each with its number."""
        number = 0
        async for name, more in self._events():
            yield name, {"type": name, "sequence_number": number, **more}
            number += 1

    async def _events(self) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        begun = {**self._response("", []), "status": "in_progress", "usage": None}
        yield "response.created", {"response": begun}
        yield "response.in_progress", {"response": begun}
        place = {"item_id": self._message, "output_index": 0, "content_index": 0}
        out = held = reason = ""
        calls: list[tools.ToolCall] = []
        async for _, event in self._generation.events():
            held += event.text
            if event.finish_reason is None:
                cut = self._offer.held_from(held) if not out else self._offer.held_from(f"x{held}") - 1
                piece, held = held[:cut], held[cut:]
            else:
                reason = event.finish_reason
                piece, calls = self._offer.calls_in(held)
            if piece and not out:
                yield "response.output_item.added", {"output_index": 0, "item": self._text("", "in_progress")}
                yield "response.content_part.added", {**place, "part": _part("")}
            if piece:
                out += piece
                yield "response.output_text.delta", {**place, "delta": piece, "logprobs": []}
        if not out and not calls:
            yield "response.output_item.added", {"output_index": 0, "item": self._text("", "in_progress")}
            yield "response.content_part.added", {**place, "part": _part("")}
        items = []
        if out or not calls:
            items.append(self._text(out, _status(reason)))
            yield "response.output_text.done", {**place, "text": out, "logprobs": []}
            yield "response.content_part.done", {**place, "part": _part(out)}
            yield "response.output_item.done", {"output_index": 0, "item": items[0]}
        for own in calls:
            item = _call(own)
            where = {"output_index": len(items)}
            started = {**item, "arguments": "", "status": "in_progress"}
            arguments = {"item_id": item["id"], **where}
            yield "response.output_item.added", {**where, "item": started}
            yield "response.function_call_arguments.delta", {**arguments, "delta": own.arguments}
            yield "response.function_call_arguments.done", {**arguments, "arguments": own.arguments, "name": own.name}
            yield "response.output_item.done", {**where, "item": item}
            items.append(item)
        found = self._response(reason, items)
        yield f"response.{found['status']}", {"response": found}

    def _text(self, text: str, status: str) -> dict[str, Any]:
        content = [] if status == "in_progress" else [_part(text)]
        return {"id": self._message, "type": "message", "role": "assistant", "status": status, "content": content}

    def _response(self, reason: str, items: list[dict[str, Any]]) -> dict[str, Any]:
        given, usage, status = self._given, self._generation.usage(), _status(reason)
        choice = given.get("tool_choice", "auto")
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "error": None,
            "model": self._generation.model.id,
            "instructions": given.get("instructions"),
            "max_output_tokens": given.get("max_output_tokens"),
            "metadata": given.get("metadata", {}),
            "output": items,
            "parallel_tool_calls": given.get("parallel_tool_calls", True),
            "previous_response_id": None,
            "store": False,
            "temperature": given.get("temperature"),
            "text": given.get("text", {"format": {"type": "text"}}),
            "tool_choice": {"type": "function", "name": choice[0]} if isinstance(choice, tuple) else choice,
            "tools": given.get("tools", []),
            "top_p": given.get("top_p"),
            "truncation": "disabled",
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": usage["prompt_tokens_details"],
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage["total_tokens"],
            },
        }


def _status(reason: str) -> str:
    """What became of an answer that ended so."""
    return "incomplete" if reason == "length" else "completed"


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call(call: tools.ToolCall) -> dict[str, Any]:
    made = {"id": f"fc_{secrets.token_hex(12)}", "call_id": f"call_{secrets.token_hex(12)}", "type": "function_call"}
    return {**made, "name": call.name, "arguments": call.arguments, "status": "completed"}
