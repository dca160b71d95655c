"""Which part of each weight a process has, read off the modules of the core.

A branch is computed in parts: each process has some heads of an attention, some inner features of a feed-forward, and
its output is the sum over processes of what the parts give. What is between branches (norms, the residual stream,
embeddings) all processes compute alike. So each branch sends its output once forward and the gradient of its input once
backward, and nothing else.
"""

from __future__ import annotations

from dataclasses import replace

from torch import nn
from torch.distributed.tensor import DTensor

from transpect.base.errors import ConfigError
from transpect.core.attention import Attention
from transpect.core.blocks import Step
from transpect.core.feedforward import GluModule, MlpModule
from transpect.core.kernels.linformer import LinformerWay
from transpect.core.model import Transformer
from transpect.core.moe import MoeModule
from transpect.core.positions.kerple import KerpleModule
from transpect.core.positions.t5 import BucketRelation, SharedTable, TwoTables
from transpect.core.positions.transformer_xl import TransformerXLRelation
from transpect.train.parallel.matrices.reading import ALIKE, OF_INPUTS, OF_OUTPUTS, TERMS, Share
from transpect.train.recompute import RecomputingFeedForward

Plan = dict[nn.Module, dict[str, Share]]
"""Of each module its own weights, by name."""

BY_HEADS = ("query", "key", "value", "query_global", "key_global", "value_global")


def plan_of(model: Transformer, size: int) -> Plan:
    """Of all weights of a model that are not shared out already, for ``size`` processes."""
    plan = _all(model, ALIKE)
    for module in model.modules():
        if isinstance(module, SharedTable):
            plan[module.table] = {"weight": OF_INPUTS}  # [buckets, H]
            if isinstance(module, TwoTables):
                plan[module.block_table] = {"weight": OF_INPUTS}
        elif isinstance(module, KerpleModule):
            plan[module] = {"log_r1": OF_OUTPUTS, "log_r2": OF_OUTPUTS}
    for body in bodies(model):
        plan |= _all(body, TERMS) | _of_body(body, size)
    return plan


def bodies(model: nn.Module) -> list[nn.Module]:
    """What is computed in parts: the branches of all layers, without their norms and their dropout."""
    steps = (module for module in model.modules() if isinstance(module, Step))
    return [branch.get_submodule("body") for step in steps for branch in step.branches.values()]


def _all(module: nn.Module, share: Share) -> Plan:
    return {part: dict.fromkeys(_own(part), share) for part in module.modules() if _own(part)}


def _own(module: nn.Module) -> list[str]:
    return [name for name, weight in module.named_parameters(recurse=False) if not isinstance(weight, DTensor)]


def _of_body(body: nn.Module, size: int) -> Plan:
    if isinstance(body, Attention):
        return _attention(body, size)
    if isinstance(body, MlpModule | GluModule | RecomputingFeedForward):
        return _feed_forward(body, size)
    if isinstance(body, MoeModule):
        plan: Plan = {}
        for expert in body.experts:
            plan |= _of_body(expert, size)
        return plan
    raise ConfigError(
        "processes can't share out the matrices of such a branch",
        value=type(body).__name__,
        remedy="Leave parallel.tensor at 1.",
    )


def _attention(body: Attention, size: int) -> Plan:
    linears = [body.get_submodule(name) for name in BY_HEADS if name in body._modules]
    plan = {linear: dict.fromkeys(_own(linear), OF_OUTPUTS) for linear in linears} | _summing(body.out, size)
    relation, kernel = body._modules.get("relation"), body._modules.get("kernel")
    if isinstance(relation, BucketRelation):
        plan[relation.table] = {"weight": OF_INPUTS}
    elif isinstance(relation, TransformerXLRelation):
        plan |= {relation: {"u": OF_OUTPUTS, "v": OF_OUTPUTS}, relation.project: {"weight": OF_OUTPUTS}}
    if isinstance(kernel, LinformerWay) and len(kernel.mix_keys) == body.kv_heads:
        plan[kernel] = dict.fromkeys(_own(kernel), OF_OUTPUTS)  # [K, r, L]
    return plan


def _feed_forward(body: nn.Module, size: int) -> Plan:
    down = body.get_submodule("down")
    ways = [linear for linear in body.children() if isinstance(linear, nn.Linear) and linear is not down]
    return {way: dict.fromkeys(_own(way), OF_OUTPUTS) for way in ways} | _summing(down, size)


def _summing(linear: nn.Module, size: int) -> Plan:
    """Of a linear map whose output is a sum over processes, to which each adds its share of the bias."""
    shares = {"weight": OF_INPUTS, "bias": replace(TERMS, times=1.0 / size)}
    return {linear: {name: shares[name] for name in _own(linear)}}
