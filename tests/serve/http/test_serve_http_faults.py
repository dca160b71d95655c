"""What fails inside and around a server: one request ends with an error, or the engine begins anew. Nothing hangs,
nothing else suffers, and nothing is held afterwards."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest

from transpect.decode.sampling import Sampler
from transpect.lm import LanguageModel
from transpect.serve.http.logs import Log
from transpect.serve.runner import Runner
from transpect.text import Tokenizer
from transpect.text.streaming import StreamDecoder

BODY = {"prompt": "The", "max_tokens": 4}
MESSAGES = [{"role": "user", "content": "The"}]
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/completions": {**BODY, "temperature": 1, "seed": 1},
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 4, "temperature": 1, "seed": 1},
    "/v1/responses": {"input": "The", "max_output_tokens": 4, "temperature": 1},
}


class PlantedError(Exception):
    """No error that anybody expects."""


def fails(*_: Any, **__: Any) -> Any:
    raise PlantedError("planted")


def no_descriptors(*_: Any, **__: Any) -> Any:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


Fault = tuple[Callable[[pytest.MonkeyPatch], None], int, dict[str, Any]]
FAULTS: dict[str, Fault] = {
    "sampler": (lambda patch: patch.setattr(Sampler, "choose", fails), 500, {}),
    "decoding of tokens": (lambda patch: patch.setattr(StreamDecoder, "push", fails), 500, {}),
    "tokenizer": (lambda patch: patch.setattr(Tokenizer, "encode", fails), 500, {}),
    "template": (lambda patch: patch.setattr(LanguageModel, "chat_prompt", fails), 500, {}),
    "model": (lambda patch: patch.setattr(Runner, "run", fails), 503, {}),
    "descriptors": (
        lambda patch: patch.setattr(asyncio, "create_subprocess_exec", no_descriptors),
        503,
        {"regex": "a"},
    ),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_ends_one_request(fault: str, route: str, stream: bool, api: Any, monkeypatch: Any) -> None:
    plant, status, more = FAULTS[fault]
    if (fault == "template" and route == "/v1/completions") or (more and route == "/v1/responses"):
        pytest.skip("this route does not come that way")
    body = {"model": "writer", **ROUTES[route], **more, "stream": stream}
    served = api.service.models.get("writer")
    if more:
        body["regex"] = f"[ab]{{4}}|{route}{stream}"  # that nobody has read yet
        api.loop.run_until_complete(api.service.schemas.close())
    neighbour = api("/v1/embeddings", {"model": "vectors", "input": "The"}).json
    with monkeypatch.context() as patch:
        plant(patch)
        answer = api(route, body)
        assert api("/health").status in (200, 503)
        if fault not in ("tokenizer",):
            assert api("/v1/embeddings", {"model": "vectors", "input": "The"}).json == neighbour
    begun = answer.headers["content-type"].startswith("text/event-stream")
    assert stream or not begun
    if not begun:
        assert answer.status == status and answer.error["type"] == "server_error"
        assert answer.error["code"] and "planted" not in answer.error["message"]
    else:
        last = answer.events[-1]
        assert b"[DONE]" not in answer.body
        assert (last.get("error") or last)["code"] in ("internal_error", "engine_dead"), last
    if fault == "model":
        assert served.engine.state == "dead" and api("/health").status == 503
        again = api(route, body)
        assert (again.status, again.error["code"]) == (503, "engine_dead")
        served.engine.restart()
    good = api(route, {**body, "stream": False})
    assert good.status == 200, good.body
    assert api.service.active == 0
    stats = served.engine.stats()
    assert (stats.running, stats.waiting, stats.blocks_used) == (0, 0, 0)


@pytest.mark.parametrize(
    ("route", "body", "ability"),
    [
        ("/v1/embeddings", {"model": "vectors", "input": "The"}, "embed"),
        ("/v1/classify", {"model": "classes", "input": "The"}, "classify"),
        ("/v1/fill-mask", {"model": "masked", "input": "The [MASK]"}, "fill_mask"),
    ],
)
def test_a_fault_of_an_encoder_ends_one_request(
    route: str, body: dict[str, Any], ability: str, api: Any, monkeypatch: Any
) -> None:
    wanted = api(route, body).json
    for owner, name in ((LanguageModel, ability), (Tokenizer, "encode")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fails)
            answer = api(route, body)
            assert (answer.status, answer.error["code"]) == (500, "internal_error")
        assert api(route, body).json == wanted


@pytest.mark.parametrize(("route", "body"), [("/tokenize", {"prompt": "The"}), ("/detokenize", {"tokens": [1]})])
def test_a_fault_of_the_tokenizer_is_an_answer(route: str, body: dict[str, Any], api: Any, monkeypatch: Any) -> None:
    for name in ("encode", "decode"):
        monkeypatch.setattr(Tokenizer, name, fails)
    answer = api(route, {"model": "writer", **body})
    assert (answer.status, answer.error["code"]) == (500, "internal_error")


class Full(StringIO):
    """A file on a disk that may be full."""

    full = True

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(text)


def test_a_full_disk_stops_no_request(app: Any) -> None:
    api, file = app(), Full()
    api.service.log = Log(file)
    for _ in range(3):
        assert api("/v1/completions", BODY).status == 200
    file.full = False
    assert api("/v1/completions", BODY).status == 200
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [(own["event"], own.get("count")) for own in lines] == [("lines lost", 3), ("request", None)]
    file.close()
    assert api("/v1/completions", BODY).status == 200 and api.service.log.lost == 1
