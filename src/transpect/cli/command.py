"""What all commands share: a help page in the reader's language, and dotted options that override a configuration."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from transpect.base.errors import ConfigError
from transpect.base.files import check_writable
from transpect.base.i18n import tr
from transpect.cli.layout import page_width, rows, wrap

__all__ = ["Command", "Group", "OverridableCommand", "Overrides", "application", "destination", "split_overrides"]

Overrides = list[tuple[str, str]]


def application(**settings: Any) -> typer.Typer:
    """A typer app that writes help pages as `Command` does, and leaves errors to `transpect.cli.main`."""
    return typer.Typer(cls=Group, add_completion=False, pretty_exceptions_enable=False, **settings)


def destination(text: str) -> Path:
    """A place to write to. An empty one would be the working directory, and is a variable that was not set.

    Raises:
        ConfigError: an empty one, or one that can't be written to.
    """
    if not text:
        raise ConfigError(
            "a place to write to must not be empty", value=text, remedy="Name it; . is the one you are in."
        )
    check_writable(Path(text))
    return Path(text)


class Command(TyperCommand):
    """A command with a help page from the table of messages."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, explanation, arguments, options and examples."""
        formatter.write(_page(self, ctx))


class Group(TyperGroup):
    """A command that has commands below it."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, explanation and the commands."""
        formatter.write(_page(self, ctx))


class OverridableCommand(Command):
    """A command whose further options ``--dotted.key value`` set something; they arrive as `Overrides` in ``ctx.obj``.

    A child says which: ``bare_keys``, whether an unknown option without a dot is one too, and ``explained``, the row of
    the table of messages that says what they set.
    """

    bare_keys: ClassVar[bool]
    explained: ClassVar[str]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the overrides out before typer reads the rest."""
        own = {name for param in self.get_params(ctx) for name in (*param.opts, *param.secondary_opts)}
        rest, ctx.obj = split_overrides(args, own, bare_keys=self.bare_keys)
        return super().parse_args(ctx, rest)


def split_overrides(
    words: Sequence[str], own: Collection[str], *, bare_keys: bool = False
) -> tuple[list[str], Overrides]:
    """Part a command line into its own words and ``--dotted.key value`` or ``--dotted.key=value`` pairs.

    Args:
        words: what follows the command.
        own: the options that the command itself has, which are left alone.
        bare_keys: take an unknown option without a dot for an override as well.

    Raises:
        ConfigError: a dotted option without a value.
    """
    rest: list[str] = []
    overrides: Overrides = []
    queue = list(words)
    while queue:
        word = queue.pop(0)
        if word == "--":
            rest += [word, *queue]
            break
        key, equals, value = word.removeprefix("--").partition("=")
        dotted = "." in key or bare_keys
        if not word.startswith("--") or f"--{key}" in own or not dotted:
            rest.append(word)
        elif equals:
            overrides.append((key, value))
        elif queue and not queue[0].startswith("--"):
            overrides.append((key, queue.pop(0)))
        else:
            raise ConfigError(f"--{key} needs a value", remedy=f"Write --{key} VALUE or --{key}=VALUE.")
    return rest, overrides


def _page(command: Any, ctx: Any) -> str:
    width = page_width()
    usage = [ctx.command_path, *(_in_usage(param) for param in command.params if param.param_type_name == "argument")]
    usage += ["COMMAND"] if isinstance(command, TyperGroup) else []
    usage += ["[OPTIONS]"]
    parts = [
        f"{tr('cli.usage')}{' '.join(usage)}",
        *("\n".join(wrap(paragraph, width)) for paragraph in (command.help or "").split("\n\n")),
    ]
    below = [(name, child.help.partition("\n")[0]) for name, child in getattr(command, "commands", {}).items()]
    arguments = [_row(param) for param in command.params if param.param_type_name == "argument"]
    given = [param for param in command.params if param.param_type_name == "option"]
    options = [_row(param) for param in given if not _panel(param)]
    if isinstance(command, OverridableCommand):
        options.append(("--KEY VALUE", tr(command.explained)))
    options.append(("--help", tr("cli.help")))
    panels = [
        (title, [_row(param) for param in given if _panel(param) == title])
        for title in dict.fromkeys(filter(None, map(_panel, given)))
    ]
    for title, pairs in (("cli.commands", below), ("cli.arguments", arguments), ("cli.options", options), *panels):
        if pairs:
            parts.append(f"{tr(title)}\n{rows(pairs, width)}")
    if command.epilog:
        examples = "\n".join(f"  {line}" for line in command.epilog.splitlines())
        parts.append(f"{tr('cli.examples')}\n{examples}")
    return "\n\n".join(parts)


def _panel(param: Any) -> str:
    """The row of the table of messages under which an option stands; empty for the usual place."""
    return getattr(param, "rich_help_panel", None) or ""


def _in_usage(param: Any) -> str:
    name = param.metavar or param.name.upper()
    return name if param.required else f"[{name}]"


def _row(param: Any) -> tuple[str, str]:
    """(what to type, what it does), with the default or that it is required."""
    if param.param_type_name == "argument":
        return param.metavar or param.name.upper(), param.help or ""
    names = ", ".join([*param.opts, *param.secondary_opts])
    value = "" if param.is_flag else f" {param.metavar or param.name.upper()}"
    note = ""
    if param.required:
        note = tr("cli.required")
    elif param.show_default and not param.is_flag and param.default not in (None, "", [], ()):
        note = tr("cli.default", value=param.default)
    return f"{names}{value}", f"{param.help or ''}{note}"
