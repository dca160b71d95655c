"""``transpect translate``: a text, or a file of them, by an encoder–decoder."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from transpect.base.i18n import tr
from transpect.cli.command import Command, application
from transpect.cli.parameters import writes

app = application()

EXAMPLES = """\
transpect translate runs/translate "Power grid"
transpect translate runs/translate --file strings.txt --json
transpect translate runs/translate "Power grid" --num-beams 8 --n 3 --length-penalty 0.6"""


@app.command("translate", cls=Command, help=tr("cli.translate"), epilog=EXAMPLES)
@writes("logprobs")
def translate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=tr("cli.model_path"))],
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help=tr("cli.translate.text"))] = None,
    file: Annotated[str | None, typer.Option("--file", metavar="FILE", help=tr("cli.texts.file"))] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="TOKEN", help=tr("cli.translate.to"))] = None,
    as_json: Annotated[bool, typer.Option("--json", help=tr("cli.json"))] = False,
    batch_size: Annotated[int, typer.Option("--batch-size", metavar="N", min=1, help=tr("cli.batch_size"))] = 32,
    cache: Annotated[str | None, typer.Option("--cache", metavar="KIND", help=tr("cli.cache"))] = None,
    runtime: Annotated[str, typer.Option("--runtime", metavar="NAME", help=tr("cli.runtime"))] = "auto",
    quant: Annotated[str | None, typer.Option("--quant", metavar="FORMAT", help=tr("cli.quant"))] = None,
    device: Annotated[str, typer.Option("--device", metavar="NAME", help=tr("cli.device"))] = "auto",
    allow_pickle: Annotated[bool, typer.Option("--allow-pickle", help=tr("cli.allow_pickle"))] = False,
    *,
    asked: dict[str, Any],
) -> None:
    """Print a line for each translation."""
    from transpect.cli.inputs import cache_named, texts_given
    from transpect.lm import load

    texts = texts_given([] if text is None else [text], file)
    kind = cache_named(cache)
    lm = load(model, device, allow_pickle=allow_pickle, runtime=runtime, quant=quant)
    count = asked.get("n") or 1
    found = lm.translate(texts, target_language=to, batch_size=batch_size, cache=kind, **asked)
    for place, translation in enumerate(found):
        if as_json:
            row = {"text": texts[place // count], "choice": place % count, "translation": translation}
            print(json.dumps(row, ensure_ascii=False))
        else:
            print(translation)
