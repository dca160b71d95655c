"""``transpect plan``: what a training will need, before it runs."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transpect.base.i18n import tr
from transpect.cli.command import OverridableCommand, application

if TYPE_CHECKING:
    from transpect.train.planning import Chosen, Planned

app = application()

EXAMPLES = """\
transpect plan recipes/tang-gpt.yaml
transpect plan recipes/tang-gpt.yaml --model.n_layers 24 --model.d_model 1024 --gpus 8xA100
transpect plan recipes/tang-gpt.yaml --memory 2GB --hours 1"""

SHOWN = 6
"""Ways that a table shows."""


class PlanCommand(OverridableCommand):
    """Takes dotted options for keys of the recipe."""

    bare_keys = False
    explained = "cli.train.keys"


@app.command("plan", cls=PlanCommand, help=tr("cli.plan"), epilog=EXAMPLES)
def plan(
    ctx: typer.Context,
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help=tr("cli.train.recipe"))],
    gpus: Annotated[str | None, typer.Option("--gpus", metavar="NxKIND", help=tr("cli.plan.gpus"))] = None,
    memory: Annotated[str | None, typer.Option("--memory", metavar="SIZE", help=tr("cli.plan.memory"))] = None,
    hours: Annotated[float | None, typer.Option("--hours", metavar="H", help=tr("cli.plan.hours"))] = None,
    price: Annotated[float | None, typer.Option("--price", metavar="USD", help=tr("cli.plan.price"))] = None,
    data: Annotated[str | None, typer.Option("--data", metavar="FILE", help=tr("cli.train.data"))] = None,
    as_json: Annotated[bool, typer.Option("--json", help=tr("cli.json"))] = False,
) -> None:
    """Print the plan."""
    from transpect.train import load_recipe
    from transpect.train.planning import bytes_named, hardware_named
    from transpect.train.planning import plan as planned

    devices, hardware = (1, None) if gpus is None else hardware_named(gpus)
    size = None if memory is None else bytes_named(memory)
    found = planned(
        load_recipe(recipe, ctx.obj, data), hardware=hardware, devices=devices, memory=size, hours=hours, price=price
    )
    if as_json:
        print(json.dumps(found.as_dict()))
    else:
        _show(found)


def _show(found: Planned) -> None:
    from transpect.cli.screen import console, table

    screen, best, spec = console(), found.best, found.reading.recipe.train

    def say(text: str) -> None:
        screen.print(text, markup=False, soft_wrap=True)

    tokens = found.reading.mean.n_tokens * spec.accumulate
    say(
        tr(
            "plan.model",
            parameters=f"{found.parameters:,}",
            flops=f"{found.flops:.3g}",
            tokens=f"{tokens:,}",
            steps=f"{spec.max_steps:,}",
        )
    )
    say(tr("plan.on", devices=found.devices, hardware=found.hardware.name, memory=size_of(found.hardware.memory)))
    memory = best.memory
    rows = table(tr("plan.memory", moment=memory.moment), "", "", numbers=(1, 2))
    amounts = [(name, getattr(memory, name)) for name in ("base", "weights", "gradients", "optimizer")]
    ending = [("passing", memory.passing), ("holes", memory.holes)]
    for name, amount in [*amounts, ("activations", memory.kept), ("loss", memory.loss), *ending]:
        rows.add_row(tr(f"plan.{name}"), size_of(amount), f"{amount / memory.peak:.0%}")
        if name == "activations":
            for layer, own in _folded(memory.activations):
                rows.add_row(f"  {layer}", size_of(own), "")
    rows.add_row(tr("plan.total"), size_of(memory.peak), "")
    screen.print()
    screen.print(rows)
    rows = table(tr("plan.time"), "", "", numbers=(1, 2))
    time = best.time
    for name in ("products", "attention", "pointwise", "starting", "optimizer", "talking", "idle"):
        amount = getattr(time, name)
        if amount:
            key = "plan.update" if name == "optimizer" else f"plan.{name}"
            rows.add_row(tr(key), seconds_of(amount), f"{amount / time.update:.0%}")
    rows.add_row(tr("plan.total"), seconds_of(time.update), "")
    screen.print()
    screen.print(rows)
    screen.print()
    if found.devices > 1:
        _show_ways(found.chosen[:SHOWN])
    if not found.fits:
        keys = f"train.batch_size={best.work.rows} train.accumulate={best.accumulate}"
        if best.work.checkpointed:
            keys += " train.activations=checkpoint"
        say(tr("plan.change", keys=keys))
    say(
        tr(
            "plan.run",
            time=timedelta(seconds=round(found.seconds)),
            steps=f"{spec.max_steps:,}",
            rate=f"{found.tokens_per_s:,.0f}",
            share=f"{found.utilisation:.0%}",
        )
    )
    if found.cost:
        say(tr("plan.cost", cost=f"{found.cost:,.2f}"))
    if found.steps_in_time is not None:
        say(tr("plan.hours", hours=found.hours, steps=f"{found.steps_in_time:,}"))


def _show_ways(ways: list[Chosen]) -> None:
    from transpect.cli.screen import console, table

    names = ("data", "tensor", "pipeline", "batch", "accumulate", "again", "peak", "update", "sent")
    rows = table(*(tr(f"plan.column.{name}") for name in names), title=tr("plan.ways"), numbers=(3, 4, 6, 7))
    for one in ways:
        layout = one.layout
        kind = "" if layout.data == 1 else " FSDP" if layout.sharded else " DDP"
        sent = ", ".join(f"{why} {size_of(amount)}" for why, amount in one.sent.items())
        rows.add_row(
            f"{layout.data}{kind}",
            str(layout.tensor),
            str(layout.pipeline),
            str(one.work.rows),
            str(one.accumulate),
            tr("plan.yes") if one.work.checkpointed else tr("plan.no"),
            size_of(one.memory.peak),
            seconds_of(one.time.update),
            sent,
        )
    screen = console()
    screen.print(rows)
    screen.print()


def _folded(activations: dict[str, int]) -> list[tuple[str, int]]:
    """Equal layers that follow each other as one line."""
    found: list[tuple[list[str], int]] = []
    for name, own in activations.items():
        tower = name.partition(".")[0]
        if found and found[-1][1] == own and found[-1][0][0].partition(".")[0] == tower and "." in name:
            found[-1][0].append(name)
        elif own:
            found.append(([name], own))
    return [
        (names[0] if len(names) == 1 else f"{names[0]} … {names[-1]} ({len(names)} ×)", own) for names, own in found
    ]


def size_of(amount: float) -> str:
    """Bytes for a person."""
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:,.2f} TB"


def seconds_of(amount: float) -> str:
    """A time for a person."""
    return f"{amount:.3g} s" if amount >= 1 else f"{amount * 1e3:.3g} ms"
