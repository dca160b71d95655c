"""Requests made up from the server's own tables, right and wrong: never a crash, and the neighbours do not notice."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from transpect.serve.http import openapi
from transpect.serve.http.answers import ANSWERS
from transpect.serve.http.limits import Limits

TABLES = {route: make(Limits()) for route, (make, _) in openapi.TABLES.items()}
SAYS = {route: Draft202012Validator(ANSWERS[route]) for route in TABLES}
NEIGHBOUR = {"model": "writer", "prompt": "小猫", "max_tokens": 5, "temperature": 1, "seed": 9, "logprobs": 2}

ENDS = ("response.completed", "response.incomplete", "error")

texts = st.text(max_size=8) | st.sampled_from(["writer", "vectors", "translator", "classes", "<|x|>", "\x00", "小猫"])
scalars = (
    st.none() | st.booleans() | st.integers(-3, 40) | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
anything = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def valid(name: str) -> st.SearchStrategy[Any]:
    """Often what a field may hold, so that requests get far."""
    known: dict[str, st.SearchStrategy[Any]] = {
        "model": st.sampled_from(["writer", "vectors", "translator", "classes"]),
        "prompt": texts
        | st.lists(st.integers(0, 310), min_size=1, max_size=5)
        | st.lists(texts, min_size=1, max_size=3),
        "text": texts,
        "input": texts | st.lists(texts, min_size=1, max_size=3),
        "tokens": st.lists(st.integers(0, 310), max_size=6),
        "messages": st.lists(
            st.fixed_dictionaries({"role": st.sampled_from(["user", "system", "assistant", "tool"]), "content": texts}),
            min_size=1,
            max_size=3,
        ),
        "max_tokens": st.integers(0, 6),
        "max_completion_tokens": st.integers(0, 6),
        "max_output_tokens": st.integers(0, 6),
        "n": st.integers(1, 3),
        "best_of": st.integers(1, 3),
        "temperature": st.floats(0, 2),
        "top_p": st.floats(0, 1),
        "top_k": st.integers(-1, 5),
        "num_beams": st.integers(1, 3),
        "stop": texts | st.lists(texts, max_size=3),
        "logit_bias": st.dictionaries(st.integers(0, 310).map(str), st.floats(-100, 100), max_size=3),
        "regex": st.sampled_from(["a+", "[ab]{2}", "(", "小"]),
        "choices": st.lists(texts, min_size=1, max_size=3),
        "response_format": st.sampled_from([{"type": "text"}, {"type": "json_object"}]),
        "stream": st.booleans(),
        "echo": st.booleans(),
    }
    return known.get(name, anything)


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, bytes]:
    route = draw(st.sampled_from(list(TABLES)))
    table = TABLES[route]
    names = draw(st.lists(st.sampled_from(list(table)), unique=True, max_size=5))
    needed = [name for name, field in table.items() if field.required and draw(st.integers(0, 9))]
    body = {name: draw(valid(name) if draw(st.integers(0, 4)) else anything) for name in {*names, *needed, "model"}}
    body.setdefault("max_tokens", 4)
    if "max_tokens" not in table:
        del body["max_tokens"]
    raw = json.dumps(body).encode(errors="surrogatepass")
    if not draw(st.integers(0, 19)):
        at = draw(st.integers(0, len(raw)))
        raw = raw[:at] + draw(st.binary(max_size=3)) + raw[at + 1 :]
    return route, raw


def check(api: Any, route: str, raw: bytes) -> None:
    answer = api(route, raw)
    assert answer.status in (200, 400, 404), (route, raw, answer.body)
    if answer.status != 200:
        assert answer.error["type"] == "invalid_request_error" and answer.error["message"]
    elif answer.headers["content-type"].startswith("text/event-stream"):
        *_, last = answer.events
        assert last == "[DONE]" or last.get("error") or last["type"] in ENDS, answer.body
    else:
        assert SAYS[route].is_valid(answer.json), (route, raw, [*SAYS[route].iter_errors(answer.json)])


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(request=requests())
def test_a_made_up_request_is_answered(request: tuple[str, bytes], api: Any) -> None:
    check(api, *request)


@pytest.mark.slow
def test_ten_thousand_made_up_requests_are_answered(api: Any) -> None:
    expected = api("/v1/completions", NEIGHBOUR).json["choices"]
    count = 0

    @settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(request=requests())
    def each(request: tuple[str, bytes]) -> None:
        nonlocal count
        check(api, *request)
        count += 1
        if count % 100 == 0:
            assert api("/v1/completions", NEIGHBOUR).json["choices"] == expected

    each()
    assert count >= 10_000
    assert api.service.active == 0
    end = time.monotonic() + 10
    while any(own.engine.stats().running + own.engine.stats().waiting for own in api.service.models.all):
        assert time.monotonic() < end
        time.sleep(0.01)
