"""The first page, ``transpect --help``. It imports neither typer nor torch, so it answers at once."""

from __future__ import annotations

from collections.abc import Mapping

from transpect.base.i18n import tr
from transpect.cli.layout import page_width, rows, wrap

__all__ = ["COMMANDS", "front_page"]

# name -> the commands below it; the module of a command has its name, with _ for -. Explanations are the rows
# cli.NAME of the table of messages.
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "demo": (),
    "train": (),
    "plan": (),
    "runs": (),
    "compare": (),
    "generate": (),
    "chat": (),
    "translate": (),
    "score": (),
    "embed": (),
    "fill-mask": (),
    "serve": (),
    "eval": (),
    "verify": (),
    "bench": ("decode", "prefill", "load", "train", "encode", "translate", "serve", "attention"),
    "model": ("list", "show"),
    "convert": (),
    "quantize": (),
    "data": ("prepare", "stats", "show"),
    "tokenizer": ("train", "encode", "decode"),
}


def front_page() -> str:
    """What ``transpect --help`` prints, in the reader's language."""
    width = page_width()
    names = [f"{name} {child}".strip() for name, below in COMMANDS.items() for child in (below or ("",))]
    # what a command does; how it does it, in further paragraphs, is for its own page
    commands = [(name, tr(f"cli.{name.replace(' ', '.')}").partition("\n\n")[0]) for name in names]
    options = [("--help", tr("cli.help")), ("--version", tr("cli.version"))]
    return "\n".join(
        [
            *wrap(tr("cli.app"), width),
            "",
            f"{tr('cli.usage')}transpect COMMAND [--help]",
            "",
            tr("cli.commands"),
            rows(commands, width),
            "",
            tr("cli.options"),
            rows(options, width),
            "",
            *wrap(tr("cli.language"), width),
        ]
    )
