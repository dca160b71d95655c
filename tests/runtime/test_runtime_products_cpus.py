"""Every kind of CPU has its code, also those that this machine is not; one is chosen, and one can be named."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from transpect.base.errors import ConfigError
from transpect.runtime.compiling import CPU
from transpect.runtime.products.abreast import NUMBERS, emit_abreast
from transpect.runtime.products.blocks import emit_blocks
from transpect.runtime.products.codes import CODES
from transpect.runtime.products.cpu import LINES, Line, line
from transpect.runtime.products.digits import emit_digits
from transpect.runtime.products.kernel import ARGUMENTS
from transpect.runtime.products.nibbles import NIBBLES
from transpect.runtime.products.wide import emit_words

DOT = {"avx512": "vpdpbusd", "avxvnni": "vpdpbusd", "avx2": "vpmadd", "i8mm": "usdot", "dotprod": "sdot"}
WITH_VECTORS = [each for each in LINES if each.width]


@pytest.fixture(scope="module", autouse=True)
def targets() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def assembled(emit: Callable[..., None], line: Line, rows: int, arguments: int = ARGUMENTS) -> str:
    """What a function is on such a machine."""
    module = ir.Module()
    module.triple = f"{line.triple}-unknown-linux-gnu"
    kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * arguments)
    function = ir.Function(module, kind, "product")
    builder = ir.IRBuilder(function.append_basic_block())
    emit(builder, line, rows, function.args)
    builder.ret_void()
    features = ",".join(f"+{each}" for each in line.needs)
    machine = llvm.Target.from_triple(module.triple).create_target_machine(cpu=line.cpu, features=features, opt=2)
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    text: str = machine.emit_assembly(parsed)
    return text


@pytest.mark.parametrize("line", WITH_VECTORS, ids=lambda each: each.name)
def test_every_line_is_assembled(line: Line) -> None:
    texts: dict[Any, str] = {rows: assembled(emit_digits, line, rows) for rows in (1, 4)}
    for kind, code in CODES.items():
        texts[kind] = assembled(partial(emit_blocks, code), line, 1)
    if line.wide is not None:
        texts |= {f"words {rows}": assembled(emit_words, line, rows) for rows in (1, 4)}
    if line.narrow is not None:
        texts |= {
            f"abreast {kind}": assembled(partial(emit_abreast, own), line, 4, NUMBERS) for kind, own in NIBBLES.items()
        }
    for name, text in texts.items():
        assert DOT[line.name] in text, name
        assert "extendhf" not in text, name  # a float16 is widened by an instruction, not by a library


def test_a_line_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CPU, "plain")
    assert line.__wrapped__().name == "plain"
    other = next(each.name for each in LINES if each.triple and each.triple != line().triple)
    for wrong in (other, "fastest"):
        monkeypatch.setenv(CPU, wrong)
        with pytest.raises(ConfigError, match="choose one of"):
            line.__wrapped__()


def test_the_best_line_is_chosen() -> None:
    everything = {need: True for each in LINES for need in each.needs}
    of = {
        machine: [each.name for each in LINES if each.runs_on(everything, machine)]
        for machine in ("x86_64", "aarch64", "riscv64")
    }
    assert of["x86_64"] == ["avx512", "avxvnni", "avx2", "plain"]
    assert of["aarch64"] == ["i8mm", "dotprod", "plain"] and of["riscv64"] == ["plain"]
    without = {**everything, "avx512vnni": False, "avxvnni": False}
    assert next(each.name for each in LINES if each.runs_on(without, "x86_64")) == "avx2"


@pytest.mark.slow
def test_shares_on_a_cpu_without_vectors() -> None:
    """Of every number of rows; the code is chosen once a process."""
    tests = Path(__file__).with_name("test_runtime_products_shares.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{tests}", "-k", "exact"]
    subprocess.run(command, env={**os.environ, CPU: "plain"}, check=True)
