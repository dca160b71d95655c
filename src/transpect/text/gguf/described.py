"""What the metadata of a GGUF file say of its tokenizer, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from transpect.base.errors import TokenizerError
from transpect.text.spm import Kind, Pieces
from transpect.text.tokenizer import METASPACE

__all__ = ["GGML", "HF_JSON", "IDS", "Described", "Frame", "bracketed"]

GGML: Final = "tokenizer.ggml."
HF_JSON: Final = "tokenizer.huggingface.json"
"""The key of a whole tokenizer.json."""
IDS: Final = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "pad": "padding_token_id",
    "unk": "unknown_token_id",
    "mask": "mask_token_id",
    "cls": "cls_token_id",
    "sep": "seperator_token_id",  # spelled so in the format
}
"""The key, after `GGML`, of each role."""

Frame = tuple[tuple[str, ...], tuple[str, ...]]
"""The roles that stand before and after a text."""


class Described:
    """What the metadata say, checked."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata
        self.model = metadata[GGML + "model"]
        tokens = self.get("tokens", list)
        if not tokens or not all(isinstance(token, str) for token in tokens):
            raise TokenizerError(f"{GGML}tokens must be a list of strings", remedy="This file has no vocabulary.")
        self.tokens: list[str] = [token or f"[EMPTY_{i}]" for i, token in enumerate(tokens)]
        if len(set(self.tokens)) < len(self.tokens):
            seen: set[str] = set()
            twice = next(t for t in self.tokens if t in seen or seen.add(t))  # type: ignore[func-returns-value]
            raise TokenizerError("a token may stand in a vocabulary only once", value=twice)
        kinds = self._numbers("token_type")
        self.kinds = [Kind.NORMAL] * len(tokens) if kinds is None else [_kind(number) for number in kinds.tolist()]

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        value = self._metadata.get(GGML + key)
        if value is None:
            return default
        if type(value) is not kind:
            raise TokenizerError(f"{GGML}{key} must be of the type {kind.__name__}", value=value)
        return value

    def _numbers(self, key: str) -> np.ndarray[Any, Any] | None:
        values: np.ndarray[Any, Any] | None = self.get(key, np.ndarray)
        if values is not None and len(values) != len(self.tokens):
            raise TokenizerError(
                f"{GGML}{key} must have a number for each of the {len(self.tokens)} tokens", value=len(values)
            )
        return values

    def flag(self, key: str, default: bool) -> bool:
        return bool(self.get(key, bool, default))

    def scores(self) -> list[float]:
        values = self._numbers("scores")
        if values is None:
            raise TokenizerError(f"a vocabulary of this kind needs {GGML}scores", remedy="Convert the model again.")
        if not np.isfinite(values).all():
            raise TokenizerError(f"{GGML}scores must be finite", remedy="Convert the model again.")
        scores: list[float] = values.astype(np.float64).tolist()
        return scores

    def roles(self) -> dict[str, str]:
        """The tokens that the file gives a role; an id beyond the vocabulary is none, as in llama.cpp."""
        ids = {role: self.get(key, int) for role, key in IDS.items()}
        if self.model == "bert":
            # llama.cpp keeps BERT's [CLS] as what a text begins with
            ids["cls"] = ids["bos"] if ids["cls"] is None else ids["cls"]
            ids |= {"bos": None, "eos": None}
            ids |= {role: number for role, number in _BERT_IDS.items() if ids[role] is None}
        elif self.model == "llama":
            ids |= {role: number for role, number in _LLAMA_IDS.items() if ids[role] is None}
        return {role: self.tokens[i] for role, i in ids.items() if i is not None and 0 <= i < len(self.tokens)}

    def special(self) -> tuple[list[str], list[str]]:
        """The tokens that are matched whole: special ones, and user-defined ones."""
        by_kind = list(zip(self.tokens, self.kinds, strict=True))
        return (
            [token for token, kind in by_kind if kind in (Kind.CONTROL, Kind.UNKNOWN)],
            [token for token, kind in by_kind if kind == Kind.USER_DEFINED],
        )

    def strips(self) -> dict[str, dict[str, bool]]:
        """The special tokens that take the spaces beside them along; the format has no key for it, so it goes by the
        model's name, as in llama.cpp."""
        pre, name = self.get("pre", str, ""), str(self._metadata.get("general.name", "")).lower()
        architecture = self._metadata.get("general.architecture")
        if pre in _MASK_STRIPS or architecture in ("nomic-bert-moe", "jina-bert-v3"):
            return {"<mask>": {"lstrip": True}}
        if "modern-bert" in name:
            return {"[MASK]": {"lstrip": True}}
        if "phi-3" in name or "phi3" in name:
            plain = ("<unk>", "<s>", "<|endoftext|>")
            return {token: {"rstrip": True} for token in (*self.special()[0], "</s>") if token not in plain}
        return {}

    def pieces(self, *, prefix: bool) -> Pieces:
        charsmap = self.get("precompiled_charsmap", np.ndarray)
        return Pieces(
            self.tokens,
            self.scores(),
            self.kinds,
            prefix=self.flag("add_space_prefix", prefix),
            squeeze=self.flag("remove_extra_whitespaces", False),
            charsmap=b"" if charsmap is None else charsmap.astype(np.uint8).tobytes(),
        )

    def words(self) -> list[str]:
        """BERT's tokens as WordPiece spells them."""
        special, user_defined = self.special()
        whole = {*special, *user_defined, *self.roles().values()}
        return [_word_piece(token, token in whole) for token in self.tokens]

    def frame(self, bos: bool, eos: bool) -> Frame:
        before = ("bos",) if self.flag("add_bos_token", bos) else ()
        return before, ("eos",) if self.flag("add_eos_token", eos) else ()


_MASK_STRIPS: Final = ("jina-v2-de", "jina-v2-es", "jina-v2-code")
_BERT_IDS: Final = {"cls": 101, "sep": 102, "unk": 100, "pad": 0, "mask": 103}
_LLAMA_IDS: Final = {"bos": 1, "eos": 2, "unk": 0}
"""The ids that llama.cpp takes where a file of these kinds does not say them."""


def _kind(number: int) -> Kind:
    return Kind(number) if number in Kind._value2member_map_ else Kind.UNDEFINED


def bracketed(token: str) -> bool:
    """Whether a token looks like BERT's special ones."""
    return token.startswith("[") and token.endswith("]")


def _word_piece(token: str, whole: bool) -> str:
    """The file marks the pieces that begin a word, with ``▁``; WordPiece marks the others, with ``##``."""
    if token.startswith(METASPACE) and not whole:
        return token[len(METASPACE) :]
    return token if whole or bracketed(token) else f"##{token}"
