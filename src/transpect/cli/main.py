"""The command ``transpect``: which command, and how errors reach a person.

The command line is typer's rather than jsonargparse's: recipes and models own their types through
`transpect.base.codec`, which reads the same dotted keys from a file and from the command line and names the line of a
mistake. So nothing is left for a parser to derive from dataclasses; what a command needs is arguments, options, help
and exit codes. A command's module is imported when it is called, and torch when that command needs it.

Exit codes: 0 done; 2 something that the user can mend, said in one line on stderr; 130 after Ctrl-C; 1 when the reader
of a pipe has gone. An unexpected exception keeps its traceback, for it is a bug of ours.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any, cast

from transpect.base.errors import ConfigError, TranspectError, one_line
from transpect.cli.page import COMMANDS, front_page

__all__ = ["main"]

USAGE = 2
INTERRUPTED = 130
PIPE_CLOSED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``transpect ARGUMENTS`` (the process's own when None) and give the exit code.

    Every `TranspectError`, wrong command line and refusal of the operating system becomes one line on stderr;
    ``TRANSPECT_DEBUG=1`` shows the traceback instead.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    _open_streams()
    try:
        code = _run(words)
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
        return PIPE_CLOSED
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return INTERRUPTED
    except (TranspectError, OSError) as error:
        if os.environ.get("TRANSPECT_DEBUG") == "1":
            raise
        sys.stderr.write(f"error: {one_line(error)}\n")
        return USAGE
    return code


def _run(words: list[str]) -> int:
    match words:
        case [] | ["--help" | "-h" | "help"]:
            print(front_page())
            return 0
        case ["--version", *_]:
            from transpect import __version__

            print(f"transpect {__version__}")
            return 0
        case [name, *rest] if name in COMMANDS:
            # a group without a command has nothing to do but to explain itself
            return _call(name, rest or (["--help"] if COMMANDS[name] else []))
    from transpect.base.codec import did_you_mean

    remedy = f"{did_you_mean(words[0], COMMANDS)} `transpect --help` lists the commands.".strip()
    raise ConfigError("no such command", value=words[0], remedy=remedy)


def _call(name: str, words: list[str]) -> int:
    import typer
    from typer.main import get_command

    command = get_command(import_module(f"transpect.cli.{name.replace('-', '_')}").app)
    # the class has moved between modules of typer and click; this is its ancestor in every version
    usage_error = cast(type[Exception], typer.BadParameter.__mro__[1])
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            code = command.main(words, prog_name=f"transpect {name}", standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except usage_error as error:
        raise _as_ours(error, f"transpect {name}") from error
    return code if isinstance(code, int) else 0


def _as_ours(error: Any, command: str) -> ConfigError:
    """typer's word on a wrong command line, with the page to look it up in."""
    path = error.ctx.command_path if error.ctx else command
    return ConfigError(error.format_message().rstrip(".?"), remedy=f"See `{path} --help`.")


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """A warning is for the person, not about the line of ours that gives it."""
    sys.stderr.write(f"warning: {' '.join(str(message).split())}\n")


def _open_streams() -> None:
    """A stream that the caller closed is an empty one, and a terminal that can't show a character shows its code: none
    of this is a reason to stop."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 # open as long as the process
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _forget_stdout() -> None:
    """Keep the interpreter from flushing into the closed pipe at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
