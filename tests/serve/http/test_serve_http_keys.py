"""Who may ask: keys, their limits, and what a foreign web page may not do."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from transpect.base.errors import ConfigError
from transpect.serve.http.app import ROUTES
from transpect.serve.http.errors import ApiError
from transpect.serve.http.keys import Bucket, Key, Keys, from_environment, from_file
from transpect.serve.http.limits import Limits

SECRET, OTHER = "first-secret-of-24-chars", "other-secret-of-24-chars"
BODY = {"model": "writer", "prompt": "a", "max_tokens": 1}


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def test_every_route_but_health_wants_a_key(app: Any) -> None:
    api = app(Key(SECRET))
    paths = [route.path.replace("{model:path}", "writer") for route in ROUTES] + ["/nope", "/"]
    for path in paths:
        for method in ("GET", "POST"):
            for headers in ({}, bearer("x" * 24), bearer(""), bearer(SECRET[:-1]), {"authorization": SECRET}):
                answer = api(path, {} if method == "POST" else None, headers=headers)
                assert (answer.status == 401) == (path != "/health"), (path, method, headers)
                if answer.status == 401:
                    assert answer.error["code"] == "invalid_api_key"
        assert api(path, headers=bearer(SECRET)).status != 401
    assert api("/v1/completions", BODY, headers=bearer(SECRET)).status == 200
    basic = base64.b64encode(f"anyone:{SECRET}".encode()).decode()
    assert api("/v1/models", headers={"authorization": f"Basic {basic}"}).status == 200
    for wrong in ("Basic", "Basic !", "Basic eA==", "Bearer\xff", "Bearer  "):
        assert api("/v1/models", headers={"authorization": wrong}).status == 401


def test_a_key_has_limits_of_its_own(app: Any) -> None:
    api = app(Key(SECRET, "few", requests_per_minute=2), Key(OTHER, "many"))
    assert [api("/v1/completions", BODY, headers=bearer(SECRET)).status for _ in range(3)] == [200, 200, 429]
    refused = api("/v1/completions", BODY, headers=bearer(SECRET))
    assert 1 <= int(refused.headers["retry-after"]) <= 30
    assert refused.error["code"] == "rate_limit_exceeded"
    assert api("/v1/completions", BODY, headers=bearer(OTHER)).status == 200
    assert api("/v1/models", headers=bearer(SECRET)).status == 200, "only work counts"


def test_tokens_are_counted_after_they_are_known(app: Any) -> None:
    api = app(Key(SECRET, tokens_per_minute=20))
    assert api("/v1/completions", {**BODY, "max_tokens": 40}, headers=bearer(SECRET)).status == 200
    refused = api("/v1/completions", BODY, headers=bearer(SECRET))
    assert refused.status == 429 and int(refused.headers["retry-after"]) > 30


def test_a_bucket_fills_steadily() -> None:
    now = [0.0]
    bucket = Bucket(60, lambda: now[0])
    for _ in range(60):
        assert bucket.wait() == 0
        bucket.take(1)
    assert bucket.wait() == pytest.approx(1)
    now[0] = 0.5
    assert bucket.wait() == pytest.approx(0.5)
    now[0] = 1000.0
    bucket.take(90)
    assert bucket.wait() == pytest.approx(31)
    assert Bucket(None).wait(1e9) == 0


def test_requests_of_a_key_at_a_time() -> None:
    keys = Keys([Key(SECRET, concurrent=2)])
    account = keys.account(f"Bearer {SECRET}")
    with account.admitted(), account.admitted():
        with pytest.raises(ApiError) as caught, account.admitted():
            pass
        assert caught.value.status == 429
    with account.admitted():
        pass


def test_more_than_the_server_takes_is_a_429_at_once(app: Any) -> None:
    api = app(limits=Limits(active=1))
    api.service.active = 1
    answer = api("/v1/completions", BODY)
    assert (answer.status, answer.error["code"], answer.headers["retry-after"]) == (429, "server_busy", "1")
    api.service.active = 0
    assert api("/v1/completions", BODY).status == 200
    assert api.service.active == 0


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://localhost:8000"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "evil.example"}, 403),
        ({"host": "evil.example", "origin": "http://evil.example"}, 403),
        ({"host": "127.0.0.1"}, 200),
        ({"host": "[::1]:8000"}, 200),
        ({"host": "localhost.evil.example"}, 403),
        ({"host": ""}, 403),
    ],
)
def test_foreign_web_pages_are_not_answered(headers: dict[str, str], status: int, api: Any) -> None:
    answer = api("/v1/completions", BODY, headers=headers)
    assert answer.status == status
    assert "access-control-allow-origin" not in answer.headers
    assert api("/v1/completions", method="OPTIONS", headers=headers).status in (403, 405)


def test_keys_of_a_file_and_of_the_environment(tmp_path: Path) -> None:
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    file = tmp_path / "keys.yaml"
    file.write_text(f"keys:\n- {{name: a, key: 'sha256:{digest}', concurrent: 2}}\n- {{name: b, key: {OTHER}}}\n")
    keys = Keys(from_file(file))
    assert keys.account(f"Bearer {SECRET}").key.name == "a"
    assert keys.account(f"bearer {OTHER}").key.name == "b"
    found = from_environment({"TRANSPECT_API_KEYS": f"x:{SECRET}, {OTHER}, z:sha256:{digest}"})
    assert [key.name for key in found] == ["x", "key-2", "z"]
    assert from_environment({}) == []
    assert SECRET not in repr(found)


@pytest.mark.parametrize(
    "text",
    [
        "keys: [{key: short}]",
        "keys: [{key: 'sha256:12'}]",
        "keys: [{name: a}]",
        "keys: x",
        "[]",
        "keys: [{key: long-enough-to-be-one, limit: 5}]",
    ],
)
def test_a_bad_file_of_keys_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError):
        from_file(file)


def test_two_keys_of_one_name_or_secret_are_refused() -> None:
    for keys in ([Key(SECRET), Key(OTHER)], [Key(SECRET, "a"), Key(SECRET, "b")]):
        with pytest.raises(ConfigError):
            Keys(keys)


def test_the_log_tells_of_requests_and_not_of_prompts(app: Any) -> None:
    quiet, told = app(Key(SECRET, "team")), app(Key(SECRET, "team"), log_prompts=True)
    for api in (quiet, told):
        api(
            "/v1/completions",
            {**BODY, "prompt": "a very secret prompt"},
            headers={**bearer(SECRET), "x-request-id": "my-id"},
        )
        api(
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "a very secret prompt"}]},
            headers=bearer(SECRET),
        )
        api("/v1/completions", {"prompt": "a very secret prompt", "n": 1000}, headers=bearer(SECRET))
        lines = [json.loads(line) for line in api.service.log._stream.getvalue().splitlines()]
        requests = [line for line in lines if line["event"] == "request"]
        assert requests[0]["id"] == "my-id" and requests[0]["key"] == "team"
        assert requests[0]["completion_tokens"] == 1 and requests[0]["status"] == 200
        assert [line["status"] for line in requests] == [200, 200, 400]
        assert ("secret prompt" in api.service.log._stream.getvalue()) == (api is told)
        assert SECRET not in api.service.log._stream.getvalue()


@pytest.mark.parametrize("given", ["x" * 65, "a b", "\n", "", "é"])
def test_an_odd_request_id_is_not_taken_over(given: str, api: Any) -> None:
    answer = api("/health", headers={"x-request-id": given})
    assert answer.headers["x-request-id"].startswith("req-")
    assert api("/health", headers={"x-request-id": "ok-1"}).headers["x-request-id"] == "ok-1"
