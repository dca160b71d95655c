"""Which part of each weight a process has, read off the modules of the core.

A branch is computed in parts: each process has some heads of an attention, some inner features of a feed-forward, and
its output is the sum over processes of what the parts give. What is between branches (norms, the residual stream,
embeddings) all processes compute alike. So each branch sends its output once forward and the gradient of its input once
backward, and nothing else.

Where there are fewer key-value heads than processes, all have all of them, and each reads the one that its queries look
at. Beside a matrix of which each has some rows it has the same rows of LoRA's B, beside one in columns those of A; the
other factor all have whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from torch import nn
from torch.distributed.tensor import DTensor

from transpect.adapters import LowRankLinear, adapters_of
from transpect.core.attention import Attention
from transpect.core.model import Transformer
from transpect.core.parts import BY_KEY_VALUE_HEADS, bodies, cuts_of
from transpect.train.parallel.matrices.reading import ALIKE, OF_INPUTS, OF_OUTPUTS, TERMS, Share

Plan = dict[nn.Module, dict[str, Share]]
"""Of each module its own weights, by name."""


def plan_of(model: Transformer, rank: int, size: int) -> Plan:
    """Of all weights of a model that are not shared out already, for process ``rank`` of ``size``.

    Raises:
        ConfigError: as `cuts_of`.
    """
    shares = {"outputs": OF_OUTPUTS, "inputs": OF_INPUTS, "term": replace(TERMS, times=1.0 / size)}
    plan = _all(model, ALIKE)
    for body in bodies(model):
        plan |= _all(body, TERMS)
    with _bare(model) as adapters:
        for module, cuts in cuts_of(model).items():
            plan[module] = {name: shares[cuts[name]] for name in _own(module)}
        plan |= _key_value_heads(model, rank, size)
    for adapter in adapters.values():
        beside = plan[adapter.base]["weight"]
        factor = adapter.a if beside == OF_INPUTS else adapter.b
        plan[factor] = {"weight": beside}
    return plan


def _key_value_heads(model: Transformer, rank: int, size: int) -> Plan:
    """The projections to key-value heads that can't be shared out, since there are fewer of them than processes."""
    plan: Plan = {}
    for attention in (module for module in model.modules() if isinstance(module, Attention)):
        if attention.kv_heads % size:
            begin = rank * attention.kv_heads // size * attention.head_dim
            one = replace(TERMS, rows=slice(begin, begin + attention.head_dim))
            for linear in (attention._modules[name] for name in BY_KEY_VALUE_HEADS if name in attention._modules):
                assert linear is not None
                plan[linear] = dict.fromkeys(_own(linear), one)
    return plan


@contextmanager
def _bare(model: Transformer) -> Iterator[dict[str, LowRankLinear]]:
    """The model without its adapters for as long as it is entered, and those by name."""
    adapters = adapters_of(model)
    for name, adapter in adapters.items():
        model.set_submodule(name, adapter.base)
    try:
        yield adapters
    finally:
        for name, adapter in adapters.items():
            model.set_submodule(name, adapter)


def _all(module: nn.Module, share: Share) -> Plan:
    return {part: dict.fromkeys(_own(part), share) for part in module.modules() if _own(part)}


def _own(module: nn.Module) -> list[str]:
    return [name for name, weight in module.named_parameters(recurse=False) if not isinstance(weight, DTensor)]
