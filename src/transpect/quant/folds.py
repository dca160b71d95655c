"""Where columns of linear layers can be scaled so that the model computes what it did: what gives them their input is
divided by the same.

Axes: N out, D in, H heads, K key-value heads, E head.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from transpect.core.attention import ClippedLinear, CrossAttention, SelfAttention
from transpect.core.blocks import Branch, Layer, Step
from transpect.core.feedforward import GluModule, MlpModule
from transpect.core.moe import MoeModule
from transpect.core.norms import OffsetRMSNorm
from transpect.core.summaries import NoSummaries

__all__ = ["Fold", "folds"]


@dataclass(frozen=True)
class Fold:
    """Attributes:
    writer: a norm or a linear layer, to whose output alone the readers listen, or heads of it mixed by attention.
    readers: all linear layers that read it.
    heads: H, K and E where attention stands between; then a scale is the same for all heads that read one.
    """

    writer: nn.Module
    readers: tuple[nn.Linear, ...]
    heads: tuple[int, int, int] | None = None

    def shared(self, x: Tensor) -> Tensor:
        """[D] with the mean of what must have one scale in each place."""
        if self.heads is None:
            return x
        H, K, E = self.heads
        grouped = x.view(K, H // K, E)
        return grouped.mean(1, keepdim=True).expand_as(grouped).reshape(-1)

    @torch.no_grad()
    def apply(self, scale: Tensor) -> None:
        """Multiply the columns of the readers by [D], and divide what is written by it."""
        for reader in self.readers:
            reader.weight.mul_(scale.to(reader.weight))
        if self.heads is not None:
            H, K, E = self.heads
            scale = scale.view(K, H // K, E)[:, 0].reshape(-1)  # [K·E]
        writer = self.writer
        if isinstance(writer, OffsetRMSNorm):
            writer.weight.copy_((1 + writer.weight) / scale.to(writer.weight) - 1)
            return
        assert isinstance(writer, nn.LayerNorm | nn.RMSNorm | nn.Linear)
        divisor = scale.to(writer.weight)
        writer.weight.div_(divisor[:, None] if isinstance(writer, nn.Linear) else divisor)
        bias = getattr(writer, "bias", None)
        if bias is not None:
            bias.div_(divisor)


def folds(layer: Layer) -> Iterator[Fold]:
    """The folds of a layer in full weights, in the order in which its parts are computed. They do not touch each other.

    A norm that is added to the residual stream itself, a nonlinear activation before the readers (except ReLU), results
    that are clipped, and norms on values have none.
    """
    for step in layer.steps.values():
        assert isinstance(step, Step)
        branches = [branch for branch in step.branches.values() if isinstance(branch, Branch)]
        yield from _after(step.before, [branch.body for branch in branches])
        for branch in branches:
            yield from _after(branch.before, [branch.body])
            yield from _inside(branch.body)


def _after(norm: nn.Module, bodies: list[nn.Module]) -> Iterator[Fold]:
    if not isinstance(norm, nn.LayerNorm | nn.RMSNorm | OffsetRMSNorm) or norm.weight is None:
        return
    readers = [_readers(body) for body in bodies]
    if all(readers):
        yield Fold(norm, tuple(reader for each in readers for reader in each))


def _readers(body: nn.Module) -> tuple[nn.Linear, ...]:
    """All linear layers that read what a branch is given; none where something else may read it too."""
    if type(body) is SelfAttention and isinstance(body.summaries, NoSummaries):
        return _linear(body.query, body.key, body.value)
    if type(body) is CrossAttention:
        return _linear(body.query)
    if isinstance(body, GluModule):
        return _linear(body.gate, body.up)
    if isinstance(body, MlpModule):
        return _linear(body.up)
    if isinstance(body, MoeModule):
        experts = [_readers(expert) for expert in body.experts]
        return _linear(body.router, *(reader for each in experts for reader in each)) if all(experts) else ()
    return ()


def _linear(*modules: nn.Module) -> tuple[nn.Linear, ...]:
    """These, if all are in full."""
    found = tuple(module for module in modules if isinstance(module, nn.Linear))
    return found if len(found) == len(modules) else ()


def _inside(body: nn.Module) -> Iterator[Fold]:
    if isinstance(body, MoeModule):
        for expert in body.experts:
            yield from _inside(expert)
    elif type(body) is SelfAttention and isinstance(body.summaries, NoSummaries):
        if not isinstance(body.value, ClippedLinear) and _linear(body.value, body.out):
            yield Fold(body.value, _linear(body.out), (body.heads, body.kv_heads, body.head_dim))
    elif (isinstance(body, GluModule) or (isinstance(body, MlpModule) and body.act is functional.relu)) and _linear(
        body.up, body.down
    ):
        yield Fold(body.up, _linear(body.down))
