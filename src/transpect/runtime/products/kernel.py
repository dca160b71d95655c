"""What is written in LLVM's language, as functions that numba's code calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numba import types
from numba.core import cgutils as _untyped
from numba.extending import overload as _untyped_overload

from transpect.runtime.compiling import OPTIONS, intrinsic
from transpect.runtime.products.cpu import Line
from transpect.runtime.products.emit import FLOAT, HALF, I64

_cgutils: Any = _untyped
_UniTuple: Any = types.UniTuple
_overload: Any = _untyped_overload
ARRAYS = 3
"""How many arrays a format of blocks has at most."""
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

    return intrinsic(kernel)


def _place(context: Any, builder: Any, kind: Any, value: Any, row: Any) -> Any:
    own = context.make_array(kind)(context, builder, value)
    stride = _cgutils.unpack_tuple(builder, own.strides)[0]
    return builder.add(builder.ptrtoint(own.data, I64), builder.mul(row, stride))


def _address(context: Any, array: Any, row: Any) -> Any:
    """Of a row of an array."""

    def body(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _place(context, builder, array, *args)

    return types.int64(array, types.int64), body


def _addresses(context: Any, arrays: Any, row: Any) -> Any:
    """Of a row of each array of a tuple; 0 for what there are fewer than `ARRAYS`."""
    result = _UniTuple(types.int64, ARRAYS)

    def body(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values = _cgutils.unpack_tuple(builder, args[0])
        places = [_place(context, builder, *each, args[1]) for each in zip(arrays.types, values, strict=True)]
        return context.make_tuple(builder, result, [*places, *[I64(0)] * (ARRAYS - len(places))])

    return result(arrays, types.int64), body


def _float_of_half(context: Any, bits: Any) -> Any:
    """The float32 of a float16's 16 bits."""

    def body(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fpext(builder.bitcast(args[0], HALF), FLOAT)

    return types.float32(types.uint16), body


float_of_half: Any = intrinsic(_float_of_half)
address: Any = intrinsic(_address)
addresses: Any = intrinsic(_addresses)


def chosen_by_types(function: Callable[..., Any], choice: Callable[..., Any]) -> None:
    """Let ``choice``, from the types of the arguments, say which function of these arguments ``function`` is.

    It is compiled as `compiling.compiled` compiles; a choice of None is a type that there is nothing for.
    """
    _overload(function, jit_options=OPTIONS, strict=False)(choice)


def class_of(kind: Any) -> type | None:
    """The class of a named tuple by its type in numba; None for other types."""
    return getattr(kind, "instance_class", None)
