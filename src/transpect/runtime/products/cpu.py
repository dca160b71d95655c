"""Which instructions for products of small integers this machine has; decided once.

A line is one kind of CPU. What differs between them is one operation on vectors: four products of an unsigned and a
signed byte, summed into each 32-bit lane, or two products of 16-bit numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from transpect.base.errors import ConfigError
from transpect.runtime.compiling import CPU
from transpect.runtime.products.emit import I8, I16, call, halves, joined, ones, vector

Dot = Callable[[Any, Any, Any, Any, bool], Any]
Wide = Callable[[Any, Any, Any, Any], Any]
Narrow = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class Line:
    """One kind of CPU.

    Attributes:
        name: what `CPU` calls it.
        needs: features by LLVM's names, all of them.
        triple, cpu: a machine of this kind for LLVM.
        width: bytes of its vectors, 64 or 32; 0 is the plain loop.
        dot: (builder, sums, unsigned, signed, small) -> sums + four products a lane, at ``width`` or at 32 bytes;
            ``small`` promises that the unsigned bytes are under 128.
        wide: (builder, sums, a, b) -> sums + two products of 16-bit numbers a lane, where that is quicker than products
            of bytes for what has 16 bits; None where it is not.
        narrow: (builder, unsigned, signed) -> two products of bytes a lane of 16 bits, which they must fit into, where
            those are summed sooner than four in 32 bits; None where they are not.
    """

    name: str
    needs: tuple[str, ...]
    triple: str
    cpu: str
    width: int
    dot: Dot
    wide: Wide | None = None
    narrow: Narrow | None = None

    def runs_on(self, features: Mapping[str, bool], machine: str) -> bool:
        """Whether a host with these features has what it needs."""
        same = not self.triple or self.triple.partition("-")[0] == machine
        return same and all(features.get(need, False) for need in self.needs)


def _vnni(builder: Any, sums: Any, unsigned: Any, signed: Any, small: bool) -> Any:
    """vpdpbusd. Its operands are words by LLVM's older name for it, which newer ones understand."""
    kind = sums.type
    words = [builder.bitcast(each, kind) for each in (unsigned, signed)]
    return call(builder, f"llvm.x86.avx512.vpdpbusd.{32 * kind.count}", kind, sums, *words)


def _maddubs(builder: Any, sums: Any, unsigned: Any, signed: Any, small: bool) -> Any:
    """vpmaddubsw, whose sums of two products are 16 bits: those of 128 and of what is left are summed apart."""
    count, kind = unsigned.type.count, sums.type
    parts = [unsigned] if small else [builder.and_(unsigned, ones(I8, count, mask)) for mask in (127, -128)]
    for part in parts:
        two = _two_products(builder, part, signed)
        sums = builder.add(sums, _pairs(builder, two, ones(I16, count // 2, 1), kind))
    return sums


def _two_products(builder: Any, unsigned: Any, signed: Any) -> Any:
    return call(builder, "llvm.x86.avx2.pmadd.ub.sw", vector(I16, unsigned.type.count // 2), unsigned, signed)


def _maddwd(builder: Any, sums: Any, a: Any, b: Any) -> Any:
    return builder.add(sums, _pairs(builder, a, b, sums.type))


def _pairs(builder: Any, a: Any, b: Any, kind: Any) -> Any:
    """vpmaddwd."""
    return call(builder, "llvm.x86.avx2.pmadd.wd", kind, a, b)


def _usdot(builder: Any, sums: Any, unsigned: Any, signed: Any, small: bool) -> Any:
    return _by_halves(builder, sums, unsigned, signed, "llvm.aarch64.neon.usdot.v4i32.v16i8")


def _sdot(builder: Any, sums: Any, unsigned: Any, signed: Any, small: bool) -> Any:
    """Signed by signed: Σ u·s = Σ (u − 128)·s + 2·Σ 64·s."""
    name = "llvm.aarch64.neon.sdot.v4i32.v16i8"
    if small:
        return _by_halves(builder, sums, unsigned, signed, name)
    less = builder.xor(unsigned, ones(I8, unsigned.type.count, -128))
    sums = _by_halves(builder, sums, less, signed, name)
    for _ in range(2):
        sums = _by_halves(builder, sums, ones(I8, unsigned.type.count, 64), signed, name)
    return sums


def _by_halves(builder: Any, sums: Any, unsigned: Any, signed: Any, name: str) -> Any:
    parts = zip(*(halves(builder, each) for each in (sums, unsigned, signed)), strict=True)
    return joined(builder, [call(builder, name, part[0].type, *part) for part in parts])


def _none(builder: Any, sums: Any, unsigned: Any, signed: Any, small: bool) -> Any:
    raise AssertionError("the plain loop has no vectors")


_AVX2 = ("avx2", "fma", "f16c")
LINES = (
    Line(
        "avx512", (*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni"), "x86_64", "znver4", 64, _vnni
    ),
    Line("avxvnni", (*_AVX2, "avxvnni"), "x86_64", "alderlake", 32, _vnni),
    Line("avx2", _AVX2, "x86_64", "haswell", 32, _maddubs, _maddwd, _two_products),
    Line("i8mm", ("neon", "dotprod", "i8mm"), "aarch64", "neoverse-v1", 32, _usdot),
    Line("dotprod", ("neon", "dotprod"), "aarch64", "apple-m1", 32, _sdot),
    Line("plain", (), "", "", 0, _none),
)
"""From the best to the one that every machine has."""


@cache
def multiplies_bfloat16() -> bool:
    """Whether the machine multiplies bfloat16 by itself: others take ten times as long for it as for float32."""
    features = llvm.get_host_cpu_features()
    return any(features.get(name, False) for name in ("avx512bf16", "amx-bf16", "bf16"))


def lines() -> list[Line]:
    """Those that this machine has, from the best one on."""
    features = dict(llvm.get_host_cpu_features())
    machine = llvm.get_process_triple().partition("-")[0].replace("arm64", "aarch64")
    return [each for each in LINES if each.runs_on(features, machine)]


@cache
def line() -> Line:
    """The line of this process: the best one that the machine has, or the one that `CPU` names.

    Raises:
        ConfigError: a name that there is not, or a line that this machine hasn't.
    """
    possible = {each.name: each for each in lines()}
    wanted = os.environ.get(CPU)
    if wanted is None:
        return next(iter(possible.values()))
    if wanted not in possible:
        raise ConfigError(
            f"{CPU} names a kind of products that this machine has",
            value=wanted,
            remedy=f"Leave it out, or choose one of {', '.join(possible)}.",
        )
    return possible[wanted]


def name() -> str:
    """Of the line that this process computes with."""
    return line().name
