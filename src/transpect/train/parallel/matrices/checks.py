"""Which models processes can share the matrices of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transpect.base.errors import ConfigError

if TYPE_CHECKING:
    from transpect.train.recipe import Recipe


def check_matrices(recipe: Recipe, size: int) -> None:
    """Refuse a model whose heads or inner features don't go into ``size`` equal parts, and what knows whole matrices
    only.

    Raises:
        ConfigError: it can't be shared out so.
    """
    for name, value in {"train.adapter": recipe.train.adapter, "train.compile": recipe.train.compile}.items():
        if value:
            raise ConfigError(
                f"{name} works on whole matrices, and processes that share them out have none",
                value=f"parallel.tensor: {size}",
                remedy="Leave it out, or share rows and weights out by parallel.data alone.",
            )
    config = recipe.model.config
    for tower, stack in config.towers.items():
        for kind in stack.kinds:
            crossing = [] if not kind.crosses else [kind.cross or kind.attention]
            for attention in (kind.attention, *crossing):
                _divides(f"key-value heads of the {tower}", attention.kv_heads, size)
            _divides(f"inner features of the {tower}'s feed-forward", kind.ffn.width(config.d_model), size)


def _divides(what: str, count: int, size: int) -> None:
    if count % size:
        raise ConfigError(
            f"parallel.tensor must divide the {what}",
            value=f"parallel.tensor: {size}, {count} of them",
            remedy="Set parallel.tensor to a number that does; weights are shared out by parallel.data: fsdp as well.",
        )
