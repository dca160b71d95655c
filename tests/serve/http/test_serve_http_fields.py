"""Every field of every route: at its bounds, one beyond them, and of every wrong type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from transpect.serve.http import openapi
from transpect.serve.http.errors import ApiError
from transpect.serve.http.fields import (
    Choice,
    Field,
    Flag,
    Integer,
    Items,
    Kind,
    Number,
    Object,
    Table,
    Text,
    Union,
    read,
)
from transpect.serve.http.items import InputItems
from transpect.serve.http.limits import Limits
from transpect.serve.http.messages import Messages
from transpect.serve.http.options import Biases, JsonObject
from transpect.serve.http.tools import Parameters, ToolChoice, ToolName

TABLES = {route: make(Limits(messages=40)) for route, (make, _) in openapi.TABLES.items()}
MODELS = {
    "/v1/translate": "translator",
    "/v1/embeddings": "vectors",
    "/v1/classify": "classes",
    "/v1/fill-mask": "masked",
}
NEEDED = {
    "/v1/completions": {"prompt": "a", "max_tokens": 1},
    "/v1/translate": {"text": "a", "max_tokens": 1},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1},
    "/v1/responses": {"input": "a", "max_output_tokens": 1},
    "/v1/embeddings": {"input": "a"},
    "/v1/classify": {"input": "a"},
    "/v1/fill-mask": {"input": "a [MASK]"},
    "/tokenize": {"prompt": "a"},
    "/detokenize": {"tokens": [5]},
}
FIELDS = [(route, name) for route, table in TABLES.items() for name in table]
ANY = ["\x00", [[]], 10**30]


def bounds(kind: Kind) -> Iterator[tuple[Any, bool]]:
    """Values at the bounds of a kind and beyond them, and whether they belong to it."""
    match kind:
        case Integer(low, high):
            yield from ((low, True), (high, True), (low - 1, False), (high + 1, False), (max(low, 0) + 0.5, False))
            yield (float(max(low, 0)), True)
        case Number(low, high):
            yield from ((low, True), (high, True), (low - 0.01, False), (high + 0.01, False), ("1", False))
        case Text(most, least):
            yield from (("x" * least, True), *([("x" * (least - 1), False)] if least else ()), (1, False))
            if most is not None:
                yield from (("x" * most, True), ("x" * (most + 1), False))
        case Flag():
            yield from ((True, True), (False, True), (1, False), ("true", False))
        case Choice(values):
            yield from ((value, True) for value in values)
            yield from (("no such value", False), ([], False))
        case Items(item, most, least):
            inside = next((value for value, good in bounds(item) if good), None)
            yield from (
                ([inside] * max(least, 1), inside is not None and most > 0),
                ([], not least),
                ("x", False),
                ({}, False),
            )
            if inside is not None and most < 5000:
                yield from (([inside] * most, True), ([inside] * (most + 1), False))
        case Object(table):
            yield from (({"no such field": 1}, False), ("x", False))
            for name, own in table.items():
                rest = {
                    other: next(v for v, good in bounds(f.kind) if good) for other, f in table.items() if f.required
                }
                yield from (({**rest, name: value}, good) for value, good in bounds(own.kind))
        case Union(kinds):
            for one in kinds:
                yield from ((value, True) for value, good in bounds(one) if good)
            yield from ((1, False), ({}, False), ([1.5], False))
        case Biases():
            yield from (({str(i): 1 for i in range(kind.most)}, True), ({"5": 100}, True), ({"0": -100}, True))
            yield from (({str(i): 1 for i in range(kind.most + 1)}, False), ({"5": 100.1}, False), ({"x": 1}, False))
            yield from (({"-1": 1}, False), ({"01": 1}, False), ([], False))
        case Parameters():
            yield from (({}, True), ({"type": "object"}, True), ({"type": "string"}, False), ([], False))
        case ToolName():
            yield from (("f" * 64, True), ("a-B_9.", True), ("f" * 65, False), ("", False), ("a b", False), (1, False))
        case ToolChoice():
            named = {"type": "function", "function": {"name": "f"}}
            yield from (("auto", True), ("none", True), (named, True), ("f", False), ({"type": "function"}, False))
        case JsonObject():
            yield from (({}, True), ([], False), ("{}", False))


@pytest.mark.parametrize(("route", "name"), FIELDS, ids=str)
def test_a_field_holds_to_its_bounds(route: str, name: str) -> None:
    table: Table = TABLES[route]
    alone = {name: Field(table[name].kind)}
    for value, good in bounds(table[name].kind):
        if good:
            assert name in read(alone, {name: value}), value
        else:
            with pytest.raises(ApiError) as caught:
                read(alone, {name: value})
            assert caught.value.status == 400
            assert (caught.value.param or "").split(".")[0].split("[")[0] == name, value
    assert read(alone, {name: None}) == {}, "null is as good as nothing"


@pytest.mark.parametrize(("route", "name"), FIELDS, ids=str)
def test_the_document_says_what_a_field_may_hold(route: str, name: str) -> None:
    kind = TABLES[route][name].kind
    says = Draft202012Validator(kind.schema())
    for value, good in bounds(kind):
        assert says.is_valid(value) == good, value


CONVERSATIONS = [
    ({"role": "user", "content": [{"type": "input_text", "text": "a"}]}, True),
    ({"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}, True),
    ({"role": "user", "content": "a", "tool_calls": None}, True),
    ({"role": "tool", "content": "a", "tool_call_id": "x"}, True),
    ({"role": "someone", "content": "a"}, False),
    ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://a"}}]}, False),
    ({"role": "user", "content": "a", "extra": 1}, False),
    ({"role": "user", "content": 1}, False),
    ({"role": "user", "content": None}, False),
    ({"role": "tool", "tool_call_id": "x"}, False),
    ({"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}, True),
    ({"role": "assistant", "tool_calls": []}, False),
    ({"role": "assistant"}, False),
    ({"content": "a"}, False),
]
ITEMS = [
    ({"role": "user", "content": "a"}, True),
    ({"type": None, "role": "user", "content": "a"}, True),
    ({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}], "id": "m"}, True),
    ({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "status": "completed"}, True),
    ({"type": "function_call_output", "call_id": "c", "output": "a"}, True),
    ({"type": "function_call", "name": "f", "arguments": "{}"}, False),
    ({"type": "reasoning"}, False),
    ({"role": "tool", "content": "a"}, False),
]


@pytest.mark.parametrize(
    ("kind", "value", "good"),
    [(Messages(Limits()), *own) for own in CONVERSATIONS] + [(InputItems(Limits()), *own) for own in ITEMS],
)
def test_the_document_says_what_a_conversation_may_hold(kind: Kind, value: Any, good: bool) -> None:
    says = Draft202012Validator(kind.schema())
    for conversation in ([value], [value, value]):
        assert says.is_valid(conversation) == good
        if good:
            assert len(kind.read(conversation, "messages")) == len(conversation)
        else:
            with pytest.raises(ApiError):
                kind.read(conversation, "messages")
    assert not says.is_valid([])


@pytest.mark.parametrize(("route", "name"), FIELDS, ids=str)
def test_a_bad_field_is_a_400_that_names_it(route: str, name: str, api: Any) -> None:
    """Through the whole server, which goes on answering."""
    body = {"model": MODELS.get(route, "writer"), **NEEDED[route]}
    kind = TABLES[route][name].kind
    bad = [value for value, good in bounds(kind) if not good][:3]
    for value in bad:
        answer = api(route, {**body, name: value})
        assert answer.status == 400, (value, answer.body)
        assert answer.error["type"] == "invalid_request_error"
        assert (answer.error["param"] or "").split(".")[0].split("[")[0] == name, (value, answer.error)
    for value in ANY:
        assert api(route, {**body, name: value}).status in (200, 400, 404), value


@pytest.mark.parametrize("route", TABLES)
def test_what_is_missing_or_unknown_is_named(route: str, api: Any) -> None:
    body = {"model": MODELS.get(route, "writer"), **NEEDED[route]}
    assert api(route, body).status == 200
    for name, field in TABLES[route].items():
        if field.required:
            answer = api(route, {key: value for key, value in body.items() if key != name})
            assert (answer.status, answer.error["param"], answer.error["code"]) == (
                400,
                name,
                "missing_required_parameter",
            )
    answer = api(route, {**body, "no_such_field": 1})
    assert (answer.status, answer.error["param"], answer.error["code"]) == (400, "no_such_field", "unknown_parameter")
    answer = api(route, {**body, "model": "nobody"})
    assert (answer.status, answer.error["param"], answer.error["code"]) == (404, "model", "model_not_found")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"best_of": 2, "n": 3}, "best_of"),
        ({"best_of": 2, "temperature": 1, "stream": True}, "best_of"),
        ({"best_of": 2, "temperature": 0}, "best_of"),
        ({"prompt": "x" * 510, "max_tokens": 2}, "max_tokens"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"logit_bias": {"300": 1}}, "logit_bias"),
        ({"prompt": [300]}, "prompt"),
        ({"prompt": [[5], [300]]}, "prompt"),
        ({"prompt": "x" * 513}, "prompt"),
        ({"max_tokens": 512}, "max_tokens"),
        ({"max_tokens": 2**31 - 1}, "max_tokens"),
        ({"min_tokens": 17, "max_tokens": 16}, "min_tokens"),
        ({"regex": "(a"}, "regex"),
        ({"grammar": "start: nothing"}, "grammar"),
        ({"regex": "a", "choices": ["a"]}, "choices"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "nope"}}}}, "response_format"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "http://localhost/x"}}}},
            "response_format",
        ),
        ({"regex": "a", "response_format": {"type": "json_object"}}, "response_format"),
    ],
    ids=lambda x: str(x)[:50],
)
def test_fields_that_do_not_go_together_are_a_400(body: dict[str, Any], param: str, api: Any) -> None:
    answer = api("/v1/completions", {"model": "writer", "prompt": "a", **body})
    assert answer.status == 400, answer.body
    assert answer.error["param"] == param, answer.error


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_of_two_names_of_a_field_the_one_that_was_given_is_at_fault(name: str, api: Any) -> None:
    body = {"model": "writer", "messages": [{"role": "user", "content": "a"}], name: 600}
    answer = api("/v1/chat/completions", body)
    assert (answer.status, answer.error["param"]) == (400, name)


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "nobody", "content": "a"}, "messages[0].role"),
        ({"role": "user"}, "messages[0].content"),
        ({"role": "user", "content": 5}, "messages[0].content"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://localhost/x"}}]},
            "messages[0].content[0].type",
        ),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": "a", "x": 1}, "messages[0].x"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "["}}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        ("a", "messages[0]"),
        *(
            (
                {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": text}}]},
                "messages[0].tool_calls[0].function.arguments",
            )
            for text in ('{"a": 1, "a": 2}', '{"a": NaN}', '{"a": "\\ud800"}', f'{{"a": {"[" * 90}{"]" * 90}}}', "[]")
        ),
    ],
    ids=lambda x: str(x)[:50],
)
def test_a_bad_message_is_a_400_that_says_where(message: Any, param: str, api: Any) -> None:
    answer = api("/v1/chat/completions", {"model": "writer", "messages": [message]})
    assert (answer.status, answer.error["param"]) == (400, param)
