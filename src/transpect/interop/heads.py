"""Which heads families have, and which one a family puts on a body where another kind of head is asked for."""

from __future__ import annotations

from transpect.base.codec import Data
from transpect.core import Head, ModelConfig
from transpect.interop.families import FAMILIES

__all__ = ["has_family", "head_of_kind"]


def has_family(config: ModelConfig) -> bool:
    """Whether a model, with the head that it has, can be saved as one of a family."""
    return any(family.write(config) is not None for family in FAMILIES.values())


def head_of_kind(config: ModelConfig, kind: str) -> Head | None:
    """What ``BertForTokenClassification`` is to ``BertForMaskedLM``: the family's head of a kind for the same body, so
    that the model can be saved as one of the family; None where the config is of no family that has one.

    Args:
        config: of a model as it was read, or of one that would be saved as one of the family.
        kind: of the head, e.g. ``sequence_class``.
    """
    families = FAMILIES.values() if config.family is None else [FAMILIES[config.family]]
    for family in families:
        data: Data | None = family.write(config)
        if data is None:
            continue
        architecture = next((name for name, head in family.heads.items() if head.kind == kind), None)
        return None if architecture is None else family.read(data | {"architectures": [architecture]}).head
    return None
