"""``transpect fill-mask``: what the masks of a text may hide."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from transpect.base.i18n import tr
from transpect.cli.command import Command, application

app = application()

EXAMPLES = """\
transpect fill-mask runs/mlm "小猫爱吃[MASK]。"
transpect fill-mask google-bert/bert-base-uncased "The capital of France is [MASK]." --k 3 --json"""


@app.command("fill-mask", cls=Command, help=tr("cli.fill-mask"), epilog=EXAMPLES)
def fill_mask(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=tr("cli.model_path"))],
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help=tr("cli.fill-mask.text"))] = None,
    k: Annotated[int, typer.Option("--k", metavar="N", min=1, help=tr("cli.fill-mask.k"))] = 5,
    as_json: Annotated[bool, typer.Option("--json", help=tr("cli.json"))] = False,
    device: Annotated[str, typer.Option("--device", metavar="NAME", help=tr("cli.device"))] = "auto",
    allow_pickle: Annotated[bool, typer.Option("--allow-pickle", help=tr("cli.allow_pickle"))] = False,
) -> None:
    """A line for each mask."""
    from transpect.cli.inputs import read_text
    from transpect.lm import load

    given = read_text(text)
    for guesses in load(model, device, allow_pickle=allow_pickle).fill_mask(given, k):
        if as_json:
            print(json.dumps([{"token": token, "probability": p} for token, p in guesses], ensure_ascii=False))
        else:
            print("  ".join(f"{token} {p:.4f}" for token, p in guesses))
