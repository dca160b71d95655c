"""``transpect eval``: how good a model is on a text."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from transpect.base.i18n import tr
from transpect.cli.command import Command, application

app = application()

EXAMPLES = """\
transpect eval runs/tang --data poems.txt
transpect eval runs/translate --data pairs.tsv --json"""


@app.command("eval", cls=Command, help=tr("cli.eval"), epilog=EXAMPLES)
def evaluate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=tr("cli.model_path"))],
    data: Annotated[str, typer.Option("--data", metavar="FILE", help=tr("cli.eval.data"))],
    batch_size: Annotated[int, typer.Option("--batch-size", metavar="N", min=1, help=tr("cli.eval.batch_size"))] = 16,
    as_json: Annotated[bool, typer.Option("--json", help=tr("cli.json"))] = False,
    device: Annotated[str, typer.Option("--device", metavar="NAME", help=tr("cli.device"))] = "auto",
) -> None:
    """Loss, perplexity, bits per character, and what they were counted on."""
    from transpect.data.sources import source_from_path

    documents = source_from_path(data).documents()  # a wrong file is told before torch is waited for

    from transpect.lm import load
    from transpect.train.evaluate import evaluate_documents

    lm = load(model, device)
    measured = evaluate_documents(lm.model, lm.tokenizer, documents, batch_size=batch_size).as_dict()
    if as_json:
        print(json.dumps({**measured, "n_documents": documents.size}))
        return
    from transpect.cli.screen import console, table

    rows = table("", "", "", numbers=(1,))
    rows.show_header = False
    for name, value in {**measured, "n_documents": documents.size}.items():
        shown = f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
        rows.add_row(tr(f"cli.eval.{name}"), shown, tr(f"cli.eval.{name}.unit"))
    console().print(rows)
