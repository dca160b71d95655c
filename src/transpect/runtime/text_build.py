"""From the modules of a tower that reads texts whole to the calls of an encoder program.

Axes: P panels, C tokens of a panel, D model, N width, H heads, E head, L longest text.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from torch import nn

from transpect.core.attention import ClippedLinear, NormOfAllHeads, SelfAttention
from transpect.core.embeddings import Embeddings, NoSegmentEmbedding, Scaled, SegmentEmbedding
from transpect.core.feedforward import GluModule, MlpModule
from transpect.core.kernels import Exact
from transpect.core.model import Tower
from transpect.core.norms import OffsetRMSNorm
from transpect.core.summaries import NoSummaries
from transpect.quant import Int8, QuantEmbedding, QuantLinear
from transpect.runtime.kernels import text_attention, texts
from transpect.runtime.known import activation_of, check_known
from transpect.runtime.machine import Calls, Kernel
from transpect.runtime.products import width_of
from transpect.runtime.products.tiles import COLUMNS, ROWS
from transpect.runtime.tables import Turns, added_positions, turns, two_way_bias, two_way_reach
from transpect.runtime.walk import Walk
from transpect.runtime.weights import bound, refused, small, table

Array = Any
NONE = np.zeros((0, 0), np.float32)


class TextRows(NamedTuple):
    """What kernels know of a pass.

    Attributes:
        panels, tokens, texts, spans, longest: how many there are, and the tokens of the longest text; changed in the
            words that kernels read, not here.
        token, type, position: [P·C], of each token its id, its type and its place in its text.
        first, last, text: of each span the first token, the one behind the last, and the number of its text.
        begin: of each text the first token; behind them where the last one ends.
    """

    panels: int
    tokens: int
    texts: int
    spans: int
    longest: int
    token: Array
    type: Array
    position: Array
    first: Array
    last: Array
    text: Array
    begin: Array

    @classmethod
    def of(cls, panels: int) -> TextRows:
        """Arrays for so many panels."""
        tokens, spans = (np.zeros(own * COLUMNS, np.int64) for own in (panels, 2 * panels))
        each = (tokens, spans)
        token, kind, position = (each[0].copy() for _ in range(3))
        first, last, text = (each[1].copy() for _ in range(3))
        return cls(0, 0, 0, 0, 0, token, kind, position, first, last, text, np.zeros(len(tokens) + 1, np.int64))


class TextBuilder(Walk):
    """Collects the calls of one tower, from ids to what its head reads.

    Attributes:
        calls: in their order.
        rows: of the passes.
        x: [P, (D + `ROWS`)·C], the residual stream.

    Args:
        tower: of the model.
        token: its table of tokens.
        d_model: D.
        panels: most panels of a pass.

    Raises:
        ConfigError: something in the tower that there is no kernel for.
    """

    def __init__(self, tower: Tower, token: nn.Module, d_model: int, panels: int) -> None:
        stack = tower.stack
        check_known([stack.layers, stack.final_norm])
        self._panels, self._capacity = panels, panels * COLUMNS
        self.rows = TextRows.of(panels)
        self.calls = Calls(self.rows)
        super().__init__(d_model)
        self._way_in(tower.embeddings, token, stack.positions)
        schemes = [stack.positions, *stack.other_positions]
        of_schemes = [turns(scheme, self._capacity) for scheme in schemes]
        for layer, kind in enumerate(stack.kind_of):
            self._scheme, self._turn = schemes[stack.scheme_of[kind]], of_schemes[stack.scheme_of[kind]]
            self._window = two_way_reach(stack.visibility[kind])
            self._go_through(stack, layer)
        self._norm(stack.final_norm, self.x)

    _turn: Turns

    @property
    def bytes_held(self) -> int:
        """Of buffers."""
        return sum(own.nbytes for pool in self._pool.values() for own in pool)

    def _way_in(self, embeddings: Embeddings, token: nn.Module, scheme: Any) -> None:
        """norm(factor · token + type + position), projected."""
        if not (type(token) is nn.Embedding or (type(token) is QuantEmbedding and token.format == Int8())):
            raise refused(f"the {type(token).__name__} of the tokens")
        if type(embeddings.widen) is not nn.Identity:
            raise refused("token vectors that are projected at once")
        if type(embeddings.segment) not in (SegmentEmbedding, NoSegmentEmbedding):
            raise refused(f"the {type(embeddings.segment).__name__}")
        check_known([embeddings.scale, embeddings.norm, embeddings.project])
        weight = table(token).weight
        width, segment = width_of(weight), embeddings.segment
        types = small(segment.table.weight) if isinstance(segment, SegmentEmbedding) else NONE
        factor = np.float32(embeddings.scale.factor if isinstance(embeddings.scale, Scaled) else 1.0)
        added = added_positions(scheme, width, self._capacity)
        inner = self._buffer(width) if isinstance(embeddings.project, nn.Linear) else self.x
        self._add(texts.look_up_texts, weight, factor, types, added, width, inner)
        self._norm(embeddings.norm, inner)
        if inner is not self.x:
            self._linear(embeddings.project, inner, self.x, more=False)

    def _made(self, width: int) -> Array:
        return np.zeros((self._panels, (width + ROWS) * COLUMNS), np.float32)

    def _add(self, kernel: Kernel, *arguments: Any) -> None:
        self.calls.add(kernel, *arguments)

    def _plus(self, x: Array, out: Array) -> None:
        self._add(texts.add_texts, x, _width(out), out)

    def _body(self, body: nn.Module, x: Array, out: Array, *, more: bool) -> None:
        if type(body) is SelfAttention:
            self._self(body, x, out, more=more)
        elif type(body) is MlpModule:
            inner = self._buffer(body.up.out_features)
            self._linear(body.up, x, inner, more=False, kind=activation_of(body.act))
            self._linear(body.down, inner, out, more=more)
        elif type(body) is GluModule:
            gate, up, kind = bound(body.gate), bound(body.up), activation_of(body.act)
            inner, linear_part = self._buffer(up.width), self._buffer(up.width)
            weights = (gate.weight, gate.bias), (up.weight, up.bias)
            self._add(texts.gated_texts, *weights, up.width, width_of(up.weight), kind, x, linear_part, inner)
            self._linear(body.down, inner, out, more=more)
        else:
            raise refused(f"the branch {type(body).__name__} of a text that is read whole")

    def _self(self, body: SelfAttention, x: Array, out: Array, *, more: bool) -> None:
        if type(body.summaries) is not NoSummaries:
            raise refused("keys that stand for blocks")
        if not isinstance(body.kernel, Exact):
            raise refused(f"the kernel {type(body.kernel).__name__}")
        linears = (body.query, body.key, body.value)
        parts = [bound(linear) for linear in linears]
        query, key, value = outs = [self._buffer(part.width) for part in parts]
        own = ((*part, result) for part, result in zip(parts, outs, strict=True))
        self._add(texts.project_texts, *own, width_of(parts[0].weight), x)
        for linear, result in zip(linears, outs, strict=True):
            self._clip(linear, result)
        self._head_norm(body.query_norm, query, body.head_dim)
        self._head_norm(body.key_norm, key, body.head_dim)
        if len(self._turn[0]):
            self._add(text_attention.turn_texts, *self._turn, body.head_dim, body.heads, query)
            self._add(text_attention.turn_texts, *self._turn, body.head_dim, body.kv_heads, key)
        mixed = self._buffer(parts[0].width)
        shape = body.heads, body.kv_heads, body.head_dim
        scale, cap = np.float32(body.scale), np.float32(0.0 if body.soft_cap is None else body.soft_cap)
        bias = two_way_bias(body.relation, self._scheme, self._capacity, body.heads, body.scale)
        self._add(text_attention.attend_texts, query, key, value, shape, scale, cap, self._window, bias, mixed)
        self._linear(body.out, mixed, out, more=more)

    def _linear(self, linear: nn.Module, x: Array, out: Array, *, more: bool, kind: int = texts.LINEAR) -> None:
        weight, n, bias = bound(linear)
        self._add(texts.linear_texts, weight, n, width_of(weight), bias, kind, x, more, out)
        self._clip(linear, out)

    def _clip(self, linear: nn.Module, out: Array) -> None:
        if isinstance(linear, ClippedLinear | QuantLinear) and linear.clip is not None:
            self._add(texts.clamp_texts, np.float32(linear.clip), linear.out_features, out)

    def _head_norm(self, norm: nn.Module, x: Array, head_dim: int) -> None:
        if isinstance(norm, NormOfAllHeads):
            self._norm(norm.norm, x)
        elif not isinstance(norm, nn.Identity):
            self._norm(norm, x, times=_width(x) // head_dim)

    def _norm(self, norm: nn.Module, x: Array, out: Array | None = None, times: int = 1) -> Array:
        if isinstance(norm, nn.Identity):
            return x
        if not isinstance(norm, nn.LayerNorm | nn.RMSNorm | OffsetRMSNorm):
            raise refused(f"the norm {type(norm).__name__}")
        to = x if out is None else out
        width = _width(x) // times
        weight = np.ones(width, np.float32) if norm.weight is None else small(norm.weight)
        weight += np.float32(isinstance(norm, OffsetRMSNorm))
        bias = getattr(norm, "bias", None)
        shift = np.zeros(width, np.float32) if bias is None else small(bias)
        assert norm.eps is not None, "the norms of this house have one"
        of = np.array([1 / width, norm.eps], np.float32)
        self._add(texts.norm_texts, weight, shift, of, isinstance(norm, nn.LayerNorm), times, x, to)
        return to


def _width(buffer: Array) -> int:
    return int(buffer.shape[1] // COLUMNS - ROWS)
