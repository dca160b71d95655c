"""Conversations as others write them down, each turned into messages as chat templates read them.

===========  =======================================================================================================
``openai``   ``{"messages": [{"role": …, "content": …}, …]}``, with ``tool_calls`` and, beside it, ``tools``
``sharegpt`` ``{"conversations": [{"from": "human", "value": …}, …]}``, with ``system`` and ``tools`` beside it
``alpaca``   ``{"instruction": …, "input": …, "output": …}``, with ``system`` and ``history``
===========  =======================================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from transpect.base.codec import did_you_mean

Row = Mapping[str, Any]
Message = dict[str, Any]
Form = Literal["openai", "sharegpt", "alpaca"]

SPEAKERS: Final = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "model", "bing", "bard"), "assistant"),
    "system": "system",
    **dict.fromkeys(("tool", "observation", "function_response", "tool_response"), "tool"),
    **dict.fromkeys(("function_call", "tool_call"), "call"),
}
"""What ShareGPT's ``from`` means; ``call`` is an assistant that calls a function."""


class MisfitError(ValueError):
    """A row that is not of the form that it should be of; the message says why."""


def form_of(row: Row) -> Form | None:
    """The form of a row by its keys."""
    if isinstance(row.get("messages"), list):
        return "openai"
    if isinstance(said := row.get("conversations"), list):
        return "openai" if said and isinstance(said[0], Mapping) and "role" in said[0] else "sharegpt"
    return "alpaca" if "instruction" in row and "output" in row else None


def conversation(row: Row, form: Form) -> dict[str, Any]:
    """``{"messages": […], "tools": […]}``, the tools only where there are some.

    Raises:
        MisfitError: the row is of another form, or holds what a conversation can't.
    """
    messages = [plain_message(message, number) for number, message in enumerate(_READERS[form](row))]
    return {"messages": messages, **({} if form == "alpaca" else tools_of(row))}


def tools_of(row: Row) -> dict[str, Any]:
    """``{"tools": […]}``, or nothing where there are none.

    Raises:
        MisfitError: no list of objects, nor the JSON of one.
    """
    tools = _parsed(row.get("tools"), "tools")
    if tools is not None and (not isinstance(tools, list) or not all(isinstance(tool, Mapping) for tool in tools)):
        raise MisfitError("`tools` must be a list of JSON objects")
    return {"tools": tools} if tools else {}


def plain_message(message: Any, number: int) -> Message:
    """A message as templates read it: content that is a list of texts is one text, and the arguments of calls, which
    the API writes as the text of JSON, are objects.

    Raises:
        MisfitError: no role, neither content nor calls, parts that are no text, or a weight that is neither 0 nor 1.
    """
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise MisfitError(f"message {number} must be an object with a `role`")
    if message.get("weight", 1) not in (0, 1):
        raise MisfitError(f"message {number} must have a `weight` of 0, which is not learnt, or 1")
    content, calls = message.get("content"), message.get("tool_calls")
    if not isinstance(content, str | list) and not (content is None and calls):
        raise MisfitError(f"message {number} must have a `content` that is a string, or a list of parts")
    if isinstance(content, list):
        content = "".join(_text_of(part, number) for part in content)
    if calls is None:
        return {**message, "content": content}
    if not isinstance(calls, list):
        raise MisfitError(f"message {number} must have `tool_calls` that are a list")
    return {**message, "content": content, "tool_calls": [_with_object(call) for call in calls]}


def _text_of(part: Any, number: int) -> str:
    text = part.get("text") if isinstance(part, Mapping) and part.get("type", "text") == "text" else None
    if not isinstance(text, str):
        raise MisfitError(f'message {number} must have parts that are texts, {{"type": "text", "text": …}}')
    return text


def as_messages(value: Any, role: str, key: str) -> list[Message]:
    """Messages as they are, or a string as one message.

    Raises:
        MisfitError: neither.
    """
    if isinstance(value, str) and value.strip():
        return [{"role": role, "content": value}]
    if not isinstance(value, list) or not value:
        raise MisfitError(f"`{key}` must be a string that is not blank, or a list of messages")
    return [plain_message(message, number) for number, message in enumerate(value)]


def said(messages: list[Message]) -> str:
    """All that is said in messages, a line each."""
    found: list[str] = []
    for message in messages:
        found += [message["content"]] if message.get("content") is not None else []
        found += [json.dumps(call, ensure_ascii=False) for call in message.get("tool_calls") or []]
    return "\n".join(found)


def _openai(row: Row) -> list[Message]:
    messages = row.get("messages", row.get("conversations"))
    if not isinstance(messages, list) or not messages:
        raise MisfitError("`messages` must be a list with at least one message")
    return messages


def _sharegpt(row: Row) -> list[Message]:
    turns = row.get("conversations")
    if not isinstance(turns, list) or not turns:
        raise MisfitError("`conversations` must be a list with at least one turn")
    messages = system_of(row)
    for number, turn in enumerate(turns):
        if not isinstance(turn, Mapping) or not isinstance(turn.get("value"), str):
            raise MisfitError(f"turn {number} must be an object with `from` and `value`, a string")
        speaker = turn.get("from")
        role = SPEAKERS.get(speaker) if isinstance(speaker, str) else None
        if role is None:
            near = did_you_mean(str(speaker), SPEAKERS)
            raise MisfitError(f"turn {number} is from {speaker!r}; known: {', '.join(SPEAKERS)}. {near}".strip())
        if role == "call":
            call = _parsed(turn["value"], f"the call of turn {number}")
            calls = call if isinstance(call, list) else [call]
            messages.append({"role": "assistant", "content": "", "tool_calls": [_call(one, number) for one in calls]})
        else:
            weight = {"weight": turn["weight"]} if "weight" in turn else {}
            messages.append({"role": role, "content": turn["value"], **weight})
    return messages


def _alpaca(row: Row) -> list[Message]:
    for key in ("instruction", "output"):
        if not isinstance(row.get(key), str):
            raise MisfitError(f"`{key}` must be a string")
    given = row.get("input") or ""
    history = row.get("history") or []
    if not isinstance(given, str):
        raise MisfitError("`input` must be a string")
    if not isinstance(history, list) or not all(isinstance(turn, list) and len(turn) == 2 for turn in history):
        raise MisfitError("`history` must be a list of pairs: instruction and output")
    asked = f"{row['instruction']}\n\n{given}" if given.strip() else row["instruction"]
    pairs = [*history, [asked, row["output"]]]
    turns = [
        {"role": role, "content": text}
        for pair in pairs
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]
    return [*system_of(row), *turns]


def system_of(row: Row) -> list[Message]:
    """The message of a ``system`` that stands beside a conversation; none where it is blank.

    Raises:
        MisfitError: no string.
    """
    system = row.get("system") or ""
    if not isinstance(system, str):
        raise MisfitError("`system` must be a string")
    return [{"role": "system", "content": system}] if system.strip() else []


def _call(call: Any, number: int) -> Row:
    if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
        raise MisfitError(f"the call of turn {number} must be a JSON object with `name` and `arguments`")
    return {"type": "function", "function": {"name": call["name"], "arguments": call.get("arguments", {})}}


def _with_object(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    return {**call, "function": {**function, "arguments": _parsed(function["arguments"], "the arguments of a call")}}


def _parsed(value: Any, what: str) -> Any:
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    try:
        return json.loads(value)
    except ValueError as error:
        raise MisfitError(f"{what} must be JSON: {error}") from error


_READERS: Final[dict[Form, Callable[[Row], list[Message]]]] = {
    "openai": _openai,
    "sharegpt": _sharegpt,
    "alpaca": _alpaca,
}
