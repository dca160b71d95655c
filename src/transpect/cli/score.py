"""``transpect score``: how probable texts are."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transpect.base.errors import ConfigError
from transpect.base.i18n import tr
from transpect.cli.command import Command, application

if TYPE_CHECKING:
    from transpect.decode import Score

app = application()

EXAMPLES = """\
transpect score runs/tang 床前明月光，疑是地上霜。
transpect score runs/tang 鱼 肉 --given 小猫爱吃
transpect score runs/translate --pairs pairs.tsv --json"""


@app.command("score", cls=Command, help=tr("cli.score"), epilog=EXAMPLES)
def score(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=tr("cli.model_path"))],
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT...", help=tr("cli.texts.text"))] = None,
    file: Annotated[str | None, typer.Option("--file", metavar="FILE", help=tr("cli.texts.file"))] = None,
    pairs: Annotated[str | None, typer.Option("--pairs", metavar="FILE", help=tr("cli.score.pairs"))] = None,
    given: Annotated[str | None, typer.Option("--given", metavar="TEXT", help=tr("cli.score.given"))] = None,
    stride: Annotated[int | None, typer.Option("--stride", metavar="N", help=tr("cli.score.stride"))] = None,
    memory: Annotated[int | None, typer.Option("--memory", metavar="N", min=0, help=tr("cli.eval.memory"))] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", metavar="N", min=1, help=tr("cli.batch_size"))] = 8,
    as_json: Annotated[bool, typer.Option("--json", help=tr("cli.json"))] = False,
    adapter: Annotated[str | None, typer.Option("--adapter", metavar="DIR", help=tr("cli.adapter"))] = None,
    device: Annotated[str, typer.Option("--device", metavar="NAME", help=tr("cli.device"))] = "auto",
    allow_pickle: Annotated[bool, typer.Option("--allow-pickle", help=tr("cli.allow_pickle"))] = False,
) -> None:
    """A line for each text."""
    from transpect.lm import load

    asked = _asked(texts or [], file, pairs, given)
    lm = load(model, device, allow_pickle=allow_pickle, adapter=adapter)
    found = lm.score(asked, batch_size=batch_size, stride=stride, memory=memory)
    if not as_json:
        _print_table(asked, found)
        return
    for text, own in zip(asked, found, strict=True):
        print(json.dumps(_row(text, own), ensure_ascii=False))


def _asked(texts: list[str], file: str | None, pairs: str | None, given: str | None) -> list[str | tuple[str, str]]:
    from transpect.cli.inputs import texts_given
    from transpect.data.sources import Tsv

    if pairs is None:
        found = texts_given(texts, file)
        return [text if given is None else (given, text) for text in found]
    if texts or file is not None or given is not None:
        raise ConfigError("--pairs says all that is scored", remedy="Leave the other texts and --given out.")
    return [(one.text, one.target or "") for one in Tsv(pairs).documents()]


def _row(text: str | tuple[str, str], own: Score) -> dict[str, Any]:
    asked = {"text": text} if isinstance(text, str) else {"given": text[0], "text": text[1]}
    return {
        **asked,
        "logprob": own.logprob,
        "perplexity": _finite(own.perplexity),
        "bits_per_character": _finite(own.bits_per_char),
        "n_tokens": own.n_tokens,
        "n_characters": own.n_chars,
        "logprobs": list(own.logprobs),
    }


def _finite(value: float) -> float | None:
    """JSON has no word for other numbers."""
    return value if math.isfinite(value) else None


def _print_table(asked: list[str | tuple[str, str]], found: list[Score]) -> None:
    from rich.text import Text

    from transpect.cli.screen import console, table

    names = ("logprob", "perplexity", "bits", "tokens", "text")
    rows = table(*(tr(f"cli.score.column.{name}") for name in names), numbers=(0, 1, 2, 3))
    for text, own in zip(asked, found, strict=True):
        numbers = (f"{own.logprob:.4f}", f"{own.perplexity:.4f}", f"{own.bits_per_char:.4f}", f"{own.n_tokens:,}")
        rows.add_row(*numbers, Text(text if isinstance(text, str) else text[1]))
    console().print(rows)
