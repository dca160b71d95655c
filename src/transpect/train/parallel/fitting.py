"""What must go into equal parts where processes share out matrices."""

from __future__ import annotations

from math import gcd

from transpect.core.config import ModelConfig


def counts_to_share(config: ModelConfig) -> dict[str, int]:
    """What each process has an equal part of, and how many of it there are."""
    counts: dict[str, int] = {}
    for tower, stack in config.towers.items():
        for kind in stack.kinds:
            crossing = [kind.cross or kind.attention] if kind.crosses else []
            for attention in (kind.attention, *crossing):
                _add(counts, f"key-value heads of the {tower}", attention.kv_heads)
            _add(counts, f"inner features of the {tower}'s feed-forward", kind.ffn.width(config.d_model))
    return counts


def _add(counts: dict[str, int], name: str, count: int) -> None:
    """Of layers that differ, the greatest common divisor is what counts."""
    counts[name] = gcd(counts.get(name, 0), count)
