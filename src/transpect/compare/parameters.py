"""How many numbers a variant trains, and the width of the feed-forward that makes it as many as another."""

from __future__ import annotations

from transpect.base.errors import ConfigError
from transpect.core.config import ModelConfig, override
from transpect.core.moe import Moe
from transpect.interop.blank import blank

TOLERANCE = 0.005
"""Totals that differ by no more than this count as equal."""


def count_parameters(config: ModelConfig) -> int:
    """The trainable numbers of a model, a tied table counted once."""
    return sum(weight.numel() for weight in blank(config).parameters() if weight.requires_grad)


def matched(config: ModelConfig, target: int) -> ModelConfig:
    """The config, or, where its total is further from ``target`` than `TOLERANCE`, the same with the ``d_ff`` that
    comes nearest.

    A total is linear in ``d_ff``, so two counts give the slope, and the nearest whole number is exact.

    Raises:
        ConfigError: no ``d_ff`` from 1 up comes within the tolerance.
    """
    if near(count_parameters(config), target):
        return config
    width = config.last.ffn.width(config.d_model)
    narrow, wide = (count_parameters(with_width(config, d_ff)) for d_ff in (width, width + 1))
    d_ff = width + round((target - narrow) / (wide - narrow)) if wide != narrow else 0  # no feed-forward, no way
    found = with_width(config, d_ff) if d_ff >= 1 else config
    if d_ff < 1 or not near(count_parameters(found), target):
        raise ConfigError(
            f"some d_ff must bring the total within {TOLERANCE:.1%} of {target:,}",
            value=f"{narrow:,} at d_ff {width}",
            remedy="Change d_model or n_layers of this variant, or compare without --equal.",
        )
    return found


def with_width(config: ModelConfig, d_ff: int) -> ModelConfig:
    """The same model with feed-forwards of another width, in every tower; of a mixture, each expert."""
    inner = {name: "ffn.ffn" if isinstance(stack.ffn, Moe) else "ffn" for name, stack in config.towers.items()}
    return override(config, [(f"{name}.{ffn}.d_ff", d_ff) for name, ffn in inner.items()])


def near(total: int, target: int) -> bool:
    """Whether two totals count as equal."""
    return abs(total - target) <= TOLERANCE * target
