"""What is written in LLVM's language, as functions that numba's code calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
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
"""How many arrays a format of weights or of activations has at most."""
ARGUMENTS = 3 * ARRAYS + 4
"""Of the functions that `kernel_of` makes for `pair`."""
Emit = Callable[[Any, Line, int, Sequence[Any]], None]


def kernel_of(name: str, emit: Emit, line: Line, rows: int, count: int = ARGUMENTS) -> Any:
    """A function of a tuple of ``count`` integers that returns nothing; ``emit`` says what it does.

    For `pair` the integers are the addresses of two rows of weights in each of the format's arrays, those of the first
    row of activations, how many bytes there are from one of these to the next, how long rows are, and where the results
    of both rows of weights go. In a module it is there once, by its name, however often it is called.
    """
    of = ir.FunctionType(ir.VoidType(), [I64] * count)
    name = f"transpect.{name}.{line.name}.{rows}"

    def written(module: Any) -> Any:
        if name in module.globals:
            return module.globals[name]
        function = ir.Function(module, of, name)
        function.linkage = "linkonce_odr"
        function.attributes.add("noinline")
        builder = ir.IRBuilder(function.append_basic_block())
        emit(builder, line, rows, function.args)
        builder.ret_void()
        return function

    def kernel(context: Any, arguments: Any) -> Any:
        def body(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.call(written(builder.module), _cgutils.unpack_tuple(builder, args[0]))
            return context.get_dummy_value()

        return types.void(_UniTuple(types.int64, count)), body

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
    """Of a row of each array in a tuple; 0 for what there are fewer than `ARRAYS`.

    Taken out one by one, arrays would be counted as used, which is longer than many a product.
    """
    result = _UniTuple(types.int64, ARRAYS)

    def body(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        items = zip(arrays.types, _cgutils.unpack_tuple(builder, args[0]), strict=True)
        places = [_place(context, builder, *item, args[1]) for item in items if isinstance(item[0], types.Array)]
        return context.make_tuple(builder, result, [*places, *[I64(0)] * (ARRAYS - len(places))])

    return result(arrays, types.int64), body


def _width(context: Any, arrays: Any) -> Any:
    """How long the rows of a tuple's first array are."""

    def body(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first = _cgutils.unpack_tuple(builder, args[0])[0]
        own = context.make_array(arrays.types[0])(context, builder, first)
        return _cgutils.unpack_tuple(builder, own.shape)[1]

    return types.int64(arrays), body


def _float_of_half(context: Any, bits: Any) -> Any:
    """The float32 of a float16's 16 bits."""

    def body(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fpext(builder.bitcast(args[0], HALF), FLOAT)

    return types.float32(types.uint16), body


float_of_half: Any = intrinsic(_float_of_half)
address: Any = intrinsic(_address)
addresses: Any = intrinsic(_addresses)
width: Any = intrinsic(_width)


def chosen_by_types(function: Callable[..., Any], choice: Callable[..., Any]) -> None:
    """Let ``choice``, from the types of the arguments, say which function of these arguments ``function`` is.

    A choice of None is a type that there is nothing for. It becomes part of what calls it: an array is five words, and
    to pass tuples of them on takes longer than many a product.
    """
    _overload(function, jit_options={**OPTIONS, "forceinline": True}, strict=False)(choice)


def class_of(kind: Any) -> type | None:
    """The class of a named tuple by its type in numba; None for other types."""
    return getattr(kind, "instance_class", None)
