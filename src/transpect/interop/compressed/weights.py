"""The tensors of such a directory as those of the model in full, and as they are stored where we have their format.

Axes: N out, D in, G groups of a row, g weights of a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transpect.base.errors import CheckpointError
from transpect.interop.compressed import words
from transpect.interop.compressed.scheme import Scheme, scheme_of
from transpect.interop.weights import Weights
from transpect.quant.formats import Format, Int4, Int8, Stored

__all__ = ["CompressedWeights"]

FULL, CODES, SCALE, SHAPE, ZERO = "weight", "weight_packed", "weight_scale", "weight_shape", "weight_zero_point"
ACTIVATIONS = ("input_scale", "input_zero_point", "output_scale", "output_zero_point")


@dataclass(frozen=True)
class _Held:
    module: str
    scheme: Scheme
    shape: tuple[int, int]

    def part(self, name: str) -> str:
        return f"{self.module}.{name}"


class CompressedWeights(Weights):
    """``name.weight`` is what ``name.weight_packed`` and its scales stand for; all else is as it is stored.

    How activations are to be rounded (``input_scale``, or dynamically) is no matter of the weights, and not read:
    a model that was made for 8-bit activations is computed with activations in full.

    Args:
        inner: the tensors of the files.
        schemes: of the config.

    Raises:
        CheckpointError: tensors that do not fit each other or the schemes.
    """

    compressed = True

    def __init__(self, inner: Weights, schemes: Sequence[Scheme]) -> None:
        self._inner = inner
        self._held: dict[str, _Held] = {}
        for name in inner:
            module, _, last = name.rpartition(".")
            scaled = f"{module}.{SCALE}" in inner
            if last == CODES or (last == FULL and scaled and not inner.dtypes[name].is_floating_point):
                self._held[f"{module}.{FULL}"] = self._module(module, name, schemes)
        used = {held.part(each) for held in self._held.values() for each in (FULL, CODES, SCALE, SHAPE, ZERO)}
        used |= {held.part(each) for held in self._held.values() for each in ACTIVATIONS}
        self.shapes = {name: shape for name, shape in inner.shapes.items() if name not in used}
        self.dtypes = {name: inner.dtypes[name] for name in self.shapes}
        floating = [dtype for dtype in self.dtypes.values() if dtype.is_floating_point]
        for name, held in self._held.items():  # scales may be wider than the model is meant to be
            dtype = max(floating, key=lambda each: each.itemsize, default=inner.dtypes[held.part(SCALE)])
            self.shapes[name], self.dtypes[name] = held.shape, dtype

    def _module(self, module: str, codes: str, schemes: Sequence[Scheme]) -> _Held:
        shapes, packed, zero = self._inner.shapes, codes.endswith(CODES), f"{module}.{ZERO}" in self._inner
        if f"{module}.{SCALE}" not in shapes or not self._inner.dtypes[f"{module}.{SCALE}"].is_floating_point:
            raise CheckpointError("packed weights must have scales, which are floating-point numbers", value=module)
        shape = shapes[codes]
        if packed:
            said = self._inner.passing(f"{module}.{SHAPE}") if f"{module}.{SHAPE}" in shapes else torch.empty(0)
            shape = tuple(int(size) for size in said.flatten().tolist())
        scale = shapes[f"{module}.{SCALE}"]
        rows = scale[0] if len(scale) == 2 else shape[:1][0] if shape and scale in ((1,), ()) else -1
        if len(shape) != 2 or len(shapes[codes]) != 2 or not shape[0] == shapes[codes][0] == rows:
            raise CheckpointError(
                "packed weights, their shape and their scales must have as many rows each",
                value=f"{module}: {list(shapes[codes])}, {list(shape)}, {list(scale)}",
            )
        groups = scale[1] if len(scale) == 2 else 1
        kept = torch.int32 if packed else torch.int8
        if self._inner.dtypes[codes] != kept:
            raise CheckpointError(f"codes must be {kept}", value=self._inner.dtypes[codes], remedy=f"See {codes}.")
        scheme = scheme_of(module, schemes, shapes[codes][1], groups, shape, packed=packed, zero=zero)
        if zero:
            rows = words.n_words(shape[0], scheme.bits) if packed else shape[0]
            if shapes[f"{module}.{ZERO}"] not in ((rows, groups), (groups,) if rows == 1 else ()):
                raise CheckpointError(
                    "the codes of zero must be as many as the scales",
                    value=f"{module}: {list(shapes[f'{module}.{ZERO}'])} for {list(scale)}",
                )
        return _Held(module, scheme, (shape[0], shape[1]))

    def __getitem__(self, name: str) -> Tensor:
        return self.passing(name).to(self.dtypes[name]) if name in self._held else self._inner[name]

    def passing(self, name: str, rows: slice = slice(None)) -> Tensor:
        if name not in self._held:
            return self._inner.passing(name, rows)
        codes, zero, scale = (part[rows] for part in self._parts(self._held[name]))
        wide = torch.promote_types(scale.dtype, torch.float32)
        grouped = codes.view(*scale.shape, -1).to(wide)  # [N, G, g]
        return ((grouped - zero.to(wide)[..., None]) * scale.to(wide)[..., None]).flatten(1)

    def copy(self, name: str, dtype: torch.dtype, device: torch.device) -> Tensor:
        if name not in self._held:
            return self._inner.copy(name, dtype, device)
        return self.passing(name).to(device=device, dtype=dtype)

    def stored(self, name: str) -> tuple[Format, Stored] | None:
        held = self._held.get(name)
        if held is None:
            return None
        codes, zero, scale = self._parts(held)
        scheme, D = held.scheme, held.shape[1]
        if scheme.bits == 8 and scheme.symmetric and scale.dtype != torch.float64:
            return Int8(scheme.group), {"packed": codes, "scale": scale.float()}
        half = scale.half()
        if scheme.bits != 4 or (scheme.group or D) % 2 or not torch.equal(half.to(scale.dtype), scale):
            return None  # restored: no format of ours has these numbers
        shifted = (codes + 8).view(torch.uint8)
        stored = {"packed": shifted[:, 0::2] | shifted[:, 1::2] << 4, "scale": half}
        middle = torch.empty(0, 0, dtype=torch.uint8) if scheme.symmetric else (zero + 8).view(torch.uint8)
        return Int4(scheme.group or D, symmetric=scheme.symmetric), {**stored, "zero": middle}

    def _parts(self, held: _Held) -> tuple[Tensor, Tensor, Tensor]:
        """Codes int8 [N, D], the codes of zero int8 [N, G], and scales [N, G]."""
        scheme, (N, D) = held.scheme, held.shape
        scale = self._inner.passing(held.part(SCALE)).clone().reshape(-1, scheme.groups(D)).expand(N, -1)
        zero = torch.zeros(scale.shape, dtype=torch.int8)
        if not scheme.packed:
            codes = self._inner.passing(held.part(FULL)).clone()
            if not scheme.symmetric:
                zero = self._inner.passing(held.part(ZERO)).clone().to(torch.int8).expand(scale.shape)
            return codes, zero, scale
        if not scheme.symmetric:
            columns = self._inner.passing(held.part(ZERO)).reshape(-1, scale.shape[1]).t()  # [G, words]
            zero = _signed(words.unpack(columns, scheme.bits, N), scheme.bits).t().contiguous()
        return _signed(words.unpack(self._inner.passing(held.part(CODES)), scheme.bits, D), scheme.bits), zero, scale


def _signed(numbers: Tensor, bits: int) -> Tensor:
    """0 … 2ᵇ − 1 as −2ᵇ⁻¹ … 2ᵇ⁻¹ − 1 in int8."""
    return (numbers.to(torch.int16) - (1 << bits - 1)).to(torch.int8)
