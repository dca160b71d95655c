"""How large an engine is."""

from __future__ import annotations

from dataclasses import dataclass

from transpect.base.checks import at_least, within
from transpect.base.errors import ConfigError


@dataclass(frozen=True)
class EngineConfig:
    """How much an engine holds and does at a time.

    Attributes:
        memory_bytes: for keys and values; None takes what suits the machine's free memory.
        blocks: how many blocks of keys and values, instead of ``memory_bytes``.
        block: tokens of a block.
        context: how long a sequence may become; None is the model's context.
        max_rows: how many sequences there are at a time: a beam search takes one for each beam.
        token_budget: how many tokens a pass reads at most where somebody waits for the next token of an output. Fewer
            make prompts slower and the pauses between the tokens of others shorter; up to 32 read weights once.
        prompt_budget: how many it reads at most where all that run have a prompt to read first.
        max_waiting: how many requests may wait to begin.
        max_waiting_tokens: how many tokens they may be about altogether, prompts and outputs; None is no limit.
        prefix_cache: whether beginnings of texts are kept for later requests that begin alike.
        overcommit: how many times its blocks an engine may have promised. At 1 no request is ever put aside for want of
            memory; above 1 more run at a time, since most end before their ``max_new_tokens``.
        batch_size: how many texts an encoder reads at a time.

    Raises:
        ConfigError: a number out of range.
    """

    memory_bytes: int | None = None
    blocks: int | None = None
    block: int = 16
    context: int | None = None
    max_rows: int = 64
    token_budget: int = 24
    prompt_budget: int = 256
    max_waiting: int = 256
    max_waiting_tokens: int | None = None
    prefix_cache: bool = True
    overcommit: float = 2.0
    batch_size: int = 32

    def __post_init__(self) -> None:
        at_least("memory_bytes", self.memory_bytes, 1)
        for name in ("blocks", "block", "context", "max_rows", "max_waiting_tokens"):
            within(name, getattr(self, name))
        for name in ("token_budget", "prompt_budget"):
            within(name, getattr(self, name), 8)
        within("batch_size", self.batch_size)
        within("max_waiting", self.max_waiting, 0)
        if not self.overcommit >= 1:
            raise ConfigError("overcommit must be a number from 1", value=self.overcommit)
        if self.blocks is not None and self.memory_bytes is not None:
            raise ConfigError(
                "the cache's size is said once", value=f"blocks={self.blocks}, memory_bytes={self.memory_bytes}"
            )
