"""What positions and visibility come to in a decode program: tables by position and by distance, and a reach.

Axes: S capacity, D model, R rotated part of a head, H heads.

A sequence has no padding in a program, so a token's column is its position.
"""

from __future__ import annotations

import sys
from functools import reduce
from typing import Any

import numpy as np
import torch

from transpect.base.errors import ConfigError
from transpect.core.bias import DistanceBias
from transpect.core.positions import PositionModule, Relation
from transpect.core.positions.learned import LearnedModule
from transpect.core.positions.rope import RopeModule, RotaryGeometry
from transpect.core.tags import Tags
from transpect.core.visibility import All, Causal, Full, PrefixLM, SameSegment, Visibility, Window
from transpect.runtime.weights import refused

Turns = tuple[Any, Any, int, int]
"""cos and sin, each [S, R], and where a pair of dimensions is: (stride·i, stride·i + gap)."""

EVERYTHING = sys.maxsize // 2


def turns(scheme: PositionModule, capacity: int) -> Turns:
    """How rotary positions turn queries and keys; empty tables for other schemes.

    Raises:
        ConfigError: frequencies that differ from sequence to sequence.
    """
    if not isinstance(scheme, RopeModule):
        return np.zeros((0, 0), np.float32), np.zeros((0, 0), np.float32), 1, 0
    if scheme.options.scaling.of_each_pass:
        raise ConfigError(
            "a decode program has one table of frequencies for all sequences",
            value=f"RoPE scaling {scheme.options.scaling.kind}",
            remedy="Decode with runtime=torch.",
        )
    tags = Tags.dense(1, capacity, device="cpu")
    geometry = scheme.geometry(tags, tags, tags, torch.float32)
    assert isinstance(geometry, RotaryGeometry)
    cos, sin = (table[0, 0].numpy().copy() for table in geometry.of_query)
    return (cos, sin, 2, 1) if scheme.options.interleaved else (cos, sin, 1, scheme.rotated // 2)


def added_positions(scheme: PositionModule, d_model: int, capacity: int) -> Any:
    """What a scheme adds to the embeddings, [S, D]; empty where it adds nothing, and as long as its own table."""
    if type(scheme).embed is PositionModule.embed:
        return np.zeros((0, 0), np.float32)
    length = min(capacity, scheme.length) if isinstance(scheme, LearnedModule) else capacity
    dtype = next((parameter.dtype for parameter in scheme.parameters()), torch.float32)
    with torch.inference_mode():
        nothing = torch.zeros(1, length, d_model, dtype=dtype)
        return scheme.embed(nothing, Tags.dense(1, length, device="cpu"))[0].float().numpy().copy()


def distance_bias(relation: Relation, scheme: PositionModule, capacity: int, heads: int, scale: float) -> Any:
    """What positions add to the scores, [H, S] by distance; empty where they add nothing.

    Raises:
        ConfigError: it depends on more than the distance.
    """
    keys = Tags.dense(1, capacity, device="cpu")
    last = Tags.dense(1, 1, start=capacity - 1, device="cpu")
    dtype = next((parameter.dtype for parameter in relation.parameters()), torch.float32)
    query = torch.zeros(1, heads, 1, 1, dtype=dtype)
    with torch.inference_mode():
        same, bias = relation(query, scheme.geometry(last, last, keys, dtype), scale)
        if bias is None:
            return np.zeros((0, 0), np.float32)
        if same is not query or not isinstance(bias, DistanceBias):
            raise ConfigError(
                "a decode program adds numbers to the scores by distance alone",
                value=type(scheme).__name__,
                remedy="Decode with runtime=torch.",
            )
        return bias.whole[0, :, 0].flip(-1).expand(heads, -1).float().contiguous().numpy().copy()


def two_way_bias(relation: Relation, scheme: PositionModule, capacity: int, heads: int, scale: float) -> Any:
    """What positions add to the scores of a text that sees itself both ways, [H, 2·S − 1] by distance: first the key
    that is farthest ahead. Empty where they add nothing.

    Raises:
        ConfigError: it depends on more than the distance.
    """
    tags = Tags.dense(1, 1, device="cpu")
    dtype = next((parameter.dtype for parameter in relation.parameters()), torch.float32)
    query = torch.zeros(1, heads, 1, 1, dtype=dtype)
    with torch.inference_mode():
        same, bias = relation(query, scheme.geometry(tags, tags, tags, dtype), scale)
        if bias is None:
            return np.zeros((0, 0), np.float32)
        if same is not query or not isinstance(bias, DistanceBias):
            raise refused(f"scores that depend on more than the distance, as of {type(scheme).__name__}")
        by_distance = bias.of(bias.inputs, torch.arange(1 - capacity, capacity))
        return by_distance.t().expand(heads, -1).float().contiguous().numpy().copy()


def two_way_reach(rule: Visibility) -> int:
    """A token of a text that is read whole sees those that are nearer than this.

    Raises:
        ConfigError: a rule that is not the whole text, or a window both ways.
    """
    if isinstance(rule, All):
        return reduce(min, map(two_way_reach, rule.rules))
    if isinstance(rule, Window) and rule.both_ways and rule.dilation == 1:
        return rule.width
    if isinstance(rule, Full | SameSegment):  # a text is one document
        return EVERYTHING
    raise refused(f"the visibility {rule.kind}")


def reach(rule: Visibility) -> int:
    """How many keys a token that is written sees at most: itself and those before it.

    Raises:
        ConfigError: a rule that is not all tokens so far, or the last ones of them.
    """
    if isinstance(rule, All):
        return reduce(min, map(reach, rule.rules))
    if isinstance(rule, Window) and not rule.both_ways and rule.dilation == 1:
        return rule.width
    if isinstance(rule, Causal | PrefixLM | SameSegment):  # a sequence is one document, and what is written no prefix
        return EVERYTHING
    raise ConfigError(
        "a decode program sees all earlier tokens or the last ones",
        value=f"visibility {rule.kind}",
        remedy="Decode with runtime=torch.",
    )
