"""``transpect train``: a run from a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from transpect.base.i18n import tr
from transpect.cli.command import OverridableCommand, application, destination

app = application()

INTERRUPTED = 130

EXAMPLES = """\
transpect train recipes/tang-gpt.yaml --out runs/tang --data poems.txt
transpect train recipes/tang-gpt.yaml --out runs/tang --data poems.txt --resume auto
transpect train recipes/demo.yaml --out runs/rate --find-lr
transpect train recipes/demo.yaml --out runs/small --model.d_model 64 --train.max_steps 200"""


class TrainCommand(OverridableCommand):
    """Takes dotted options for keys of the recipe."""

    bare_keys = False
    explained = "cli.train.keys"


@app.command("train", cls=TrainCommand, help=tr("cli.train"), epilog=EXAMPLES)
def train(
    ctx: typer.Context,
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help=tr("cli.train.recipe"))],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", parser=destination, help=tr("cli.train.out"))],
    data: Annotated[str | None, typer.Option("--data", metavar="FILE", help=tr("cli.train.data"))] = None,
    resume: Annotated[str, typer.Option("--resume", metavar="auto|never|DIR", help=tr("cli.train.resume"))] = "never",
    on_bad_line: Annotated[
        str | None, typer.Option("--on-bad-line", metavar="error|skip", help=tr("cli.on_bad_line"))
    ] = None,
    find_lr: Annotated[bool, typer.Option("--find-lr", help=tr("cli.train.find_lr"))] = False,
    return_memory: Annotated[bool, typer.Option("--return-memory", help=tr("cli.train.return_memory"))] = False,
) -> None:
    """Train and leave a run directory; 130 is the exit code of a run that was stopped and saved."""
    from transpect.base.allocator import keep_freed_memory

    if not return_memory:
        keep_freed_memory()
    from transpect.train import find_rate, load_recipe
    from transpect.train import train as run

    asked = load_recipe(recipe, ctx.obj, data, on_bad_line)
    if find_lr:
        find_rate(asked, out, resume=resume)
        return
    result = run(asked, out, resume=resume)
    if result.reason == "interrupted":
        raise typer.Exit(INTERRUPTED)
