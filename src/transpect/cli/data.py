"""``transpect data prepare``, ``stats`` and ``show``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transpect.base.errors import ConfigError
from transpect.base.i18n import tr
from transpect.cli.command import Command, OverridableCommand, application, destination

if TYPE_CHECKING:
    from transpect.data.sources import Source
    from transpect.text import Tokenizer

app = application(help=tr("cli.data"))

PREPARE = """\
transpect data prepare corpus/*.jsonl --tokenizer runs/tokenizer --out tokens --workers 4
transpect data prepare recipe.yaml --out tokens --dedup near:0.8 --on-bad-line skip"""
STATS = """\
transpect data stats poems.txt
transpect data stats corpus/*.jsonl --tokenizer runs/tokenizer --json
transpect data stats tokens"""
SHOW = """\
transpect data show recipes/tang-gpt.yaml
transpect data show recipes/mlm-fable.yaml --rows 1 --data.objective.rate 0.3"""

What = Annotated[list[str], typer.Argument(metavar="RECIPE|DATA...", help=tr("cli.data.what"))]
BadLine = Annotated[str | None, typer.Option("--on-bad-line", metavar="error|skip", help=tr("cli.on_bad_line"))]
TokenizerPath = Annotated[str | None, typer.Option("--tokenizer", metavar="DIR", help=tr("cli.data.tokenizer"))]
Json = Annotated[bool, typer.Option("--json", help=tr("cli.json"))]


@app.command("prepare", cls=Command, help=tr("cli.data.prepare"), epilog=PREPARE)
def prepare(
    what: What,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", parser=destination, help=tr("cli.data.out"))],
    tokenizer: TokenizerPath = None,
    workers: Annotated[int, typer.Option("--workers", metavar="N", min=1, help=tr("cli.data.workers"))] = 1,
    shard_tokens: Annotated[
        int, typer.Option("--shard-tokens", metavar="N", min=1, help=tr("cli.data.shard_tokens"))
    ] = 2**26,
    dedup: Annotated[str | None, typer.Option("--dedup", metavar="exact|near:J", help=tr("cli.data.dedup"))] = None,
    on_bad_line: BadLine = None,
) -> None:
    """Write token files."""
    from transpect.data.tokens import Shard
    from transpect.data.tokens import prepare as run

    source, own = _source(what, on_bad_line)
    opened = _tokenizer(tokenizer or own)
    if opened is None:
        raise ConfigError(
            "to be encoded, data needs a tokenizer",
            remedy="Name it: --tokenizer DIR. `transpect tokenizer train` makes one.",
        )

    def told(shard: Shard) -> None:
        print(tr("cli.data.shard", name=shard.name, documents=f"{shard.documents:,}", tokens=f"{shard.tokens:,}"))

    made = run(_distinct(source, dedup), opened, out, shard_tokens=shard_tokens, workers=workers, on_shard=told)
    documents, tokens, shards = made.manifest.documents, made.manifest.tokens, len(made.manifest.shards)
    counts = tr("cli.data.counts", documents=f"{documents:,}", tokens=f"{tokens:,}", shards=shards)
    print(tr("cli.data.prepared", path=out, counts=counts, resumed=made.resumed))
    if made.skipped.count:
        print(made.skipped)


@app.command("stats", cls=Command, help=tr("cli.data.stats"), epilog=STATS)
def stats(what: What, tokenizer: TokenizerPath = None, on_bad_line: BadLine = None, as_json: Json = False) -> None:
    """Count what the data holds."""
    from transpect.data.sources.joined import finite
    from transpect.data.statistics import statistics

    source, own = _source(what, on_bad_line)
    found = statistics(finite(source), _tokenizer(tokenizer or own))
    if as_json:
        print(json.dumps(found.as_dict(), ensure_ascii=False))
        return
    from transpect.cli.screen import console, table

    values = found.as_dict()
    rows = table("", "", numbers=(1,))
    rows.show_header = False
    for name in ("documents", "characters", "tokens", "duplicates", "bad_lines", "longest"):
        if name in values:
            rows.add_row(tr(f"cli.data.{name}"), f"{values[name]:,}")
    unit = tr("cli.data.characters" if found.tokens is None else "cli.data.tokens")
    lengths = table("", "", "", numbers=(0, 1), title=tr("cli.data.lengths", unit=unit))
    lengths.show_header = False
    most = max(values["lengths"].values(), default=1)
    for first, count in values["lengths"].items():
        last = max(2 * int(first) - 1, 0)
        lengths.add_row(f"{int(first):,}–{last:,}", f"{count:,}", "█" * round(40 * count / most))
    console().print(rows, "", lengths, sep="\n")
    if found.scripts:
        scripts = table("", "", numbers=(1,), title=tr("cli.data.scripts"))
        scripts.show_header = False
        for name, count in found.scripts.most_common(8):
            scripts.add_row(name.title() if name != "CJK" else name, f"{count / found.scripts.total():.1%}")
        console().print("", scripts, sep="\n")
    if found.skipped.count:
        print(found.skipped)


class ShowCommand(OverridableCommand):
    """Takes dotted options for keys of the recipe."""

    bare_keys = False
    explained = "cli.data.keys"


@app.command("show", cls=ShowCommand, help=tr("cli.data.show"), epilog=SHOW)
def show(
    ctx: typer.Context,
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help=tr("cli.data.recipe"))],
    data: Annotated[str | None, typer.Option("--data", metavar="FILE", help=tr("cli.train.data"))] = None,
    rows: Annotated[int, typer.Option("--rows", metavar="N", min=1, help=tr("cli.data.rows"))] = 3,
    on_bad_line: BadLine = None,
    as_json: Json = False,
) -> None:
    """The first rows of a training run."""
    from transpect.cli.data_rows import print_rows
    from transpect.data.loader import Batches
    from transpect.train import load_recipe
    from transpect.train.material import gathered

    read = gathered(load_recipe(recipe, ctx.obj, data, on_bad_line))
    wanted = read.recipe
    batches = Batches(
        read.train,
        wanted.objective,
        read.tokenizer,
        batch_size=rows,
        seq_len=wanted.seq_len,
        seed=wanted.train.seed,
        bucket=wanted.data.bucket,
    )
    print_rows(next(batches), read.tokenizer, wanted.objective.classes, as_json=as_json)


def _source(what: list[str], on_bad_line: str | None) -> tuple[Source, str | None]:
    """The source that is named, and the tokenizer that its recipe opens."""
    from transpect.data.sources import Joined, source_from_path, with_bad_lines

    path: str | None = None
    if [Path(word).suffix in (".yaml", ".yml") for word in what] == [True]:
        from transpect.train import load_recipe

        recipe = load_recipe(what[0])
        source, path = recipe.data.train, recipe.tokenizer.path
    else:
        parts = tuple(map(source_from_path, what))
        source = parts[0] if len(parts) == 1 else Joined(parts)
    return source if on_bad_line is None else with_bad_lines(source, on_bad_line), path


def _tokenizer(path: str | None) -> Tokenizer | None:
    from transpect.cli.inputs import tokenizer_place
    from transpect.text import load_tokenizer

    return None if path is None else load_tokenizer(tokenizer_place(path))


def _distinct(source: Source, dedup: str | None) -> Source:
    from transpect.data.sources import Deduplicated

    if dedup is None:
        return source
    kind, _, threshold = dedup.partition(":")
    try:
        options: dict[str, Any] = {"exact": {}, "near": {"near": float(threshold or 0.8)}}[kind]
    except (KeyError, ValueError) as error:
        raise ConfigError("--dedup must be exact, or near:J with a number J", value=dedup) from error
    return Deduplicated(source, **options)
