"""One call of a kernel on the threads of torch, between two operations of torch.

A team of our own (`transpect.runtime.machine`) would find the cores taken: for some milliseconds after each operation
torch's threads look for more work, busily. They are those of GNU's OpenMP, whose one entry ``GOMP_parallel`` lets them
run a function; that is how torch starts them as well. A forked process can use neither.
"""

from __future__ import annotations

import ctypes
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import types
from torch import Tensor

from transpect.runtime.compiling import address_of, intrinsic
from transpect.runtime.machine import Kernel
from transpect.runtime.words import packed

Array = Any
_types: Any = types
_WORDS = _types.CPointer(types.int64)
A_THREAD = 4
"""Parts of a call for each thread, which takes the next when it is done with one: not all cores are equally free."""


def can_borrow() -> bool:
    """Whether torch has such threads here; elsewhere (macOS, Windows, musl) torch's own operations do the work."""
    return _entry() is not None


def serves(*tensors: Tensor) -> bool:
    """Whether kernels can be given these: float32 on a CPU, row by row."""
    return all(x.dtype == torch.float32 and x.device.type == "cpu" and x.is_contiguous() for x in tensors)


def run_on_torch(kernel: Kernel, *arguments: Any) -> None:
    """Run a kernel over all its parts; to be called where `can_borrow`.

    Args:
        kernel: that needs no rows of a pass.
        arguments: tensors that lie row by row, and numbers.
    """
    given = tuple(own.detach().numpy() if isinstance(own, Tensor) else np.float32(own) for own in arguments)
    code, line = kernel.address(given, 0), np.array(packed(given), np.int64)
    threads = torch.get_num_threads()
    parts = threads * A_THREAD if threads > 1 else 1
    data = np.array([0, parts, code, line.ctypes.data], np.int64)
    entry = _entry()
    assert entry is not None
    entry(_shared(), data.ctypes.data, threads, 0)


@cache
def _entry() -> Any:
    """``GOMP_parallel`` of the library that torch has loaded, and no other."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = set(re.findall(r"\S*/libgomp[^/\s]*\.so[\w.]*$", maps, re.MULTILINE))
    package = Path(torch.__file__).resolve().parent
    homes = (
        package / "lib",
        package.with_name("torch.libs"),
    )  # other packages bring their own, with threads of its own
    own = [path for path in found if Path(path).resolve().parent in homes]
    if len(own) != 1:
        return None
    entry = ctypes.CDLL(own[0], mode=os.RTLD_NOLOAD | os.RTLD_LAZY).GOMP_parallel
    entry.argtypes, entry.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint), None
    return entry


@cache
def _shared() -> int:
    """The address of what each thread runs."""
    return address_of(_take_parts, _types.void(_WORDS), "")


def _take_parts(data: Any) -> None:
    part = _next(data)
    while part < data[1]:
        _call(data, part)
        part = _next(data)


@intrinsic
def _next(context: Any, data: Any) -> Any:
    """data[0], which is one more afterwards."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", args[0], ir.IntType(64)(1), "seq_cst")

    return types.int64(data), emit


@intrinsic
def _call(context: Any, data: Any, part: Any) -> Any:
    """Call the code data[2] with the arguments at data[3], for one part of data[1]."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        words = word.as_pointer()
        parts, code, line = (builder.load(builder.gep(args[0], [word(n)])) for n in (1, 2, 3))
        function = ir.FunctionType(ir.VoidType(), [words, words, word, word])
        target = builder.inttoptr(code, function.as_pointer())
        builder.call(target, [builder.inttoptr(line, words), args[0], args[1], parts])
        return context.get_dummy_value()

    return types.void(data, part), emit
