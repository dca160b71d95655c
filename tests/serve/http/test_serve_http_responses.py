"""The newer API says what the older one says, whole and in pieces; and the document describes both."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from jsonschema import Draft202012Validator

from transpect.serve.http.app import ROUTES

SAMPLED = {"model": "writer", "temperature": 0.9, "top_p": 0.9}
TOOL = {
    "type": "function",
    "name": "f",
    "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
}


@pytest.mark.parametrize("length", [1, 7])
def test_a_response_is_what_a_conversation_answers(length: int, api: Any) -> None:
    told = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "小猫"}]
    chat = api("/v1/chat/completions", {"model": "writer", "messages": told, "max_tokens": length}).json
    body = {"model": "writer", "instructions": "Be kind.", "input": "小猫", "max_output_tokens": length}
    answer = api("/v1/responses", body).json
    (item,) = answer["output"]
    assert item["content"][0]["text"] == chat["choices"][0]["message"]["content"]
    assert answer["status"] == ("incomplete" if chat["choices"][0]["finish_reason"] == "length" else "completed")
    assert item["status"] == answer["status"] and answer["tool_choice"] == "auto"
    assert answer["usage"]["output_tokens"] == chat["usage"]["completion_tokens"]
    assert answer["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]
    items = [
        {"role": "developer", "content": "Be kind."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "小猫"}]},
    ]
    assert (
        api("/v1/responses", {**body, "instructions": None, "input": items}).json["output"][0]["content"]
        == item["content"]
    )
    events = api("/v1/responses", {**body, "stream": True}).events
    assert [own["sequence_number"] for own in events] == list(range(len(events)))
    assert events[0]["type"] == "response.created" and events[-1]["type"] == f"response.{answer['status']}"
    assert "".join(own["delta"] for own in events if own["type"].endswith("delta")) == item["content"][0]["text"]
    ended = events[-1]["response"]
    assert ended["usage"] == answer["usage"]
    assert {**ended["output"][0], "id": ""} == {**item, "id": ""}


def test_a_call_is_an_item(api: Any) -> None:
    asked = [
        {"role": "user", "content": "x"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "5"},
    ]
    body = {"model": "writer", "input": asked, "tools": [TOOL], "tool_choice": "required", "max_output_tokens": 90}
    answer = api("/v1/responses", body).json
    (item,) = answer["output"]
    assert answer["tool_choice"] == "required"
    assert (item["type"], item["name"], json.loads(item["arguments"])) == ("function_call", "f", {})
    events = api("/v1/responses", {**body, "stream": True, "tool_choice": {"type": "function", "name": "f"}}).events
    assert events[-1]["response"]["tool_choice"] == {"type": "function", "name": "f"}
    (ended,) = events[-1]["response"]["output"]
    assert (ended["type"], ended["name"], json.loads(ended["arguments"])) == ("function_call", "f", {})
    assert not [own for own in events if own["type"] == "response.output_text.delta"]


def test_a_response_is_held_to_a_schema(api: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "name": "x", "schema": schema, "strict": True}
    answer = api("/v1/responses", {**SAMPLED, "input": "x", "text": {"format": form}, "max_output_tokens": 90}).json
    assert set(json.loads(answer["output"][0]["content"][0]["text"])) == {"a"}


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://localhost"}]}]},
            "input[0].content[0].type",
        ),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"store": True}, "store"),
        ({"tools": [{"type": "web_search_preview"}]}, "tools[0].type"),
        ({"input": "x" * 600}, "input"),
        ({"max_output_tokens": 600}, "max_output_tokens"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "no"}}}}, "text.format"),
    ],
    ids=lambda x: str(x)[:30],
)
def test_what_is_not_done_is_a_400(changes: dict[str, Any], param: str, api: Any) -> None:
    answer = api("/v1/responses", {"model": "writer", "input": "x", **changes})
    assert (answer.status, answer.error["param"]) == (400, param), answer.error
    others = {"max_tokens", "messages", "response_format"} - {param}
    assert not [name for name in others if f"'{name}" in answer.error["message"]], answer.error


@pytest.mark.slow
def test_the_client_reads_responses(build: Any, listen: Any) -> None:
    with listen(build("writer")) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        text = client.responses.create(model="writer", input="小猫", max_output_tokens=6).output_text
        with client.responses.stream(model="writer", input="小猫", max_output_tokens=6) as stream:
            events = list(stream)
        last: Any = events[-1]
        assert last.type in ("response.completed", "response.incomplete")
        assert last.response.output[0].content[0].text == text


def test_the_document_describes_every_route(api: Any) -> None:
    document = api("/openapi.json").json
    assert document["openapi"].startswith("3.1")
    routes = {route.path: route.methods for route in ROUTES}
    for path in set(routes) - {"/", "/openapi.json", "/v1/models/{model:path}"}:
        assert ("post" if "POST" in (routes[path] or ()) else "get") in document["paths"][path], path
    schemas = {path: asked_by(own["post"])["schema"] for path, own in document["paths"].items() if "post" in own}
    one = schemas["/v1/completions"]
    assert one["required"] == ["model", "prompt"] and one["properties"]["n"]["anyOf"][0]["maximum"] == 16
    assert one["properties"]["model"]["enum"][:2] == ["writer", "writer-alias"]
    assert schemas["/v1/embeddings"]["properties"]["model"]["enum"] == ["vectors", "vectors-alias"]


def asked_by(described: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = described["requestBody"]["content"]["application/json"]
    return found


def test_the_examples_of_the_document_are_answered_as_it_says(api: Any) -> None:
    for path, own in api("/openapi.json").json["paths"].items():
        described = own.get("post") or own["get"]
        answer = api(path.replace("{model}", "writer"), asked_by(described)["example"] if "post" in own else None)
        assert answer.status == 200, (path, answer.body)
        said = described["responses"]["200"]["content"]
        assert answer.headers["content-type"].partition(";")[0] in said, path
        if "application/json" in said:
            assert says(said).is_valid(answer.json), (path, [*says(said).iter_errors(answer.json)])


def says(said: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator(said["application/json"]["schema"])
