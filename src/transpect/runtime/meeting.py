"""How threads wait for each other between two calls of a program: by looking, since it is over in less than the
microseconds that an operating system needs to wake one."""

from __future__ import annotations

import os
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils as untyped

from transpect.runtime.compiling import compiled, intrinsic

Array = Any
cgutils: Any = untyped
PATIENCE = 300
"""How often a waiting thread looks before it lets another one have the core."""


@compiled
def meet(arrived: Array, everyone: int) -> None:
    """Wait until all threads have come here."""
    _arrive(arrived)
    looked = 0
    while _count(arrived) < everyone:
        looked += 1
        if looked % PATIENCE == 0:
            _let_others_run()
        else:
            _pause()


@intrinsic
def _arrive(context: Any, arrived: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        counter = context.make_array(signature.args[0])(context, builder, args[0]).data
        builder.atomic_rmw("add", counter, ir.IntType(64)(1), "seq_cst")
        return context.get_dummy_value()

    return types.void(arrived), emit


@intrinsic
def _count(context: Any, arrived: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        counter = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.load_atomic(counter, "acquire", 8)

    return types.int64(arrived), emit


@intrinsic
def _pause(context: Any) -> Any:
    """Tell the core that this thread only waits."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        machine = context.codegen().magic_tuple()[0].split("-")[0]
        void, number = ir.VoidType(), ir.IntType(32)
        if machine in ("x86_64", "i686"):
            builder.call(_function(builder, "llvm.x86.sse2.pause", void), [])
        elif machine in ("aarch64", "arm64"):
            builder.call(_function(builder, "llvm.aarch64.hint", void, number), [number(1)])  # "yield"
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def _let_others_run(context: Any) -> Any:
    """Give the core to another thread, of which the one that is waited for may be one."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        name = "SwitchToThread" if os.name == "nt" else "sched_yield"
        builder.call(_function(builder, name, ir.IntType(32)), [])
        return context.get_dummy_value()

    return types.void(), emit


def _function(builder: Any, name: str, result: Any, *parameters: Any) -> Any:
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, parameters), name)
