"""Modules whose weights are stored in a format: linear maps, the token table, and the projection to the vocabulary.

Axes: N out, D in, V vocabulary, W width of a token vector, G groups of a row.

``forward`` restores the weights and multiplies: slow, and the definition of what faster products must give.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from transpect.base.errors import ConfigError
from transpect.quant.formats import Format, GgufBlocks, Int4, Int8, Stored


class Quantised(nn.Module):
    """A matrix [N, D] in a format, as buffers; it follows `.to(device)`, and a dtype only in what it gives back."""

    format: Format

    def __init__(self, format: Format, n_rows: int, d_in: int, stored: Stored | None, name: str) -> None:
        super().__init__()
        format.check(d_in, name)
        self.format, self.shape = format, (n_rows, d_in)
        empty = format.empty(n_rows, d_in)
        given = empty if stored is None else stored
        self._stored = tuple(empty)
        for key, like in empty.items():
            value = given.get(key)
            if value is None or value.shape != like.shape or value.dtype != like.dtype:
                got = "nothing" if value is None else f"{list(value.shape)} of {value.dtype}"
                raise ConfigError(f"`{key}` of `{name}` must be {list(like.shape)} of {like.dtype}", value=got)
            self.register_buffer(key, value)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Quantised:
        held = self.stored()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for key, before in held.items():
            after = self._buffers[key]
            assert after is not None
            if after.dtype != before.dtype:  # a scale has the dtype of its format
                self._buffers[key] = before.to(after.device)
        return self

    def stored(self) -> Stored:
        """The buffers by name."""
        return {key: getattr(self, key) for key in self._stored}

    def dequantised(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The weights [N, D] that the buffers stand for."""
        return self.format.unpack(self.stored()).to(dtype)


class QuantLinear(Quantised):
    """x Wᵀ + bias, [..., D] -> [..., N]. Build a child by `quant_linear`.

    There is no ``weight``: what reads one must be told of formats.

    Attributes:
        in_features, out_features: D and N.
        bias: [N], or None.
        clip: results are held within ±clip; None leaves them (see `ClippedLinear`).
    """

    bias: nn.Parameter | None
    takes: ClassVar[type[Format]]

    def __init__(
        self,
        format: Format,
        in_features: int,
        out_features: int,
        bias: nn.Parameter | None = None,
        stored: Stored | None = None,
        *,
        clip: float | None = None,
        name: str = "linear",
    ) -> None:
        assert isinstance(format, self.takes)
        super().__init__(format, out_features, in_features, stored, name)
        self.in_features, self.out_features, self.clip = in_features, out_features, clip
        self.register_parameter("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        out = functional.linear(x, self.dequantised(x.dtype), self.bias)
        return out if self.clip is None else out.clamp(-self.clip, self.clip)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, {self.format}, bias={self.bias is not None}"


class Int8Linear(QuantLinear):
    """``packed`` int8 [N, D], ``scale`` float32 [N, G]; w = q·scale."""

    takes = Int8
    packed: Tensor
    scale: Tensor


class Int4Linear(QuantLinear):
    """``packed`` uint8 [N, D/2], ``scale`` float16 [N, G], ``zero`` uint8 [N, G] or empty; w = (q − zero)·scale."""

    takes = Int4
    packed: Tensor
    scale: Tensor
    zero: Tensor


class BlocksLinear(QuantLinear):
    """``packed`` uint8 [N, bytes of a row], exactly as in a GGUF file; may be a view of the file."""

    takes = GgufBlocks
    packed: Tensor


_CLASSES: tuple[type[QuantLinear], ...] = (Int8Linear, Int4Linear, BlocksLinear)


def quant_linear(
    format: Format,
    in_features: int,
    out_features: int,
    bias: nn.Parameter | None = None,
    stored: Stored | None = None,
    *,
    clip: float | None = None,
    name: str = "linear",
) -> QuantLinear:
    """The module for a format.

    Args:
        format: of the weights.
        in_features, out_features: D and N.
        bias: [N].
        stored: the buffers by name, as `Format.pack` gives them; None leaves them to be filled.
        clip: holds results within ±clip.
        name: of the layer, for messages.

    Raises:
        ConfigError: D is no multiple of the format's block, or a buffer has another shape or dtype.
    """
    build = next(child for child in _CLASSES if isinstance(format, child.takes))
    return build(format, in_features, out_features, bias, stored, clip=clip, name=name)


class QuantEmbedding(Quantised):
    """The token table [V, W] in a format: ids [...] -> [..., W].

    Args:
        format: of the table.
        num_embeddings, embedding_dim: V and W.
        stored: the buffers by name.
        dtype: of the vectors; `.to(dtype)` changes it.
    """

    like: Tensor

    def __init__(
        self,
        format: Format,
        num_embeddings: int,
        embedding_dim: int,
        stored: Stored | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        name: str = "token",
    ) -> None:
        super().__init__(format, num_embeddings, embedding_dim, stored, name)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        device = next(iter(self.stored().values())).device
        self.register_buffer("like", torch.empty(0, dtype=dtype, device=device), persistent=False)

    @property
    def weight(self) -> Tensor:
        """The restored table [V, W]: what a tied head multiplies by."""
        return self.dequantised(self.like.dtype)

    def forward(self, ids: Tensor) -> Tensor:
        rows = {key: value if value.numel() == 0 else value[ids.flatten()] for key, value in self.stored().items()}
        return self.format.unpack(rows).to(self.like.dtype).view(*ids.shape, -1)


class QuantProjection(nn.Module):
    """Hidden [..., W] -> vocabulary [..., V] by a weight of its own in a format (see `core.heads.Projection`)."""

    def __init__(self, linear: QuantLinear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, hidden: Tensor, table: Tensor) -> Tensor:
        out: Tensor = self.linear(hidden)
        return out
