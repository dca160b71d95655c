"""From a configuration to a server, and from a changed one to a changed server, while it runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import TemplateSyntaxError

from transpect.base.checks import within
from transpect.base.errors import ConfigError
from transpect.base.files import read_text_file
from transpect.lm import load
from transpect.serve import Engine
from transpect.serve.http.keys import VARIABLE, Keys, from_environment, from_file
from transpect.serve.http.limits import Limits
from transpect.serve.http.logs import Log
from transpect.serve.http.models import Models, ModelSpec, Served, newest_change
from transpect.serve.http.server import is_loopback
from transpect.serve.http.service import Service
from transpect.serve.http.tracing import tracing_of
from transpect.serve.tensor import shared
from transpect.text import Tokenizer
from transpect.text.sandbox import compiled

__all__ = ["ServerConfig", "open_service", "reloading"]


@dataclass(frozen=True)
class ServerConfig:
    """What is served, to whom, and within what bounds.

    Attributes:
        models: at least one.
        host: where to listen; whoever lets others in needs keys.
        port: likewise; 0 is any free one.
        replicas: how many processes answer, each with all models; more than one stand behind one that listens.
        api_keys: a file of keys (see `KeyFile`), besides those of the environment.
        log_prompts: whether prompts are written to the log.
        limits: of requests.
    """

    models: tuple[ModelSpec, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    replicas: int = 1
    api_keys: Path | None = None
    log_prompts: bool = False
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        within("port", self.port, 0, 65535)
        within("replicas", self.replicas)
        if not self.models:
            raise ConfigError("a server needs at least one model", remedy="Name one: transpect serve MODEL.")


def open_service(config: ServerConfig, environ: Mapping[str, str] = os.environ) -> Service:
    """Open the models and the keys.

    Raises:
        ConfigError: a server that others can reach without keys; two models or keys of one name.
        CheckpointError, TokenizerError: as `transpect.lm.load`.
    """
    keys = keys_of(config, environ)
    check_keys(config, keys)
    tracing = tracing_of(environ)
    models = Models(open_model(spec) for spec in config.models)
    return Service(models, limits=config.limits, keys=keys, log=Log(), log_prompts=config.log_prompts, tracing=tracing)


def check_keys(config: ServerConfig, keys: Keys) -> None:
    """Refuse to let others in without keys.

    Raises:
        ConfigError: a server that others can reach, and no key.
    """
    if not is_loopback(config.host) and not len(keys):
        raise ConfigError(
            "a server that other machines can reach needs API keys",
            value=config.host,
            remedy=f"Pass --api-keys FILE or set {VARIABLE}, or leave --host away.",
        )


def open_model(spec: ModelSpec) -> Served:
    """Open one model and start its engine.

    Raises:
        ConfigError: a chat template that is not there, or no Jinja; and as `open_service`.
    """
    changed = newest_change(spec.path)
    if spec.tensor_parallel == 1:
        lm = load(spec.path, spec.device, spec.dtype, runtime=spec.runtime, quant=spec.quant)
        check_template(spec.chat_template, lm.tokenizer)
        return Served(spec, lm, Engine(lm, spec.engine), changed)
    lm = load(spec.path, "cpu", spec.dtype, runtime="torch")
    check_template(spec.chat_template, lm.tokenizer)
    return Served(spec, lm, Engine(lm, spec.engine, shared(lm, spec.path, spec.dtype, spec.tensor_parallel)), changed)


def check_template(named: str, tokenizer: Tokenizer) -> None:
    """Refuse a chat template before anybody is served by it; without one a model only can't be asked for messages."""
    if "{" not in named and (named == "default" or named in tokenizer.chat_templates):
        return
    if "{" not in named and not Path(named).is_file():
        has = ", ".join(tokenizer.chat_templates) or "none"
        raise ConfigError("no such chat template", value=named, remedy=f"The tokenizer has {has}; or name a file.")
    try:
        compiled(named if "{" in named else read_text_file(Path(named), ConfigError))
    except TemplateSyntaxError as error:
        rule = f"the chat template is not valid Jinja, line {error.lineno}: {error.message}"
        raise ConfigError(rule, value=named[:100], remedy="Mend the template.") from None


def keys_of(config: ServerConfig, environ: Mapping[str, str]) -> Keys:
    """The keys of the file and of the environment."""
    of_file = [] if config.api_keys is None else from_file(config.api_keys)
    return Keys([*of_file, *from_environment(environ)])


def reloading(service: Service, read: Callable[[], ServerConfig]) -> Callable[[], Coroutine[Any, Any, None]]:
    """What brings a running server up to a configuration that has changed.

    Models that are new, whose settings or whose files have changed, are opened beside the old ones, which go on until
    the new ones are there, and then end what they have begun. Keys are read again. Host, port and limits stay. Where
    something can't be opened, all stays as it was, and the log says why.

    Args:
        service: what runs.
        read: reads the configuration.
    """

    closing = set[asyncio.Task[None]]()

    async def close(own: Served) -> None:
        await asyncio.to_thread(own.engine.drain, service.limits.request_seconds)
        await asyncio.to_thread(own.engine.stop)

    async def reload() -> None:
        opened: list[Served] = []
        try:
            config = await asyncio.to_thread(read)
            keys = await asyncio.to_thread(keys_of, config, os.environ)
            if len(service.keys) and not len(keys):
                raise ConfigError("a server with keys does not go on without", remedy="Restart it, if that is meant.")
            wanted = []
            for spec in config.models:
                same = [
                    own for own in service.models.all if own.spec == spec and own.changed == newest_change(spec.path)
                ]
                if not same:
                    opened.append(await asyncio.to_thread(open_model, spec))
                wanted.append(same[0] if same else opened[-1])
            gone = service.models.replace(wanted)
            service.keys = keys
        except Exception as error:
            service.log.tell("not reloaded", level="error", error=str(error))
            for own in opened:
                await asyncio.to_thread(own.engine.stop)
            return
        service.log.tell("reloaded", opened=[own.id for own in opened], closed=[own.id for own in gone])
        for own in gone:  # aside: the next change does not wait for their last request
            task = asyncio.create_task(close(own))
            closing.add(task)
            task.add_done_callback(closing.discard)

    return reload
