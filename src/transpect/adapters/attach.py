"""Adapters put beside the linear layers of a model, found there again, and merged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from transpect.adapters.linear import LowRankLinear
from transpect.adapters.options import Adapter
from transpect.base.errors import ConfigError
from transpect.base.patterns import fits, nearest
from transpect.core.attention import ClippedLinear
from transpect.core.heads import SequenceClass, TokenClass
from transpect.core.model import Transformer
from transpect.core.moe import MoeModule
from transpect.core.positions import PositionModule


def attach(model: Transformer, options: Adapter, seed: int) -> Transformer:
    """Put adapters beside the layers that the options name, in place; the model computes what it did.

    Args:
        model: in full, or its linear layers in formats.
        options: which, and of which kind.
        seed: of A.

    Raises:
        ConfigError: a pattern that fits no layer that can have one, or a model that has adapters.
    """
    generator = torch.Generator().manual_seed(seed)
    for adapter in adapters_of(attach_empty(model, options)).values():
        adapter.draw(generator)
    return model


def attach_empty(model: Transformer, options: Adapter) -> Transformer:
    """As `attach`, with matrices that are about to be filled."""
    if adapters_of(model):
        raise ConfigError("a model can have one adapter at a time", remedy="Merge the one that it has.")
    for name in target_names(model, options.targets):
        put(model, name, options.build(model.get_submodule(name)))
    return model


def put(model: Transformer, name: str, adapter: LowRankLinear) -> None:
    """Put an adapter in the place of its base."""
    adapter.train(model.training)
    model.set_submodule(name, adapter)


def target_names(model: Transformer, patterns: Sequence[str]) -> list[str]:
    """The layers that patterns name; without any, all of attention and feed-forward but experts and their routers.

    Raises:
        ConfigError: a pattern that fits no layer that can have an adapter.
    """
    known = list(_layers(model))
    for pattern in patterns:
        if not any(fits(pattern, name) for name in known):
            raise _fault("no linear layer in the towers has a name that the pattern fits", "targets", pattern, known)
    if patterns:
        return [name for name in known if any(fits(pattern, name) for pattern in patterns)]
    return [name for name in known if ".experts." not in name]


def _layers(model: Transformer) -> Iterator[str]:
    apart = {
        inner
        for module in model.modules()
        if isinstance(module, PositionModule | MoeModule)
        for inner in ([module.router] if isinstance(module, MoeModule) else module.modules())
    }
    for name, module in model.named_modules():
        linear = hasattr(module, "in_features") and not isinstance(module, ClippedLinear)
        if linear and ".branches." in name and ".relation." not in name and module not in apart:
            yield name


def adapters_of(model: nn.Module) -> dict[str, LowRankLinear]:
    """The adapters of a model, by the names of the layers whose place they have."""
    return {name: module for name, module in model.named_modules() if isinstance(module, LowRankLinear)}


def train_only(model: Transformer, options: Adapter) -> None:
    """Let nothing but the adapters and ``modules_to_save`` need a gradient.

    Raises:
        ConfigError: a pattern of ``modules_to_save`` that fits nothing.
    """
    kept = set(saved_names(model, options))
    own = {id(weight) for adapter in adapters_of(model).values() for weight in own_weights(adapter).values()}
    for name, weight in model.named_parameters():
        weight.requires_grad_(name in kept or id(weight) in own)


def own_weights(adapter: LowRankLinear) -> dict[str, nn.Parameter]:
    """What an adapter adds to its base."""
    return {name: weight for name, weight in adapter.named_parameters() if not name.startswith("base.")}


def saved_names(model: Transformer, options: Adapter) -> list[str]:
    """The weights outside adapted layers that are trained and saved as a whole: those that ``modules_to_save`` names,
    and a head that tells classes, which is a new one as a rule.

    Raises:
        ConfigError: a pattern that fits none.
    """
    inside = tuple(f"{name}." for name in adapters_of(model))
    names = [name for name, _ in model.named_parameters() if not name.startswith(inside)]
    for pattern in options.modules_to_save:
        if not any(fits(pattern, name) for name in names):
            raise _fault("no module has a name that the pattern fits", "modules_to_save", pattern, names)
    classes = isinstance(model.config.head, SequenceClass | TokenClass)
    return [
        name
        for name in names
        if any(fits(pattern, name) for pattern in options.modules_to_save) or (classes and name.startswith("head."))
    ]


def full_state(model: Transformer) -> dict[str, Tensor]:
    """The tensors of the model without adapters that computes the same, by its names. The model stays as it is.

    Raises:
        ConfigError: an adapter beside a packed weight.
    """
    adapters = adapters_of(model)
    state: dict[str, Tensor] = dict(model.state_dict())
    for name, adapter in adapters.items():
        for own in own_weights(adapter):
            del state[f"{name}.{own}"]
        for inner in adapter.base.state_dict():
            state[f"{name}.{inner}"] = state.pop(f"{name}.base.{inner}")
        state[f"{name}.weight"] = adapter.merged()
    return state


def base_state(model: Transformer) -> Mapping[str, Tensor]:
    """The tensors of the model as if it had no adapters, unchanged by them."""
    own = {f"{name}.{inner}" for name, adapter in adapters_of(model).items() for inner in own_weights(adapter)}
    return {name.replace(".base.", "."): tensor for name, tensor in model.state_dict().items() if name not in own}


def _fault(rule: str, key: str, pattern: str, known: Sequence[str]) -> ConfigError:
    error = ConfigError(rule, value=pattern, remedy=nearest(pattern, known))
    error.path = ("train", "adapter", key)
    return error
