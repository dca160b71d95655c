"""How much memory there is, and how many blocks of keys and values that makes."""

from __future__ import annotations

from dataclasses import dataclass

from transpect.base.errors import ConfigError
from transpect.base.memory import available_memory
from transpect.core import ModelConfig
from transpect.serve.config import EngineConfig

SHARE = 0.5
"""Of the free memory that an engine takes where nobody says: the rest is for logits, prompts and the server."""
NUMBER = 4
"""Bytes of a key's or a value's number in a decode program."""


@dataclass(frozen=True)
class Size:
    """What an engine has room for.

    Attributes:
        rows: lines at a time.
        context: tokens of a line.
        block: tokens of a block.
        blocks: how many.
        block_bytes: of one, in all layers.
        source_bytes: of the longest source, in all layers; 0 where there are none.
        free_bytes: of the machine, when it was looked at.
    """

    rows: int
    context: int
    block: int
    blocks: int
    block_bytes: int
    source_bytes: int
    free_bytes: int

    def __str__(self) -> str:
        sources = f", {self.rows * self.source_bytes / 2**20:.0f} MiB for sources" if self.source_bytes else ""
        return (
            f"key-value cache: {self.blocks} blocks of {self.block} tokens, "
            f"{self.blocks * self.block_bytes / 2**20:.0f} MiB{sources}, of {self.free_bytes / 2**20:.0f} MiB free; "
            f"{self.rows} sequences of at most {self.context} tokens"
        )


def sized(config: EngineConfig, model: ModelConfig, free: int | None = None) -> Size:
    """What fits the memory that is asked for, or that there is; no more than all sequences can use.

    Args:
        config: of the engine.
        model: of its model.
        free: bytes; None looks at the machine.

    Raises:
        ConfigError: not even one block fits, or more is asked for than there is.
    """
    free = available_memory() if free is None else free
    of_token, of_source = _numbers(model)
    block_bytes, source_bytes = of_token * config.block * NUMBER, of_source * model.context_length * NUMBER
    context = min(model.context_length, config.context or model.context_length)
    budget = int(free * SHARE) if config.memory_bytes is None else config.memory_bytes
    rows = config.max_rows
    if source_bytes:  # at most half is for sources
        rows = max(1, min(rows, budget // 2 // source_bytes))
        budget -= rows * source_bytes
    enough = rows * -(-context // config.block)
    blocks = min(enough, budget // block_bytes) if config.blocks is None else config.blocks
    if blocks < 1 or blocks * block_bytes + rows * source_bytes > free:
        raise ConfigError(
            "the key-value cache must hold a block and fit the memory that is free",
            value=f"{max(blocks, 1)} blocks of {block_bytes} bytes, {free} bytes free",
            remedy="Set blocks or memory_bytes lower, or let other programs end.",
        )
    return Size(rows, min(context, blocks * config.block), config.block, blocks, block_bytes, source_bytes, free)


def _numbers(model: ModelConfig) -> tuple[int, int]:
    """Keys and values of a token in all layers of the last tower, and of a token of a source."""
    own = cross = 0
    stack = model.last
    for kind in stack.kind_of:
        layer = stack.kinds[kind]
        branches = [name for step in layer.steps for name in step]
        attention, source = layer.attention, layer.cross or layer.attention
        own += branches.count("self") * 2 * attention.kv_heads * attention.width(model.d_model)
        cross += branches.count("cross") * 2 * source.kv_heads * source.width(model.d_model)
    return own, cross
