"""An app asked in its own process, as a replica of a cluster is; and `transpect serve` before two processes, whole."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from transpect.base.codec import dump_yaml
from transpect.lm import LanguageModel
from transpect.serve.http.models import ModelSpec
from transpect.serve.http.opening import ServerConfig
from transpect.serve.http.replicas.fleet import Asked
from transpect.serve.http.replicas.inside import Head, answered

HEADERS = [(b"host", b"localhost:8000"), (b"content-type", b"application/json"), (b"origin", b"http://localhost:8000")]
ROUTES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"model": "writer-alias", "prompt": "The quick", "max_tokens": 9, "temperature": 1, "seed": 4}),
    ("/v1/chat/completions", {"model": "writer", "messages": [{"role": "user", "content": "小猫"}], "max_tokens": 9}),
    ("/v1/translate", {"model": "translator-alias", "text": ["The quick brown fox", "小狗"], "max_tokens": 9}),
    ("/v1/embeddings", {"model": "vectors", "input": ["The lazy dog", "fox"], "encoding_format": "float"}),
    ("/v1/classify", {"model": "classes-alias", "input": ["The lazy dog", ["fox", "dog"]]}),
    ("/v1/fill-mask", {"model": "masked", "input": "The [MASK] fox", "top_k": 2}),
    ("/tokenize", {"model": "writer", "prompt": "The quick"}),
    ("/v1/embeddings", {"model": "writer", "input": "a"}),
    ("/v1/completions", {"model": "nobody", "prompt": "a"}),
]


def asked(path: str, **fields: Any) -> Asked:
    return Asked("POST", path, HEADERS, json.dumps(fields).encode())


def test_an_app_asked_within_answers_as_by_a_port(api: Any) -> None:
    async def whole(path: str, fields: dict[str, Any]) -> tuple[Head, bytes]:
        head, *body = [piece async for piece in answered(api.app, asked(path, **fields), "me")]
        assert isinstance(head, Head)
        return head, b"".join(own for own in body if isinstance(own, bytes))

    for path, fields in ROUTES:
        head, body = api.loop.run_until_complete(whole(path, fields))
        wanted = api(path, fields)
        assert (head.name, head.status, same(json.loads(body))) == ("me", wanted.status, same(wanted.json))


def test_who_leaves_an_app_asked_within_frees_what_was_held(api: Any) -> None:
    engine = api.service.models.get("writer").engine

    async def leave(after: int) -> None:
        fields = {"model": "writer", "prompt": "The", "max_tokens": 400, "stream": True, "ignore_eos": True}
        pieces = answered(api.app, asked("/v1/completions", **fields))
        for _ in range(after):
            await anext(pieces)
        await pieces.aclose()

    for after in (0, 1, 3):
        api.loop.run_until_complete(leave(after))
        assert engine.drain(10) and engine.stats().blocks_used == 0
        engine.state = "ready"
    assert api.service.active == 0


def test_what_an_app_raises_within_is_raised() -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ValueError("broken")

    async def ask() -> None:
        pieces = answered(broken, asked("/"))
        assert isinstance(await anext(pieces), Head)
        with pytest.raises(ValueError, match="broken"):
            await anext(pieces)

    asyncio.run(ask())


@pytest.fixture
def serving(language_models: dict[str, LanguageModel], tmp_path: Path) -> Iterator[Callable[[Any], Any]]:
    """``transpect serve`` of all models by two processes; ``write(models)`` changes the file that it serves by."""
    file, started = tmp_path / "serve.yaml", list[subprocess.Popen[str]]()
    for name, lm in language_models.items():
        lm.save(tmp_path / name)
    specs = [ModelSpec(str(tmp_path / name), name, (f"{name}-alias",)) for name in language_models]

    def start(change: Callable[[list[ModelSpec]], list[ModelSpec]] = lambda own: own) -> Any:
        file.write_text(dump_yaml(ServerConfig(tuple(change(specs)), port=0, replicas=2)), encoding="utf-8")
        if not started:
            command = [sys.executable, "-m", "transpect", "serve", "--config", str(file)]
            started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
        return started[0]

    yield start
    for server in started:
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0


@pytest.mark.slow
def test_every_route_and_a_change_of_the_models_before_two_processes(
    serving: Callable[..., Any], api: Any, language_models: dict[str, LanguageModel]
) -> None:
    server = serving()
    address = re.findall(r"http://[\d.]+:\d+", server.stdout.readline())[0]

    def ask(path: str, fields: dict[str, Any] | None = None) -> tuple[int, Any]:
        data = None if fields is None else json.dumps(fields).encode()
        try:
            with urlopen(Request(address + path, data, {"Content-Type": "application/json"}), timeout=60) as answer:
                return answer.status, json.load(answer)
        except HTTPError as refusal:
            return refusal.code, json.load(refusal)

    wait_for(lambda: ask("/health")[1]["replicas"]["up"] == 2)
    for path, fields in ROUTES:
        for _ in range(3):
            status, found = ask(path, fields)
            assert (status, same(found)) == (api(path, fields).status, same(api(path, fields).json))
    names = sorted([*language_models, *(f"{name}-alias" for name in language_models)])
    assert sorted(own["id"] for own in ask("/v1/models")[1]["data"]) == names

    fields = {"model": "writer", "prompt": "The", "max_tokens": 400, "stream": True, "ignore_eos": True}
    request = Request(address + "/v1/completions", json.dumps(fields).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as stream:
        stream.readline()
        serving(lambda own: [ModelSpec(own[0].path, "writer", ("new",)), *own[1:-1]])
        server.send_signal(signal.SIGHUP)
        assert stream.read().endswith(b"data: [DONE]\n\n"), "what runs goes on while models change"
    short = {"prompt": "The quick", "max_tokens": 5}
    wait_for(lambda: all(ask("/v1/completions", {"model": "new", **short})[0] == 200 for _ in range(6)))
    assert all(ask("/v1/completions", {"model": "writer-alias", **short})[0] == 404 for _ in range(6))
    assert ask(*ROUTES[5])[0] == 404 and ask(*ROUTES[2])[0] == 200

    serving(lambda own: [ModelSpec(own[0].path + "-gone", "writer")])
    server.send_signal(signal.SIGHUP)
    time.sleep(1)
    assert all(ask("/v1/completions", {"model": "new", **short})[0] == 200 for _ in range(6)), "all stays as it was"
    assert ask("/health")[1]["status"] == "ok" and os.getpgid(server.pid)


def same(answer: Any) -> Any:
    """An answer without what differs from one time to another."""
    if isinstance(answer, dict):
        drop = ("id", "created", "usage")
        return {name: same(value) for name, value in answer.items() if name not in drop}
    return [same(own) for own in answer] if isinstance(answer, list) else answer


def wait_for(holds: Callable[[], Any]) -> None:
    end = time.monotonic() + 300
    while True:
        try:
            if holds():
                return
        except OSError:
            pass
        assert time.monotonic() < end
        time.sleep(0.1)
