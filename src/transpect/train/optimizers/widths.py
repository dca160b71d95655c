"""Rates that suit models of every width."""

from __future__ import annotations

from transpect.base.errors import ConfigError
from transpect.core import ModelConfig, WidthInit
from transpect.train.optimizers.base import Optimizer


def check_width(config: ModelConfig, optimizer: Optimizer) -> None:
    """Refuse what would not learn alike at every width, of a model that starts so (`WidthInit`).

    Raises:
        ConfigError: a head that is the token table; an optimizer whose steps grow otherwise with a matrix.
    """
    if not isinstance(config.init, WidthInit):
        return
    if getattr(config.head, "tied", False):
        raise ConfigError(
            "a model that starts by its width needs a head of its own: a token table moves by another rate",
            value="model.head.tied: true",
            remedy="Set model.head.tied to false.",
        )
    if not optimizer.even:
        raise ConfigError(
            "a model that starts by its width needs an optimizer whose steps do not grow with the gradient",
            value=f"train.optimizer.kind: {optimizer.kind}",
            remedy="Take adamw or lion, or another model.init.",
        )
