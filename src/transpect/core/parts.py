"""A model whose branches several processes share out: which part of each weight one of them has (Shoeybi et al. 2019,
"Megatron-LM", §3).

Each process has some heads of an attention and some inner features of a feed-forward, so that the output of a branch is
the sum over processes of what the parts give. What is between branches (norms, the residual stream, embeddings, the
head) each has whole, and computes alike. A layer asks for one sum a branch, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from transpect.base.errors import ConfigError
from transpect.core.attention import Attention, NormOfEachHead
from transpect.core.blocks import Step
from transpect.core.config import ModelConfig
from transpect.core.feedforward import GluModule, MlpModule
from transpect.core.kernels import Exact
from transpect.core.model import Transformer
from transpect.core.moe import MoeModule
from transpect.core.positions.t5 import BucketRelation, SharedTable

__all__ = ["check_parts", "keep_part"]

_BY_HEADS = ("query", "key", "value", "query_global", "key_global", "value_global")
_WITHOUT_HEADS = ("learned", "none", "repeated_block", "rope", "sinusoidal", "t5")
"""Positions that all heads have alike; and those of a table by heads, which is cut."""


def check_parts(config: ModelConfig, size: int) -> None:
    """Refuse a model that does not fall into so many equal parts.

    Raises:
        ConfigError: which of its numbers, or of its kinds, is to blame.
    """
    for tower, stack in config.towers.items():
        for kind in stack.kinds:
            attentions = [kind.attention, *([kind.cross or kind.attention] if kind.crosses else [])]
            for attention in attentions:
                _divides(size, attention.kv_heads, f"key-value heads of the {tower}")
                if not isinstance(attention.kernel, Exact):
                    raise _refused("attention that has weights of its own", attention.kernel.kind)
                if attention.qk_norm is not None and attention.qk_norm.over == "all_heads":
                    raise _refused("a norm over all heads at once", "qk_norm over all_heads")
            _divides(size, kind.ffn.width(config.d_model), f"inner features of the {tower}'s feed-forward")
            if kind.positions.kind not in _WITHOUT_HEADS:
                raise _refused("positions that differ by head", kind.positions.kind)


def keep_part(model: Transformer, rank: int, size: int, total: Callable[[Tensor], Tensor]) -> None:
    """Let a model keep and compute one part of each branch, in place; for inference.

    Args:
        model: whole, and in full weights.
        rank: which part, from 0; part 0 also adds the biases of sums.
        size: how many there are.
        total: the sum over processes of a tensor that each has a term of.

    Raises:
        ConfigError: as `check_parts`; weights that are in a format, which can't be cut.
    """
    check_parts(model.config, size)
    cut = _Cut(rank, size)
    for module in model.modules():
        if isinstance(module, SharedTable):
            cut.columns(module.table)  # [buckets, H]
    for body in _bodies(model):
        cut.body(body)
        body.register_forward_hook(lambda _, __, part: total(part))


class _Cut:
    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size

    def body(self, body: nn.Module) -> None:
        """A branch without its norms."""
        if isinstance(body, Attention):
            self._attention(body)
        elif isinstance(body, MlpModule | GluModule):
            for name, module in body.named_children():
                if isinstance(module, nn.Linear) and name != "down":
                    self._rows(module)
            self._summing(body.down)
        elif isinstance(body, MoeModule):
            for expert in body.experts:
                self.body(expert)
        else:
            raise _refused("such a branch", type(body).__name__)

    def columns(self, module: nn.Module) -> None:
        """Some inputs, or some heads of a table."""
        self._keep(module, "weight", 1)

    def _attention(self, body: Attention) -> None:
        for name in _BY_HEADS:
            if name in body._modules:
                self._rows(body.get_submodule(name))
        self._summing(body.out)
        body.heads, body.kv_heads = body.heads // self._size, body.kv_heads // self._size
        for name in ("query_norm", "key_norm"):
            norm = body.get_submodule(name)
            if isinstance(norm, NormOfEachHead):
                count = len(norm) // self._size
                body.register_module(name, NormOfEachHead(norm[self._rank * count : (self._rank + 1) * count]))
        relation = body._modules.get("relation")
        if isinstance(relation, BucketRelation):
            self.columns(relation.table)

    def _rows(self, linear: nn.Module) -> None:
        for name in ("weight", "bias"):
            self._keep(linear, name, 0)

    def _summing(self, linear: nn.Module) -> None:
        self._keep(linear, "weight", 1)
        if self._rank and linear._parameters.get("bias") is not None:
            linear.register_parameter("bias", None)

    def _keep(self, module: nn.Module, name: str, axis: int) -> None:
        weight = module._parameters.get(name)
        if weight is None and name == "weight":
            raise ConfigError(
                "weights in a format can't be shared out",
                value=type(module).__name__,
                remedy="Load the model in full, without quant.",
            )
        if weight is not None:
            own = weight.detach().chunk(self._size, axis)[self._rank]
            copied = own.clone(memory_format=torch.contiguous_format)  # so that the whole one can go
            module.register_parameter(name, nn.Parameter(copied, requires_grad=False))


def _bodies(model: nn.Module) -> Iterator[nn.Module]:
    """The branches of all layers; layers that share weights are one."""
    for module in model.modules():
        if isinstance(module, Step):
            yield from (branch.get_submodule("body") for branch in module.branches.values())


def _divides(size: int, count: int, what: str) -> None:
    if count % size:
        raise ConfigError(f"the number of processes must divide the {what}", value=f"{size}, {count} of them")


def _refused(what: str, value: object) -> ConfigError:
    return ConfigError(f"processes can't share out {what}", value=value, remedy="Serve it by one process.")
