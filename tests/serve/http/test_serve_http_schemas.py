"""Grammars of strangers are read within time and memory, in a process that can be killed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest

from transpect.serve.http import schemas
from transpect.serve.http.errors import ApiError
from transpect.serve.http.limits import Limits
from transpect.serve.http.schemas import SchemaCheck


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


async def refused(check: SchemaCheck, kind: str, text: str) -> str | None:
    try:
        await check.check(kind, text, "response_format")
    except ApiError as error:
        return error.code if (error.status, error.param) == (400, "response_format") else "wrong"
    return None


SOUND = [
    ("json_schema", '{"type": "object"}'),
    ("regex", "a+"),
    ("regex", "/"),
    ("grammar", 'start: "a"'),
    ("grammar", 'root ::= "a"'),
]
UNSOUND = [
    ("json_schema", '{"type": "nope"}'),
    ("json_schema", '{"$ref": "http://localhost:1/x"}'),
    ("json_schema", '{"$ref": "file:///etc/passwd"}'),
    ("regex", "(a"),
    ("grammar", "nothing"),
]


def test_what_is_sound_passes_and_what_is_not_is_named() -> None:
    async def all_of_them() -> None:
        check = SchemaCheck(Limits())
        for kind, text in SOUND * 2:
            assert await refused(check, kind, text) is None, text
        for kind, text in UNSOUND:
            assert await refused(check, kind, text) == "invalid_schema", text
        assert check.kills == 0
        await check.close()

    run(all_of_them())


def test_size_is_bounded_exactly() -> None:
    async def both() -> None:
        check = SchemaCheck(Limits(schema_bytes=40))
        assert await refused(check, "regex", "a" * 40) is None
        assert await refused(check, "regex", "a" * 41) == "schema_too_large"
        assert await refused(check, "regex", "鱼" * 14) == "schema_too_large", "bytes, not characters"
        await check.close()

    run(both())


SLOW = """
import json, sys, time
for line in sys.stdin:
    kind, text = json.loads(line)
    if text == "slow":
        time.sleep(60)
    if text == "dies":
        sys.exit(1)
    print(json.dumps(""), flush=True)
"""


def test_what_takes_too_long_is_killed_and_others_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """With a worker that sleeps, or dies, at a word: nobody gets the answer to somebody else's question."""
    (tmp_path / "schema_worker.py").write_text(SLOW)
    monkeypatch.setattr(schemas, "__file__", str(tmp_path / "schemas.py"))

    async def several() -> None:
        check = SchemaCheck(Limits(schema_seconds=0.2))
        asked = [refused(check, "regex", text) for text in ("slow", "a", "dies", "b", "slow", "c")]
        found = await asyncio.gather(*asked)
        assert found == ["schema_too_complex", None, "schema_too_complex", None, "schema_too_complex", None]
        assert check.kills >= 2
        gone = asyncio.create_task(refused(check, "regex", "slow"))
        await asyncio.sleep(0.05)
        gone.cancel()
        assert await refused(check, "regex", "d") is None
        await check.close()

    run(several())


@pytest.mark.parametrize(
    "schema",
    [
        {
            "type": "array",
            "items": {"type": "array", "items": {"type": "array", "items": {}, "maxItems": 10**6}, "maxItems": 10**6},
        },
        {"anyOf": [{"type": "string", "pattern": f"(a|b){{1,{i}}}" * 20} for i in range(50)]},
        {"allOf": [{"anyOf": [{"properties": {f"a{i}{j}": {}}} for j in range(12)]} for i in range(12)]},
        {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"},
    ],
    ids=["deep arrays", "patterns", "product", "itself"],
)
@pytest.mark.slow
def test_schemas_meant_to_be_slow_are_bounded(schema: Any) -> None:
    async def once() -> None:
        check = SchemaCheck(Limits())
        async with asyncio.timeout(25):
            await refused(check, "json_schema", json.dumps(schema))
        await check.close()

    run(once())
