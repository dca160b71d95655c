"""A server over tiny random models: as an ASGI app on a loop of its own, and listening on a port of this machine."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from io import StringIO
from typing import Any

import pytest
import torch

from transpect.core import (
    AttentionConfig,
    CausalLM,
    Full,
    Head,
    MaskedLM,
    ModelConfig,
    Pooled,
    SequenceClass,
    StackConfig,
    Transformer,
)
from transpect.core.positions import Rope
from transpect.lm import LanguageModel
from transpect.serve import Engine, EngineConfig
from transpect.serve.http.app import application
from transpect.serve.http.keys import Key, Keys
from transpect.serve.http.limits import Limits
from transpect.serve.http.logs import Log
from transpect.serve.http.models import Models, ModelSpec, Served
from transpect.serve.http.server import Server
from transpect.serve.http.service import Service
from transpect.text import Tokenizer, train_tokenizer

CORPUS = ["小猫爱吃鱼。小狗爱吃肉。", 'The quick brown fox jumps over the lazy dog. {}[]":,0123456789<>/_']
CONTEXT = 512
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}>"
)


def language_model(head: Head, kind: str = "decoder", seed: int = 3) -> LanguageModel:
    """A tiny random model of two layers."""
    masks = {"mask": "[MASK]"} if isinstance(head, MaskedLM) else {}
    trained = train_tokenizer("byte-bpe", CORPUS, 300, special_tokens=masks)
    tokenizer = Tokenizer(trained.backend, trained.special_tokens, chat_templates={"default": TEMPLATE})
    stack = StackConfig(n_layers=2, attention=AttentionConfig(n_heads=2), positions=Rope())
    full = StackConfig(n_layers=2, attention=AttentionConfig(n_heads=2), positions=Rope(), visibility=Full())
    crossing = StackConfig(
        n_layers=2, attention=AttentionConfig(n_heads=2), positions=Rope(), steps=(("self",), ("cross",), ("ffn",))
    )
    towers = {
        "decoder": {"decoder": stack},
        "encoder": {"encoder": full, "decoder": None},
        "encoder-decoder": {"encoder": full, "decoder": crossing},
    }
    sizes = {"vocab_size": tokenizer.vocab_size, "d_model": 16, "context_length": CONTEXT}
    model = Transformer(ModelConfig(**sizes, head=head, **towers[kind])).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    generation = {} if kind == "encoder" else {"eos_token_id": tokenizer.eos_id}
    return LanguageModel(model, tokenizer, generation)


@pytest.fixture(scope="session")
def language_models() -> dict[str, LanguageModel]:
    """One of each kind, by name."""
    return {
        "writer": language_model(CausalLM()),
        "translator": language_model(CausalLM(), "encoder-decoder"),
        "vectors": language_model(Pooled(), "encoder"),
        "classes": language_model(SequenceClass(n_classes=3), "encoder"),
        "masked": language_model(MaskedLM(), "encoder"),
    }


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error

    @property
    def events(self) -> list[Any]:
        """The data of each event of a stream."""
        pieces = self.body.decode().split("\n\n")
        assert pieces.pop() == ""
        found = [re.fullmatch(r"(?:event: [\w.]+\n)?data: (.*)", one, re.DOTALL) for one in pieces]
        return [own[1] if own[1] == "[DONE]" else json.loads(own[1]) for own in found if own]


class Api:
    """The app on a loop of its own, without a network."""

    def __init__(self, service: Service) -> None:
        self.service, self.app, self.loop = service, application(service), asyncio.new_event_loop()

    def __call__(
        self,
        path: str,
        body: Any = None,
        *,
        method: str | None = None,
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> Answer:
        """Ask; a body that is no bytes becomes JSON."""
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        method = method or ("GET" if body is None else "POST")
        return self.loop.run_until_complete(self.ask(path, raw, method, headers, **more))

    async def ask(
        self,
        path: str,
        raw: bytes,
        method: str,
        headers: dict[str, str] | None = None,
        takes: int | None = None,
        state: dict[str, Any] | None = None,
    ) -> Answer:
        """Ask; after ``takes`` messages of the answer, take no more."""
        given = {"host": "localhost:8000", "content-type": "application/json", **(headers or {})}
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "http_version": "1.1",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in given.items()],
            "state": state or {},
        }
        sent: list[dict[str, Any]] = []
        parts = iter([{"type": "http.request", "body": raw, "more_body": False}])
        never = asyncio.Event()

        async def receive() -> dict[str, Any]:
            for part in parts:
                return part
            await never.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if len(sent) == takes:
                await never.wait()
            sent.append(message)

        await self.app(scope, receive, send)  # type: ignore[arg-type]
        start, *rest = sent
        out = {name.decode().lower(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], out, b"".join(one.get("body", b"") for one in rest))

    def close(self) -> None:
        self.loop.run_until_complete(self.service.close())
        self.loop.close()


Build = Callable[..., Service]


@pytest.fixture(scope="session")
def build(language_models: dict[str, LanguageModel]) -> Build:
    """``build("writer", limits=…)`` is a service of some of the models."""

    def service(
        *names: str,
        limits: Limits | None = None,
        keys: tuple[Key, ...] = (),
        engine: EngineConfig | None = None,
        **options: Any,
    ) -> Service:
        size = engine or EngineConfig()
        served = [
            Served(
                ModelSpec(name, aliases=(f"{name}-alias",)), language_models[name], Engine(language_models[name], size)
            )
            for name in names or ("writer",)
        ]
        small = limits or Limits(default_max_tokens=12)
        return Service(Models(served), limits=small, keys=Keys(keys), log=Log(StringIO()), **options)

    return service


@pytest.fixture(scope="module")
def api(build: Build) -> Iterator[Api]:
    """All models."""
    found = Api(build("writer", "translator", "vectors", "classes", "masked"))
    yield found
    found.close()


@pytest.fixture
def app(build: Build) -> Iterator[Callable[..., Api]]:
    """``app(Key(…), limits=…)`` is the app with these keys."""
    made: list[Api] = []

    def make(*keys: Key, **options: Any) -> Api:
        made.append(Api(build("writer", keys=keys, **options)))
        return made[-1]

    yield make
    for api in made:
        api.close()


@dataclass(frozen=True)
class Listening:
    """A server on a port."""

    server: Server
    port: int
    service: Service

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture
def listen() -> Callable[[Service], AbstractContextManager[Listening]]:
    """``with listen(service) as server:`` serves on a free port."""
    return listening


@pytest.fixture(scope="module")
def server(build: Build) -> Iterator[Listening]:
    """A server that stays."""
    with listening(build()) as found:
        yield found


@contextmanager
def listening(service: Service) -> Iterator[Listening]:
    """The server on a free port, in a thread."""
    server = Server(service, port=0)
    ready = threading.Event()

    async def run() -> None:
        task = asyncio.create_task(server.serve())
        while not server.started and not task.done():
            await asyncio.sleep(0.005)
        ready.set()
        await task

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield Listening(server, server.address[1], service)
    finally:
        server.stop()
        thread.join(30)
        assert not thread.is_alive()
