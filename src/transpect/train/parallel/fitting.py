"""What must go into equal parts where processes share out matrices."""

from __future__ import annotations

from collections.abc import Iterator

from transpect.core.attention import AttentionConfig
from transpect.core.config import ModelConfig
from transpect.core.kernels import Linformer


def misfits(config: ModelConfig, size: int) -> Iterator[tuple[str, int]]:
    """What does not go into ``size`` equal parts, and how many of it there are.

    Key-value heads are shared out too, or, where there are fewer of them than processes, several processes have the
    same one.
    """
    for tower, stack in config.towers.items():
        for kind in stack.kinds:
            for attention in (kind.attention, *([kind.cross or kind.attention] if kind.crosses else [])):
                if attention.n_heads % size:
                    yield f"heads of the {tower}", attention.n_heads
                elif attention.kv_heads % size and not _copies(attention, size):
                    yield f"key-value heads of the {tower}", attention.kv_heads
            if (width := kind.ffn.width(config.d_model)) % size:
                yield f"inner features of the {tower}'s feed-forward", width


def _copies(attention: AttentionConfig, size: int) -> bool:
    """Whether several processes can have the same key-value head, and so nothing that spans more than one of them."""
    alone = attention.qk_norm is None or attention.qk_norm.over == "head"
    return size % attention.kv_heads == 0 and alone and not isinstance(attention.kernel, Linformer)
