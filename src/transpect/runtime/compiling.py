"""How this room's functions are compiled: numba's settings, and a cache on disk that knows when it is out of date."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache as _Untyped
from numba.core.ccallback import CFunc as _UntypedC
from numba.extending import intrinsic as _untyped_intrinsic

_FunctionCache: Any = _Untyped
CFunc: Any = _UntypedC
_intrinsic: Any = _untyped_intrinsic

_FREEDOMS = {"reassoc", "contract", "arcp", "nsz"}
"""Sums may be taken in any order, so that they are taken by vectors. NaN and infinity stay what they are."""
OPTIONS: dict[str, Any] = {"fastmath": _FREEDOMS, "boundscheck": False}
"""How everything here is compiled."""
CPU = "TRANSPECT_CPU"
"""The environment variable that names a kind of CPU for `products` where it shall not be the best one."""


def compiled(function: Callable[..., Any]) -> Any:
    """A function that other compiled ones call, or that Python calls without holding its lock."""
    made = njit(nogil=True, **OPTIONS)(function)
    made._cache = _kept(made._cache, function, "")
    return made


def intrinsic(function: Callable[..., Any]) -> Any:
    """What compiled code calls and LLVM's own language says."""
    return _intrinsic(function)


def address_of(function: Callable[..., Any], signature: Any, name: str) -> int:
    """Compile a function to what can be called by its address.

    Args:
        name: tells apart what is made of one text, as a wrapper of many kernels is.
    """
    made: Any = CFunc(function, (signature.args, signature.return_type), locals={}, options=dict(OPTIONS))
    made._cache = _kept(made._cache, function, name)
    made.compile()
    _ALIVE.append(made)
    return int(made.address)


_ALIVE: list[Any] = []
"""What has an address stays in memory."""


def _kept(without: Any, function: Callable[..., Any], name: str) -> Any:
    """The cache of a function; ``without`` one where there is no folder to keep it in: each process compiles anew."""
    try:
        return _RoomCache(function, name)
    except RuntimeError:
        return without


class _RoomCache(_FunctionCache):  # type: ignore[misc]
    """A cache whose entries are of one text of this whole room.

    numba looks at the file of a function alone, and would go on with what it compiled of another file's functions
    before they were changed.
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        super().__init__(function)
        self._name = name
        self.enable()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """See numba's. What an earlier version left may name types that there are no more: it is thrown away."""
        try:
            return super().load_overload(sig, target_context)
        except AttributeError:
            self.flush()
            return None

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return (sig, codegen.magic_tuple(), (_text_of_room(), self._name, os.environ.get(CPU)))


@cache
def _text_of_room() -> str:
    text = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        text.update(path.read_bytes())
    return text.hexdigest()
