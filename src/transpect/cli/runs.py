"""``transpect runs``: what was trained so far."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transpect.base.errors import ConfigError, TranspectError, one_line
from transpect.base.i18n import tr
from transpect.cli.command import Command, application, destination

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from transpect.train.runs import Summary

app = application()

EXAMPLES = """\
transpect runs
transpect runs runs --html runs.html
transpect runs compare runs/a runs/b --measure loss,grad_norm"""

COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "red", "white")
CURVES = ("loss", "valid_loss")


@app.command("runs", cls=Command, help=tr("cli.runs"), epilog=EXAMPLES)
def runs(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[DIR | compare RUN RUN …]", help=tr("cli.runs.words"))
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", parser=destination, help=tr("cli.runs.html"))
    ] = None,
    measure: Annotated[str | None, typer.Option("--measure", metavar="NAMES", help=tr("cli.runs.measure"))] = None,
    as_json: Annotated[bool, typer.Option("--json", help=tr("cli.json"))] = False,
) -> None:
    """List or compare."""
    from transpect.train.runs import differing, summary_of, write_page

    first, *rest = words or ["runs"]
    comparing = first == "compare"
    if comparing and len(rest) < 2:
        raise ConfigError("compare needs two runs or more", value=rest, remedy="Write transpect runs compare A B.")
    if not comparing and rest:
        raise ConfigError("one directory is listed at a time", value=words, remedy="To compare runs: runs compare A B.")
    found = [summary_of(Path(one)) for one in rest] if comparing else _found(Path(first))
    if html is not None:
        write_page(html, found)
    if as_json:
        shown = [run.as_dict() for run in found]
        rows = [{"key": key, "values": values} for key, values in differing([run.recipe for run in found])]
        print(json.dumps({"runs": shown, "differing": rows} if comparing else shown, default=str))
        return
    _show(found, Path(first), measure, comparing=comparing)
    if html is not None:
        print(tr("cli.runs.written", count=len(found), path=html))


def _found(folder: Path) -> list[Summary]:
    """All runs that can be read; of others it is said why not."""
    from transpect.train.runs import find_runs, summary_of

    found = []
    for run in find_runs(folder):
        try:
            found.append(summary_of(run))
        except TranspectError as error:
            sys.stderr.write(f"{tr('cli.runs.unread', error=one_line(error))}\n")
    return found


def _show(found: list[Summary], folder: Path, measure: str | None, *, comparing: bool) -> None:
    from transpect.cli.screen import console, table
    from transpect.train.runs import sparkline

    screen = console()
    if not found:
        screen.print(tr("cli.runs.none", folder=folder), markup=False, soft_wrap=True)
        return
    names = ("run", "state", "steps", "loss", "best", "speed", "age")
    rows = table(*(tr(f"runs.column.{name}") for name in names), numbers=(2, 5))
    for number, run in enumerate(found):
        best = "" if run.best_value is None else f"{run.metric} {run.best_value:.4f} @ {run.best_step}"
        rows.add_row(
            _plain(str(run.folder), COLOURS[number % len(COLOURS)] if comparing else ""),
            tr(f"runs.state.{run.state}"),
            f"{run.step}/{run.last}",
            sparkline([value for _, value in run.curve("loss")], 16),
            best,
            "" if run.speed is None else f"{run.speed:,.0f}",
            tr("runs.ago", age=age_of(run.age)),
        )
    screen.print(rows)
    if comparing:
        _show_differing(screen, found)
    if comparing or measure is not None:
        for name in CURVES if measure is None else measure.split(","):
            _show_curves(screen, name, found, required=measure is not None)


def _plain(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(text, style)


def _show_differing(screen: Console, found: list[Summary]) -> None:
    from transpect.cli.screen import table
    from transpect.train.runs import differing

    keys = differing([run.recipe for run in found])
    screen.print()
    if not keys:
        screen.print(tr("cli.runs.same"), markup=False, soft_wrap=True)
        return
    rows = table(tr("runs.column.key"), *(run.folder.name for run in found), title=tr("runs.differing"))
    for key, values in keys:
        rows.add_row(*(_plain(str(value)) for value in (key, *values)))
    screen.print(rows)


def _show_curves(screen: Console, measure: str, found: list[Summary], *, required: bool) -> None:
    from rich.text import Text

    from transpect.base.codec import did_you_mean
    from transpect.train.runs import chart

    drawn = chart([run.curve(measure) for run in found], width=min(96, max(20, screen.width - 14)))
    if drawn is None:
        if required:
            known = list(dict.fromkeys(name for run in found for name in run.measures))
            remedy = f"{did_you_mean(measure, known)} Known: {', '.join(known)}.".strip()
            raise ConfigError("--measure must be what some run measured", value=measure, remedy=remedy)
        return
    screen.print()
    screen.print(Text(measure, "bold"))
    for number, cells in enumerate(drawn.rows):
        at = drawn.high if number == 0 else drawn.low if number == len(drawn.rows) - 1 else None
        line = Text("" if at is None else f"{at:.4g}").append(" " * 10)[:10]
        for character, curve in cells:
            line.append(character, "" if curve is None else COLOURS[curve % len(COLOURS)])
        line.rstrip()
        screen.print(line, soft_wrap=True)
    ends = f"{drawn.first:g}", f"{drawn.last:g}"
    screen.print(
        f"{'':10}{ends[0]}{ends[1]:>{max(1, len(drawn.rows[0]) - len(ends[0]))}}", markup=False, soft_wrap=True
    )


def age_of(seconds: float) -> str:
    """Some time for a person, in its largest unit."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
