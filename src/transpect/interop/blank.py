"""A model without numbers: only names and shapes, built at once and without memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from transpect.core import ModelConfig, Transformer

# What fills a new parameter in place. On the meta device it would do nothing, but torch first loads the machinery
# (decompositions, sympy) that tells it so, which takes seconds.
_FILLS = frozenset({"normal_", "uniform_", "zero_", "fill_", "ones_"})


class _NoFill(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__name__", "") in _FILLS:
            return args[0] if args else (kwargs or {})["tensor"]  # a method, or its function in torch.nn.init
        return func(*args, **(kwargs or {}))


def blank(config: ModelConfig) -> Transformer:
    """The model of a config on the meta device.

    Raises:
        ConfigError: a configuration that can't be built.
    """
    with torch.device("meta"), _NoFill():
        return Transformer(config, seed=None)


def shapes(config: ModelConfig) -> dict[str, torch.Size]:
    """The tensors of a config's model."""
    return {name: tensor.shape for name, tensor in blank(config).state_dict().items()}
