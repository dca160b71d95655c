"""What the machine gives at most: bytes read from memory a second, and multiplications and additions of matrices.

``read`` goes through 512 MiB that no cache holds, each thread its own part, by the C library's ``memchr``, a loop that
does nothing else than read. ``gemm`` multiplies square matrices by torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

SIZE = 512 << 20
SMALLEST, SIDE = 256, 2048
ENOUGH = 0.1
"""Seconds of one product from which on larger matrices would tell nothing more."""


def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """``threads``."""
    import torch

    torch.set_num_threads(options["threads"])
    find = ctypes.CDLL(None).memchr
    find.argtypes, find.restype = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t), ctypes.c_void_p
    memory = torch.ones(SIZE, dtype=torch.uint8)  # written, so that each page is a page of its own
    pool = ThreadPoolExecutor(options["threads"])
    part = SIZE // options["threads"]

    def read() -> float:
        starts = [memory.data_ptr() + part * number for number in range(options["threads"])]
        begun = perf_counter()
        found = list(pool.map(lambda start: find(start, 0, part), starts))
        assert not any(found)
        return perf_counter() - begun

    def multiply(dtype: str) -> float:
        """Multiplications and additions a second, in thousands of millions: of the largest matrices, or of smaller ones
        where a machine has no instructions for a dtype and would take minutes."""
        own = getattr(torch, dtype)
        product = torch._int_mm if own == torch.int8 else torch.mm
        side, seconds = SMALLEST, 0.0
        while True:
            shape = (side, side)
            a, b = (torch.ones(shape, dtype=own) if own == torch.int8 else torch.randn(shape).to(own) for _ in range(2))
            product(a, b)
            begun = perf_counter()
            product(a, b)
            seconds = perf_counter() - begun
            if side == SIDE or seconds > ENOUGH:
                return 2 * side**3 / seconds / 1e9
            side *= 2

    def run(asked: dict[str, Any]) -> dict[str, Any]:
        if asked["what"] == "read":
            seconds = min(read() for _ in range(asked["times"]))
            return {"read": part * options["threads"] / seconds / 1e9}
        return {"gemm": max(multiply(asked["dtype"]) for _ in range(asked["times"]))}

    return {"versions": {"torch": torch.__version__}}, run
