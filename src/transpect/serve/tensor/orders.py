"""What the first process tells the others to compute: lines of JSON, for tokens and texts are all that differs."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor

__all__ = ["packed", "read", "tensor", "written"]


def written(order: str, number: int = -1, **given: Any) -> bytes:
    """An order as a line.

    Args:
        order: what to do.
        number: of whose steps.
        given: more; tensors of tokens or of truth, texts, tuples.
    """
    return json.dumps({"order": order, "number": number, **packed(given)}).encode() + b"\n"


def read(line: bytes) -> dict[str, Any]:
    """The order that a line is."""
    found: dict[str, Any] = _unpacked(json.loads(line))
    return found


def packed(value: Any) -> Any:
    """A value as JSON has it: pairs of texts stay tuples, tensors become lists."""
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, tuple):
        return {"": [packed(own) for own in value]}
    if isinstance(value, list):
        return [packed(own) for own in value]
    if isinstance(value, dict):
        return {name: packed(own) for name, own in value.items()}
    return value


def tensor(values: Any) -> Tensor | None:
    """A tensor again."""
    return None if values is None else torch.tensor(values)


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpacked(own) for own in value]
    if isinstance(value, dict):
        if set(value) == {""}:
            return tuple(_unpacked(own) for own in value[""])
        return {name: _unpacked(own) for name, own in value.items()}
    return value
