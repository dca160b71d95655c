"""From the modules of a tower to the calls of a decode program.

Axes: R rows, D model, N width, H heads, K key-value heads, E head, S capacity, V vocabulary.

A program is a table of calls, each a kernel bound to weights and buffers. What no kernel is known for is refused by
name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from transpect.core.attention import Attention, ClippedLinear, CrossAttention, NormOfAllHeads, SelfAttention
from transpect.core.blocks import Stack
from transpect.core.embeddings import Embeddings, Scaled
from transpect.core.feedforward import GluModule, MlpModule
from transpect.core.heads import CausalLMHead, Projection, SoftCap
from transpect.core.kernels import Exact
from transpect.core.norms import OffsetRMSNorm
from transpect.core.summaries import NoSummaries
from transpect.quant import QuantLinear, QuantProjection
from transpect.runtime import kernels
from transpect.runtime.known import activation_of, check_known, only_tokens
from transpect.runtime.machine import Calls, Kernel
from transpect.runtime.memory import Memory
from transpect.runtime.products import activations, room_for, width_of, words
from transpect.runtime.tables import Turns, added_positions, distance_bias, reach, turns
from transpect.runtime.walk import Walk
from transpect.runtime.weights import NO_BIAS, Bound, bound, refused, small, stored, table

Array = Any


class Rows(NamedTuple):
    """What kernels know of a pass.

    Attributes:
        n: R; changed in the words that kernels read, not here.
        token: [most rows], the id that each row reads.
        sequence: which one it is of.
        position: its place there.
        first: the first place there that it sees.
        source: where the keys of its source are.
    """

    n: int
    token: Array
    sequence: Array
    position: Array
    first: Array
    source: Array

    @classmethod
    def of(cls, most: int) -> Rows:
        """Arrays for so many rows."""
        return cls(0, *(np.zeros(most, np.int64) for _ in range(5)))


@dataclass(frozen=True)
class Room:
    """How large things are.

    Attributes:
        rows: most rows of a pass; a multiple of eight, or of `ROWS` where they are many.
        memory: where keys and values lie.
        capacity: S.
        sources: how long the longest source is; 0 where there is none.
        many: whether passes are of many rows. Products then bring weights to panels first, and `Builder` is given
            whose keys and values they are.
    """

    rows: int
    memory: Memory
    capacity: int
    sources: int
    many: bool = False

    @property
    def sequences(self) -> int:
        """B."""
        return len(self.memory.numbers)


class Builder(Walk):
    """Collects the calls of one tower.

    Attributes:
        calls: in their order.
        layers: how many calls there are when each layer is done.
        rows: of the passes.
        x: [R, D] the residual stream.
        keys, values: for each layer [N, K, P, E], of tokens.
        source_keys, source_values: for each layer with cross-attention, of the source.
        source_last: [B], the place of each source's last token.
        looks_up: whether the calls begin with the tokens; otherwise a pass begins with vectors in x.

    Args:
        held: another builder of this tower, whose keys and values are these.

    Raises:
        ConfigError: something in the tower that there is no kernel for.
    """

    def __init__(
        self,
        stack: Stack,
        embeddings: Embeddings,
        token: nn.Module,
        d_model: int,
        room: Room,
        held: Builder | None = None,
    ) -> None:
        check_known([stack.layers, stack.final_norm])
        self.room, self.stack, self._held = room, stack, held
        self.rows = Rows.of(room.rows)
        self.calls, self.layers = Calls(self.rows), list[int]()
        self._integers: dict[tuple[type, int], Any] = {}
        self._scores: dict[tuple[int, ...], Array] = {}
        super().__init__(d_model)
        self.keys: list[Array] = []
        self.values: list[Array] = []
        self.source_keys: dict[int, Array] = {}
        self.source_values: dict[int, Array] = {}
        self.source_last = np.zeros(room.sequences, np.int64)
        self.looks_up = only_tokens(token, embeddings)
        if self.looks_up:
            factor = np.float32(embeddings.scale.factor if isinstance(embeddings.scale, Scaled) else 1.0)
            self._add(kernels.look_up, table(token).weight, factor, self.x)
            added = added_positions(stack.positions, d_model, room.capacity)
            if len(added):
                self._add(kernels.add_position, added, self.x)
        schemes = [stack.positions, *stack.other_positions]
        self._turns = [turns(scheme, room.capacity) for scheme in schemes]
        for layer, kind in enumerate(stack.kind_of):
            self._layer, self._scheme = layer, schemes[stack.scheme_of[kind]]
            self._turn: Turns = self._turns[stack.scheme_of[kind]]
            self._window = reach(stack.visibility[kind])
            self._go_through(stack, layer)
            self.layers.append(len(self.calls))
        self._norm(stack.final_norm, self.x)

    def head(self, head: CausalLMHead, token: nn.Module) -> Array:
        """Instructions from the residual stream to logits [R, V]."""
        check_known([head])
        x = self.x
        if isinstance(head.narrow, nn.Linear):
            x = self._buffer(head.narrow.out_features)
            self._linear(head.narrow, self.x, x, more=False)
        weight, n, bias = self._vocabulary(head.project, token)
        logits = self._buffer(n)
        factor = np.float32(head.rescale.factor if isinstance(head.rescale, Scaled) else 1.0)
        cap = np.float32(head.cap.cap if isinstance(head.cap, SoftCap) else 0.0)
        self._product(Bound(weight, n), x, logits, more=False)
        if factor != 1 or len(bias) or cap:
            self._add(kernels.finish, factor, bias, cap, n, logits)
        return logits

    def _vocabulary(self, project: nn.Module, token: nn.Module) -> Bound:
        """What a head multiplies by: a table of its own, or the tokens' one."""
        if isinstance(project, QuantProjection):
            return bound(project.linear)
        assert isinstance(project, Projection)
        weight, n, _ = table(token) if project.weight is None else Bound(stored(project.weight), len(project.weight))
        return Bound(weight, n, NO_BIAS if project.bias is None else small(project.bias))

    def _read_as(self, weight: Any, x: Array) -> Any:
        """Rows x as the product with a weight reads them: as they are, or brought to integers by a call."""
        kind = (type(weight), x.shape[1])
        if kind not in self._integers:
            self._integers[kind] = (words if self.room.many else activations)(weight, self.room.rows)
        to = self._integers[kind]
        if to is None:
            return x
        self._add(kernels.to_integers, x, width_of(weight), to)
        return to

    def _made(self, width: int) -> Array:
        return np.zeros((self.room.rows, width + kernels.PAD), np.float32)

    def _product(self, linear: Bound, x: Array, out: Array, *, more: bool) -> None:
        """out ← x·Wᵀ + b, or out + that."""
        weight, width, bias = linear
        own = self._read_as(weight, x)
        if self.room.many:
            self._add(kernels.linear_many, weight, width, bias, own, more, room_for(weight), out)
        else:
            self._add(kernels.linear, weight, width, bias, own, more, out)

    def _add(self, kernel: Kernel, *arguments: Any) -> None:
        self.calls.add(kernel, *arguments)

    def _plus(self, x: Array, out: Array) -> None:
        self._add(kernels.add, x, out)

    def _body(self, body: nn.Module, x: Array, out: Array, *, more: bool) -> None:
        if type(body) is SelfAttention:
            self._self(body, x, out, more=more)
        elif type(body) is CrossAttention:
            self._cross(body, x, out, more=more)
        elif type(body) is MlpModule:
            width, kind = body.up.out_features, activation_of(body.act)
            inner = self._buffer(width)
            self._linear(body.up, x, inner, more=False)
            self._add(kernels.activated, kind, width, inner)
            self._linear(body.down, inner, out, more=more)
        elif type(body) is GluModule:
            gate, up, kind = bound(body.gate), bound(body.up), activation_of(body.act)
            inner, linear_part = self._buffer(up.width), self._buffer(up.width)
            if type(gate.weight) is type(up.weight) and not self.room.many:
                weights = (gate.weight, gate.bias, up.weight, up.bias)
                self._add(kernels.gated, *weights, up.width, kind, self._read_as(up.weight, x), linear_part, inner)
            else:
                self._linear(body.gate, x, inner, more=False)
                self._linear(body.up, x, linear_part, more=False)
                self._add(kernels.gate, kind, up.width, linear_part, inner)
            self._linear(body.down, inner, out, more=more)
        else:
            raise refused(f"the branch {type(body).__name__}")

    def _self(self, body: SelfAttention, x: Array, out: Array, *, more: bool) -> None:
        if type(body.summaries) is not NoSummaries:
            raise refused("keys that stand for blocks")
        parts = [bound(linear) for linear in (body.query, body.key, body.value)]
        query, key, value = outs = [self._buffer(part.width) for part in parts]
        if len({type(part.weight) for part in parts}) == 1 and not self.room.many:
            bound_to = ((*part, out) for part, out in zip(parts, outs, strict=True))
            self._add(kernels.project, *bound_to, self._read_as(parts[0].weight, x))
        else:
            for part, result in zip(parts, outs, strict=True):
                self._product(part, x, result, more=False)
        for linear, result in ((body.query, query), (body.key, key), (body.value, value)):
            self._clip(linear, result)
        self._head_norm(body.query_norm, query, body.head_dim)
        self._head_norm(body.key_norm, key, body.head_dim)
        memory = self.room.memory
        shape = (memory.size, body.kv_heads, memory.block, body.head_dim)
        if self._held is None:
            keys, values = _to_read_behind(shape), _to_read_behind(shape)
        else:
            keys, values = self._held.keys[len(self.keys)], self._held.values[len(self.keys)]
        self.keys.append(keys)
        self.values.append(values)
        self._add(kernels.place, *self._turn, body.query.out_features, query, key, value, keys, values, memory.numbers)
        bias = distance_bias(body.relation, self._scheme, memory.span, body.heads, body.scale)
        self._linear(body.out, self._attend(body, query, keys, values, bias), out, more=more)

    def _cross(self, body: CrossAttention, x: Array, out: Array, *, more: bool) -> None:
        query = self._buffer(body.query.out_features)
        self._linear(body.query, x, query, more=False)
        self._head_norm(body.query_norm, query, body.head_dim)
        shape = (self.room.sequences, body.kv_heads, max(1, self.room.sources), body.head_dim)
        keys, values = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self.source_keys[self._layer], self.source_values[self._layer] = keys, values
        scores, mixed = self._room_to_attend(body, query, keys.shape[2])
        scale, cap = _scale_and_cap(body)
        self._add(kernels.attend_source, query, keys, values, self.source_last, scale, cap, scores, mixed)
        self._linear(body.out, mixed, out, more=more)

    def _attend(self, body: Attention, query: Array, keys: Array, values: Array, bias: Array) -> Array:
        """Attention over keys up to each row's position: [R, H·E]."""
        memory = self.room.memory
        scale, cap = _scale_and_cap(body)
        arguments = query, keys, values, memory.numbers, self._window, scale, cap, bias
        if self.room.many:
            self._check_kernel(body)
            mixed = self._buffer(query.shape[1] - kernels.PAD)
            self._add(kernels.attend_many, *arguments, body.heads, mixed)
        else:
            scores, mixed = self._room_to_attend(body, query, memory.span)
            self._add(kernels.attend, *arguments, scores, mixed)
        return mixed

    def _room_to_attend(self, body: Attention, query: Array, most: int) -> tuple[Array, Array]:
        self._check_kernel(body)
        shape = (self.room.rows, body.heads, most)
        if shape not in self._scores:  # layers work one after another
            self._scores[shape] = np.zeros(shape, np.float32)
        return self._scores[shape], self._buffer(query.shape[1] - kernels.PAD)

    def _check_kernel(self, body: Attention) -> None:
        if not isinstance(body.kernel, Exact):
            raise refused(f"the kernel {type(body.kernel).__name__}")

    def _linear(self, linear: nn.Linear, x: Array, out: Array, *, more: bool) -> None:
        self._product(bound(linear), x, out, more=more)
        self._clip(linear, out)

    def _clip(self, linear: nn.Module, out: Array) -> None:
        if isinstance(linear, ClippedLinear | QuantLinear) and linear.clip is not None:
            self._add(kernels.clamp, np.float32(linear.clip), linear.out_features, out)

    def _head_norm(self, norm: nn.Module, x: Array, head_dim: int) -> None:
        if isinstance(norm, NormOfAllHeads):
            self._norm(norm.norm, x)
        elif not isinstance(norm, nn.Identity):
            self._norm(norm, x, times=(x.shape[1] - kernels.PAD) // head_dim)

    def _norm(self, norm: nn.Module, x: Array, out: Array | None = None, times: int = 1) -> Array:
        """out ← norm(x), in place without ``out``; what holds the result: x itself where there is no norm."""
        if isinstance(norm, nn.Identity):
            return x
        to = x if out is None else out
        if isinstance(norm, nn.LayerNorm):
            width = norm.normalized_shape[0]
            weight = np.ones(width, np.float32) if norm.weight is None else small(norm.weight)
            bias = np.zeros(width, np.float32) if norm.bias is None else small(norm.bias)
            eps = float(norm.eps)
            self._add(kernels.layer_norm, weight, bias, eps, times, x, to)
        elif isinstance(norm, nn.RMSNorm | OffsetRMSNorm):
            assert norm.eps is not None, "the norms of this house have one"
            scale, epsilon = small(norm.weight) + np.float32(isinstance(norm, OffsetRMSNorm)), float(norm.eps)
            self._add(kernels.rms_norm, scale, epsilon, times, x, to)
        else:
            raise refused(f"the norm {type(norm).__name__}")
        return to


def _to_read_behind(shape: tuple[int, ...]) -> Array:
    """Zeros with room behind them, see `kernels.BEHIND`."""
    size = math.prod(shape)
    return np.zeros(size + kernels.BEHIND * shape[-1] + kernels.PAD, np.float32)[:size].reshape(shape)


def _scale_and_cap(body: Attention) -> tuple[Any, Any]:
    return np.float32(body.scale), np.float32(0.0 if body.soft_cap is None else body.soft_cap)
