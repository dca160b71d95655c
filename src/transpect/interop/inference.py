"""The family of a checkpoint whose config names none, as configs of 2019 did not: the one whose tensors it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transpect.base.errors import CheckpointError, TranspectError
from transpect.interop.blank import shapes
from transpect.interop.families import FAMILIES
from transpect.interop.loading import fits
from transpect.interop.weights import Weights

__all__ = ["with_family"]


def with_family(data: Mapping[str, Any], weights: Weights) -> dict[str, Any]:
    """The config with the ``model_type`` and the architecture that have exactly these options and tensors.

    Raises:
        CheckpointError: no family has, or several have.
    """
    unnamed = (name for name, family in FAMILIES.items() if family.unnamed)
    found = [kind for kind in (_fitting(name, data, weights) for name in unnamed) if kind is not None]
    if len(found) != 1:
        which = ", ".join(str(kind["model_type"]) for kind in found)
        raise CheckpointError(
            "the config names no model_type, and its options and tensors fit "
            + (f"several families: {which}" if found else "no family"),
            remedy='Write its family into config.json, e.g. "model_type": "bert".',
        )
    return found[0]


def _fitting(name: str, data: Mapping[str, Any], weights: Weights) -> dict[str, Any] | None:
    """The first architecture of a family that fits."""
    family = FAMILIES[name]
    named = data.get("architectures") or list(family.heads)
    for architecture in named if isinstance(named, list) else [named]:
        kind = {**data, "model_type": name, "architectures": [architecture]}
        try:
            config = family.read(kind, lambda: weights)
            ours, table = shapes(config), family.table(config)
            if fits(weights, table, family.links(config, ours, bare=table.is_bare(weights)), ours):
                return kind
        except TranspectError:  # it has no such option, or can't build it
            continue
    return None
