"""``transpect compare``: variants of a recipe, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transpect.base.errors import ConfigError
from transpect.base.i18n import tr
from transpect.cli.command import OverridableCommand, application, destination

if TYPE_CHECKING:
    from transpect.compare import Report

app = application()

INTERRUPTED = 130

EXAMPLES = """\
transpect compare recipes/extrapolation.yaml --out runs/extrapolation
transpect compare recipes/demo.yaml --vary model.positions=rope,alibi,t5 --seeds 2 --lengths 1
transpect compare recipes/tang-gpt.yaml --vary model.norm=layernorm,rmsnorm --lengths 1 --cost"""


class CompareCommand(OverridableCommand):
    """Takes dotted options for keys of the recipe."""

    bare_keys = False
    explained = "cli.train.keys"


@app.command("compare", cls=CompareCommand, help=tr("cli.compare"), epilog=EXAMPLES)
def compare(
    ctx: typer.Context,
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help=tr("cli.compare.recipe"))],
    vary: Annotated[list[str] | None, typer.Option("--vary", metavar="KEY=VALUES", help=tr("cli.compare.vary"))] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", metavar="N", help=tr("cli.compare.seeds"))] = None,
    lengths: Annotated[str | None, typer.Option("--lengths", metavar="N,N", help=tr("cli.compare.lengths"))] = None,
    equal: Annotated[str | None, typer.Option("--equal", metavar="WHAT", help=tr("cli.compare.equal"))] = None,
    tokens: Annotated[int | None, typer.Option("--tokens", metavar="N", help=tr("cli.compare.tokens"))] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", parser=destination, help=tr("cli.compare.out"))
    ] = None,
    data: Annotated[str | None, typer.Option("--data", metavar="FILE", help=tr("cli.train.data"))] = None,
    jobs: Annotated[int, typer.Option("--jobs", metavar="N", help=tr("cli.compare.jobs"))] = 1,
    cost: Annotated[bool, typer.Option("--cost", help=tr("cli.compare.cost"))] = False,
) -> None:
    """Train, evaluate and print the tables; 130 is the exit code of a comparison that was stopped."""
    from transpect.cli.comparing import Shown
    from transpect.cli.screen import console
    from transpect.compare import compare as run
    from transpect.compare import load_comparison, pending, report

    if equal not in (None, "parameters"):
        raise ConfigError("--equal can be parameters", value=equal)
    plan = load_comparison(
        recipe, ctx.obj, data, vary=vary or (), seeds=seeds, lengths=_lengths(lengths), equal=equal, tokens=tokens
    )
    folder = Path("runs") / f"compare-{recipe.stem}" if out is None else out
    screen, due = console(), pending(plan, folder)
    trainings = len(plan.trainings) * len(plan.seeds)
    announced = tr(
        "cli.compare.will",
        variants=len(plan.entries),
        trainings=trainings,
        finished=trainings - len(due),
        steps=plan.recipe.train.max_steps,
        out=folder,
    )
    screen.print(announced, markup=False, soft_wrap=True)
    with Shown(screen, due, jobs) as watcher:
        outcome = run(plan, folder, jobs=jobs, cost=cost, watcher=watcher)
    if any(outcome.results.values()):
        _print(report(plan, outcome.results, outcome.costs))
    if not outcome.complete:
        screen.print(tr("cli.compare.stopped", out=folder), markup=False, soft_wrap=True)
        raise typer.Exit(INTERRUPTED)
    screen.print(
        tr("cli.compare.left", out=folder, names="table.md, figure.svg, results.jsonl"), markup=False, soft_wrap=True
    )


def _lengths(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(
            "--lengths must be whole numbers parted by commas", value=text, remedy="Write e.g. 1,2,4,8."
        ) from error


def _print(shown: Report) -> None:
    from rich.text import Text

    from transpect.cli.screen import console, table

    screen = console()
    for grid in shown.grids:
        rows = table(*grid.columns, numbers=tuple(range(1, len(grid.columns))))
        for row in grid.rows:
            rows.add_row(*(Text(cell.text, "bold" if cell.best else "") for cell in row))
        screen.print()
        screen.print(grid.title, markup=False, soft_wrap=True)
        screen.print(rows)
    screen.print()
    for text, mark in shown.footnotes:
        screen.print(f"{mark} {text}", markup=False, soft_wrap=True)
    for note in shown.notes:
        screen.print(f"- {note}", markup=False, soft_wrap=True)
