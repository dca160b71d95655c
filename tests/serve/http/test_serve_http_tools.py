"""Functions that a model may call: offered, forced, and found in what it writes, whole and in pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from transpect.decode.constraints import JsonSchema
from transpect.serve.http.tools import Offer

SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in ("f", "g")]
BODY = {
    "model": "writer",
    "messages": [{"role": "user", "content": "x"}],
    "max_tokens": 70,
    "temperature": 1,
    "seed": 1,
}
SHORT = {**BODY, "tools": [{"type": "function", "function": {"name": "f"}}]}
OFFER = Offer(tuple(TOOLS))


def escaped(text: str) -> str:
    return "".join(f"\\{c}" if c in '{}[]()."' else c for c in text)


def calls_of(message: dict[str, Any]) -> list[tuple[str, Any]]:
    found = message.get("tool_calls", [])
    assert all(own["type"] == "function" and own["id"].startswith("call_") for own in found)
    return [(own["function"]["name"], json.loads(own["function"]["arguments"])) for own in found]


def streamed(api: Any, body: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The message that the pieces of a stream make, and why it ended."""
    message: dict[str, Any] = {"content": ""}
    reason = None
    for event in api("/v1/chat/completions", {**body, "stream": True}).events[:-1]:
        (choice,) = event["choices"]
        assert reason is None
        reason = choice["finish_reason"]
        message["content"] += choice["delta"].get("content") or ""
        for call in choice["delta"].get("tool_calls", []):
            assert call.pop("index") == len(message.setdefault("tool_calls", []))
            message["tool_calls"].append(call)
    assert reason is not None
    return message, reason


@pytest.mark.parametrize(
    ("choice", "names"),
    [("required", {"f", "g"}), ({"type": "function", "function": {"name": "g"}}, {"g"})],
    ids=["any", "one"],
)
def test_a_forced_call_is_made(choice: Any, names: set[str], api: Any) -> None:
    body = {**BODY, "tools": TOOLS, "tool_choice": choice, "max_tokens": 90}
    (answer,) = api("/v1/chat/completions", body).json["choices"]
    ((name, arguments),) = calls_of(answer["message"])
    assert name in names and set(arguments) == {"a"}
    assert (answer["message"]["content"], answer["finish_reason"]) == (None, "tool_calls")
    assert streamed(api, body)[1] == "tool_calls"
    assert calls_of(streamed(api, body)[0]) == [(name, arguments)]


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ('<tool_call>{"name":"f","arguments":{"a":1}}</tool_call>', "", [("f", {"a": 1})]),
        ('Hi <tool_call>{"name":"f","arguments":{}}</tool_call>', "Hi", [("f", {})]),
        ('{"name":"f","parameters":{"a":2}}', "", [("f", {"a": 2})]),
        ('{"name":"h","arguments":{}}', '{"name":"h","arguments":{}}', []),
        ("Hi <tool_call>oh", "Hi <tool_call>oh", []),
        ("a<b {x}", "a<b {x}", []),
        ("{no}", "{no}", []),
    ],
    ids=["marked", "after text", "bare", "not offered", "no JSON", "text", "braces"],
)
def test_calls_are_found_whole_and_in_pieces(text: str, content: str, calls: list[Any], api: Any) -> None:
    body = {**SHORT, "regex": escaped(text), "max_tokens": 60, "logprobs": False}
    (choice,) = api("/v1/chat/completions", body).json["choices"]
    assert calls_of(choice["message"]) == calls
    assert (choice["message"]["content"] or "") == content
    assert choice["finish_reason"] == ("tool_calls" if calls else "stop")
    message, reason = streamed(api, body)
    assert calls_of(message) == calls
    assert message["content"].rstrip() == content
    assert reason == choice["finish_reason"]


def test_arguments_are_an_object_whether_or_not_the_schema_says_so(api: Any) -> None:
    for schema in ({}, {"required": ["a"], "properties": {"a": {"enum": [1]}}, "additionalProperties": False}, None):
        tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
        body = {**BODY, "tools": tools, "tool_choice": "required", "max_tokens": 60, "temperature": 1, "seed": 1}
        (choice,) = api("/v1/chat/completions", body).json["choices"]
        assert choice["finish_reason"] in ("tool_calls", "length")
        assert choice["finish_reason"] == "length" or all(
            isinstance(own, dict) for _, own in calls_of(choice["message"])
        )
        assert not (schema or {}).get("required") or calls_of(choice["message"]) == [("f", {"a": 1})]


@pytest.mark.parametrize("forced", [("f", "g"), ("g",)], ids=["any", "one"])
def test_references_of_parameters_mean_what_they_mean_alone(forced: tuple[str, ...]) -> None:
    """As programs write them that make schemas of types; what is no schema is not touched."""
    chain = {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/q~1r%20s"}]}
    schema = {
        "$defs": {"q/r s": {"type": "object", "properties": {"n": chain}, "required": ["n"]}, "w": {"const": 7}},
        "type": "object",
        "properties": {
            "x": {"$ref": "#/$defs/q~1r%20s"},
            "y": {"$ref": "#/$defs/w", "default": {"$ref": "#/$defs/w"}},
            "z": {"const": {"$ref": "#/"}},
            "all": {"$ref": "#"},
            "$ref": {"enum": ["#/$defs"]},
        },
        "required": ["x", "y", "z", "$ref"],
        "additionalProperties": False,
    }
    tools = [{"type": "function", "function": {"name": name, "parameters": schema}} for name in "fg"]
    whole = Offer(tuple(tools), forced).schema()
    JsonSchema(whole)  # which finds what refers to nothing
    good: dict[str, Any] = {"x": {"n": {"n": None}}, "y": 7, "z": {"$ref": "#/"}, "$ref": "#/$defs"}
    changes: list[dict[str, Any]] = [{}, {"all": good}, {"x": {"n": 1}}, {"y": 8}, {"all": {}}, {"z": 1}, {"$ref": "#"}]
    for number, own in enumerate({**good, **change} for change in changes):
        told = [Draft202012Validator(one).is_valid(value) for one, value in ((schema, own), (whole, call_of("g", own)))]
        assert told == [number < 2] * 2, own


def call_of(name: str, arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def test_none_are_called_where_none_may_be(api: Any) -> None:
    text = '{"name":"f","arguments":{}}'
    body = {**SHORT, "regex": escaped(text), "tool_choice": "none"}
    (choice,) = api("/v1/chat/completions", body).json["choices"]
    assert choice["message"]["content"] == text and choice["finish_reason"] == "stop"
    assert streamed(api, body) == ({"content": text}, "stop")


def test_only_the_first_of_several_where_one_is_wanted() -> None:
    text = '[{"name": "f", "arguments": {}}, {"name": "g", "arguments": "{}"}]'
    assert [own.name for own in OFFER.calls_in(text)[1]] == ["f", "g"]
    assert [own.name for own in Offer(tuple(TOOLS), several=False).calls_in(text)[1]] == ["f"]


@settings(max_examples=80, deadline=None)
@given(st.text('<>tool_cal/{}[]" ab\n', max_size=40), st.integers(0, 40))
def test_nothing_is_given_out_that_may_be_a_call(text: str, cut: int) -> None:
    """What was let out of a text's beginning stands before any call in the whole."""
    out = text[:cut][: OFFER.held_from(text[:cut])]
    whole = text + '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    content, calls = OFFER.calls_in(whole)
    if calls:
        assert out.rstrip() == "" or content.startswith(out.rstrip()[: len(content)])
    assert "<tool_call>" not in out


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "h"}}}, "tool_choice"),
        ({"tools": [*TOOLS, TOOLS[0]]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": TOOLS, "tool_choice": "required", "response_format": {"type": "json_object"}}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "required", "regex": "a"}, "regex"),
        *(
            (
                {"tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}], **forced},
                "tools[0].function.parameters" if "type" in schema else "tools",
            )
            for schema, forced in (
                ({"type": "x"}, {}),
                ({"type": "string"}, {"tool_choice": "required"}),
                ({"type": ["object", "null"]}, {"tool_choice": "required"}),
                ({"$ref": "#/nowhere"}, {"tool_choice": "required"}),
            )
        ),
    ],
    ids=lambda x: str(x)[:40],
)
def test_what_can_not_be_offered_is_a_400(changes: dict[str, Any], param: str, api: Any) -> None:
    answer = api("/v1/chat/completions", {**BODY, **changes})
    assert (answer.status, answer.error["param"]) == (400, param), answer.error
