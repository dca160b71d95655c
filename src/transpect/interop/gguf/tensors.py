"""Options that the tensors of a file decide, and those that follow others where they are absent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transpect.base.errors import CheckpointError
from transpect.interop.gguf.table import Entry, Source, Values

__all__ = ["FeedForward", "KvHeads", "Presence", "Rows", "Tied"]


@dataclass(frozen=True)
class Rows(Entry):
    """The vocabulary's size: the rows of the token table; ``vocab_size`` repeats it where a file has it."""

    table: str = "token_embd.weight"
    option: str = "vocab_size"
    keys: tuple[str, ...] = ()

    def read(self, source: Source) -> Values:
        if self.table not in source.shapes:
            raise CheckpointError(
                f"the file must hold the tensor {self.table}", remedy="A file with a vocabulary alone has no model."
            )
        return {self.option: source.shapes[self.table][0]}

    def write(self, config: Mapping[str, Any]) -> Values:
        return {"vocab_size": config[self.option]}


@dataclass(frozen=True)
class Presence(Entry):
    """An option that is true where a tensor is there."""

    option: str
    tensor: str
    keys: tuple[str, ...] = ()

    def read(self, source: Source) -> Values:
        return {self.option: self.tensor in source.shapes}

    def write(self, config: Mapping[str, Any]) -> Values:
        return {}


@dataclass(frozen=True)
class Tied(Entry):
    """The head is the token table where the file has no head."""

    tensor: str = "output.weight"
    keys: tuple[str, ...] = ()

    def read(self, source: Source) -> Values:
        return {"tie_word_embeddings": self.tensor not in source.shapes}

    def write(self, config: Mapping[str, Any]) -> Values:
        return {}


@dataclass(frozen=True)
class KvHeads(Entry):
    """As many as query heads where the file does not say."""

    keys: tuple[str, ...] = ("attention.head_count_kv",)

    def read(self, source: Source) -> Values:
        heads = source.need("attention.head_count", int)
        return {"num_key_value_heads": source.get("attention.head_count_kv", int, heads)}

    def write(self, config: Mapping[str, Any]) -> Values:
        return {"attention.head_count_kv": config.get("num_key_value_heads") or config["num_attention_heads"]}


@dataclass(frozen=True)
class FeedForward(Entry):
    """GPT-2's ``n_inner``, four times the width where config.json has null."""

    keys: tuple[str, ...] = ("feed_forward_length",)

    def read(self, source: Source) -> Values:
        return {"n_inner": source.need("feed_forward_length", int)}

    def write(self, config: Mapping[str, Any]) -> Values:
        return {"feed_forward_length": config.get("n_inner") or 4 * config["n_embd"]}
