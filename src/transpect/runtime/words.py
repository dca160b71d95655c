"""Values as 64-bit words: how a kernel's arguments stand in a table, and the code that reads them there."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.np.arrayobj import populate_array as _populate_array

from transpect.runtime.compiling import intrinsic

_WORD = ir.IntType(64)
populate_array: Any = _populate_array
_TUPLE: Any = types.BaseTuple


def packed(value: Any) -> list[int]:
    """A value as 64-bit words: numbers by their bits, arrays by address and shape, tuples one item after another."""
    if isinstance(value, tuple):
        return [word for item in value for word in packed(item)]
    if isinstance(value, np.ndarray):
        assert value.flags.c_contiguous, "arrays are bound by address and shape alone"
        return [value.ctypes.data, *value.shape]
    if isinstance(value, float | np.floating):
        return [int(np.array(value, np.float64).view(np.int64))]
    return [int(value)]


def kind_of(value: Any) -> Any:
    """What compiled code depends on: values of one kind are of one type to numba, which takes ten times as long to
    say which."""
    if isinstance(value, tuple):
        return type(value), *map(kind_of, value)
    if isinstance(value, np.ndarray):
        return value.dtype, value.ndim, value.flags.writeable, value.flags.aligned
    return type(value)


@intrinsic
def unpacked(context: Any, line: Any, kind: Any) -> Any:
    """The reverse of `packed`."""
    wanted = kind.instance_type

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _Reader(context, builder, args[0]).value(wanted)

    return wanted(line, kind), emit


class _Reader:
    """Emits the code that reads values from words."""

    def __init__(self, context: Any, builder: Any, words: Any) -> None:
        self._context, self._builder, self._words, self._at = context, builder, words, 0

    def _word(self) -> Any:
        place = self._builder.gep(self._words, [_WORD(self._at)])
        self._at += 1
        return self._builder.load(place)

    def value(self, kind: Any) -> Any:
        context, builder = self._context, self._builder
        if isinstance(kind, _TUPLE):
            return context.make_tuple(builder, kind, [self.value(item) for item in kind])
        if isinstance(kind, types.Array):
            return self._array(kind)
        word = self._word()
        if isinstance(kind, types.Float):
            wide = builder.bitcast(word, ir.DoubleType())
            return context.cast(builder, wide, types.float64, kind)
        return context.cast(builder, word, types.int64, kind)

    def _array(self, kind: Any) -> Any:
        context, builder = self._context, self._builder
        array = context.make_array(kind)(context, builder)
        size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
        data = builder.inttoptr(self._word(), array.data.type)
        shape = [self._word() for _ in range(kind.ndim)]
        strides, stride = list[Any](), _WORD(size)
        for length in reversed(shape):
            strides.insert(0, stride)
            stride = builder.mul(stride, length)
        populate_array(array, data=data, shape=shape, strides=strides, itemsize=_WORD(size), meminfo=None)
        return array._getvalue()
