"""What is written in LLVM's language, as functions that numba's code calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numba import types
from numba.core import cgutils as _untyped
from numba.extending import intrinsic as _untyped_intrinsic
from numba.extending import overload as _untyped_overload

from transpect.runtime.products.cpu import Line
from transpect.runtime.products.emit import I64

_cgutils: Any = _untyped
_intrinsic: Any = _untyped_intrinsic
_overload: Any = _untyped_overload
_FREE: dict[str, Any] = {"fastmath": {"reassoc", "contract", "arcp", "nsz"}, "boundscheck": False}
Emit = Callable[[Any, Line, int, Sequence[Any]], None]


def kernel_of(emit: Emit, line: Line, rows: int, kinds: Sequence[Any]) -> Any:
    """A function of numbers that returns nothing: ``emit`` says what it does."""

    def kernel(context: Any, arguments: Any) -> Any:
        def body(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            numbers = [
                context.cast(builder, value, given, wanted)
                for value, given, wanted in zip(
                    _cgutils.unpack_tuple(builder, args[0]), signature.args[0], kinds, strict=True
                )
            ]
            emit(builder, line, rows, numbers)
            return context.get_dummy_value()

        return types.void(arguments), body

    return _intrinsic(kernel)


def _address(context: Any, array: Any, row: Any) -> Any:
    """Of a row of an array."""

    def body(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        own = context.make_array(array)(context, builder, args[0])
        stride = _cgutils.unpack_tuple(builder, own.strides)[0]
        return builder.add(builder.ptrtoint(own.data, I64), builder.mul(args[1], stride))

    return types.int64(array, types.int64), body


address: Any = _intrinsic(_address)


def chosen_by_types(function: Callable[..., Any], choice: Callable[..., Any]) -> None:
    """Let ``choice``, from the types of the arguments, say which function of these arguments ``function`` is.

    It is compiled as `numeric.compiled` compiles; a choice of None is a type that there is nothing for.
    """
    _overload(function, jit_options=_FREE, strict=False)(choice)


def class_of(kind: Any) -> type | None:
    """The class of a named tuple by its type in numba; None for other types."""
    return getattr(kind, "instance_class", None)
