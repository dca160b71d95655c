"""What is no sound JSON, or too much of it, never reaches a route."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transpect.serve.http.body import parse
from transpect.serve.http.errors import ApiError
from transpect.serve.http.limits import Limits

LIMITS = Limits(json_depth=5, json_parts=40)


@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"a":', "}")])
def test_depth_is_bounded_exactly(opens: str, closes: str) -> None:
    for depth in (1, 4, 5):
        assert parse(f"{opens * depth}1{closes * depth}".encode() if opens != "[" or depth else b"1", LIMITS)
    for depth in (6, 1000, 100_000):
        with pytest.raises(ApiError) as caught:
            parse(f"{opens * depth}1{closes * depth}".encode(), LIMITS)
        assert caught.value.status == 400


def test_parts_are_bounded_exactly_and_strings_are_none() -> None:
    assert len(parse(json.dumps([1] * 39).encode(), LIMITS)) == 39
    with pytest.raises(ApiError):
        parse(json.dumps([1] * 40).encode(), LIMITS)
    hidden = '[[[[[{"\\\\'
    assert parse(json.dumps([hidden * 100]).encode(), LIMITS) == [hidden * 100]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"nul",
        b"NaN",
        b"[Infinity]",
        b"[-Infinity]",
        b"1e999",
        b"9" * 5000,
        b'{"a": 1, "a": 2}',
        b'"\\ud800"',
        b'"\\udc00 \\ud800"',
        b'{"\\ud800": 1}',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf{}",
        b"[1,]",
        b"{'a': 1}",
        b'"a\nb"',
        b"[] []",
        b"]][[",
    ],
)
def test_what_is_not_strict_json_is_refused(text: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        parse(text, LIMITS)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")
    assert "sys." not in caught.value.message, "of the program behind it"


@settings(max_examples=25, deadline=None)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=4,
    )
)
def test_sound_json_means_what_it_means(value: Any) -> None:
    for ascii_only in (True, False):
        assert parse(json.dumps(value, ensure_ascii=ascii_only).encode(), Limits()) == value


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60) | st.text('[]{}",:0123456789truefalsn\\u ', max_size=60).map(str.encode))
def test_any_bytes_are_json_or_a_400(text: bytes) -> None:
    statuses = set()
    try:
        parse(text, LIMITS)
    except ApiError as error:
        statuses.add(error.status)
    assert statuses <= {400}


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"[]", {}, 400),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b"{}", {"content-type": "application/x-www-form-urlencoded"}, 415),
        (b"{}", {"content-type": "application/json; charset=utf-8"}, 400),
        (b"{}", {"content-encoding": "gzip"}, 415),
        (b" " * (2 * 2**20 + 1), {}, 413),
        (b"{}", {"content-length": str(2 * 2**20 + 1)}, 413),
        (b" " * (2 * 2**20 - 2) + b"{}", {}, 400),
    ],
    ids=["array", "text", "form", "charset", "compressed", "long", "said to be long", "at the bound"],
)
def test_a_body_is_an_object_of_bounded_length(body: bytes, headers: dict[str, str], status: int, api: Any) -> None:
    answer = api("/v1/completions", body, headers=headers)
    assert answer.status == status
    assert answer.error["type"] == "invalid_request_error"
