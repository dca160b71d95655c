"""Which models processes can share the matrices of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transpect.adapters import Dora
from transpect.base.errors import ConfigError
from transpect.train.parallel.fitting import misfits

if TYPE_CHECKING:
    from transpect.train.recipe import Recipe


def check_matrices(recipe: Recipe, size: int) -> None:
    """Refuse a model whose heads or inner features don't go into ``size`` equal parts, and what knows whole matrices
    only.

    Raises:
        ConfigError: it can't be shared out so.
    """
    norms = isinstance(recipe.train.adapter, Dora)  # of rows, of which a process may have a part
    for name, asked in {"train.adapter: dora": norms, "train.compile": recipe.train.compile}.items():
        if asked:
            raise ConfigError(
                f"{name} works on whole matrices, and processes that share them out have none",
                value=f"parallel.tensor: {size}",
                remedy="Leave it out, or share rows and weights out by parallel.data alone.",
            )
    for what, count in misfits(recipe.model.config, size):
        raise ConfigError(
            f"parallel.tensor must divide the {what}",
            value=f"parallel.tensor: {size}, {count} of them",
            remedy="Set parallel.tensor to a number that does, or share weights out by parallel.data: fsdp.",
        )
