"""A model whose branches several processes share out: which part of each weight one of them has (Shoeybi et al. 2019,
"Megatron-LM", §3).

Each process has some heads of an attention and some inner features of a feed-forward, so that the output of a branch is
the sum over processes of what the parts give. What is between branches (norms, the residual stream, embeddings, the
head) each has whole, and computes alike. A layer asks for one sum a branch, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from transpect.base.errors import ConfigError
from transpect.core.attention import Attention, NormOfEachHead
from transpect.core.blocks import Step
from transpect.core.config import ModelConfig
from transpect.core.kernels.linformer import LinformerWay
from transpect.core.model import Transformer
from transpect.core.moe import MoeModule
from transpect.core.positions.alibi import AlibiModule
from transpect.core.positions.kerple import KerpleModule
from transpect.core.positions.t5 import BucketRelation, SharedTable, TwoTables
from transpect.core.positions.transformer_xl import TransformerXLRelation

__all__ = ["Cut", "bodies", "check_parts", "cuts_of", "fewer_heads", "keep_part"]

Cut = Literal["outputs", "inputs", "term"]
"""A process has some rows of a weight [outputs, inputs], or some columns; of a bias that is added to a sum a share."""

BY_KEY_VALUE_HEADS = ("key", "value", "key_global", "value_global")
_BY_HEADS = ("query", "key", "value", "query_global", "key_global", "value_global")
_AXES = {"outputs": 0, "inputs": 1}


def cuts_of(model: nn.Module) -> dict[nn.Module, dict[str, Cut]]:
    """Of each module the weights that fall into parts, by name. All others each process has whole.

    Raises:
        ConfigError: a branch that does not fall into parts.
    """
    cuts: dict[nn.Module, dict[str, Cut]] = {}
    for module in model.modules():
        if isinstance(module, SharedTable):
            cuts[module.table] = {"weight": "inputs"}  # [buckets, H]
            if isinstance(module, TwoTables):
                cuts[module.block_table] = {"weight": "inputs"}
        elif isinstance(module, KerpleModule):
            cuts[module] = {"log_r1": "outputs", "log_r2": "outputs"}
    for body in bodies(model):
        cuts |= _of_body(body)
    return cuts


def bodies(model: nn.Module) -> list[nn.Module]:
    """What is computed in parts: the branches of all layers, without their norms and their dropout."""
    steps = (module for module in model.modules() if isinstance(module, Step))
    return [branch.get_submodule("body") for step in steps for branch in step.branches.values()]


def fewer_heads(module: nn.Module, rank: int, size: int) -> None:
    """Let a module that counts heads count those of one part."""
    if isinstance(module, Attention):
        module.heads, module.kv_heads = module.heads // size, max(1, module.kv_heads // size)
    elif isinstance(module, TransformerXLRelation):
        module.heads //= size
    elif isinstance(module, AlibiModule):
        module.slopes = module.slopes.chunk(size)[rank]


def check_parts(config: ModelConfig, size: int) -> None:
    """Refuse a model that does not fall into so many equal parts.

    Raises:
        ConfigError: which of its numbers, or of its kinds, is to blame.
    """
    for tower, stack in config.towers.items():
        for kind in stack.kinds:
            for attention in (kind.attention, *([kind.cross or kind.attention] if kind.crosses else [])):
                _divides(size, attention.kv_heads, f"key-value heads of the {tower}")
                if attention.qk_norm is not None and attention.qk_norm.over == "all_heads":
                    raise _refused("a norm over all heads at once", "qk_norm over all_heads")
            _divides(size, kind.ffn.width(config.d_model), f"inner features of the {tower}'s feed-forward")


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
    for module, cuts in cuts_of(model).items():
        for name, cut in cuts.items():
            if cut != "term":
                part = module.get_parameter(name).detach().chunk(size, _AXES[cut])[rank]
                copied = part.clone(memory_format=torch.contiguous_format)  # so that the whole one can go
                module.register_parameter(name, nn.Parameter(copied, requires_grad=False))
            elif rank:
                module.register_parameter(name, None)
    for module in list(model.modules()):
        fewer_heads(module, rank, size)
        for name, child in list(module.named_children()):
            if isinstance(child, NormOfEachHead):
                count = len(child) // size
                module.register_module(name, NormOfEachHead(child[rank * count : (rank + 1) * count]))
    for body in bodies(model):
        body.register_forward_hook(lambda _, __, part: total(part))


def _of_body(body: nn.Module) -> dict[nn.Module, dict[str, Cut]]:
    if isinstance(body, Attention):
        linears = [body.get_submodule(name) for name in _BY_HEADS if name in body._modules]
        return _branch(linears, body.out) | _relation(body)
    if isinstance(body, MoeModule):
        return {module: cuts for expert in body.experts for module, cuts in _of_body(expert).items()}
    if isinstance(down := body._modules.get("down"), nn.Module):
        return _branch([own for own in body.children() if isinstance(own, nn.Linear) and own is not down], down)
    raise _refused("such a branch", type(body).__name__)


def _relation(body: Attention) -> dict[nn.Module, dict[str, Cut]]:
    cuts: dict[nn.Module, dict[str, Cut]] = {}
    relation, kernel = body._modules.get("relation"), body._modules.get("kernel")
    if isinstance(relation, BucketRelation):
        cuts[relation.table] = {"weight": "inputs"}
    elif isinstance(relation, TransformerXLRelation):
        cuts |= {relation: {"u": "outputs", "v": "outputs"}, relation.project: {"weight": "outputs"}}
    if isinstance(kernel, LinformerWay) and len(kernel.mix_keys) == body.kv_heads:
        cuts[kernel] = dict.fromkeys((name for name, _ in kernel.named_parameters(recurse=False)), "outputs")
    return cuts


def _branch(linears: Sequence[nn.Module], out: nn.Module) -> dict[nn.Module, dict[str, Cut]]:
    cuts: dict[nn.Module, dict[str, Cut]] = {linear: dict.fromkeys(_weights(linear), "outputs") for linear in linears}
    return {**cuts, out: {name: "inputs" if name == "weight" else "term" for name in _weights(out)}}


def _weights(linear: nn.Module) -> list[str]:
    names = [name for name in ("weight", "bias") if linear._parameters.get(name) is not None]
    if "weight" not in names:
        raise ConfigError(
            "weights in a format can't be shared out",
            value=type(linear).__name__,
            remedy="Load the model in full, without quant.",
        )
    return names


def _divides(size: int, count: int, what: str) -> None:
    if count % size:
        raise ConfigError(f"the number of processes must divide the {what}", value=f"{size}, {count} of them")


def _refused(what: str, value: object) -> ConfigError:
    return ConfigError(f"processes can't share out {what}", value=value, remedy="Leave it to one process.")
