"""The tokenizer of a GGUF file, rebuilt from its metadata.

The kinds (``tokenizer.ggml.model``): ``gpt2``, byte pairs over bytes, cut as ``tokenizer.ggml.pre`` says; ``llama``,
SentencePiece merged by score; ``bert``, WordPiece; ``t5``, Unigram.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and llama.cpp, ``src/llama-vocab.cpp``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from transpect.base.errors import TokenizerError
from transpect.base.gguf import read_gguf
from transpect.text.gguf.pre import PRE, Pre
from transpect.text.spm import Kind, Pieces, added, bpe, framed, unigram
from transpect.text.tokenizer import METASPACE, Tokenizer

__all__ = ["GGML", "IDS", "load_gguf_tokenizer", "tokenizer_from"]

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


def load_gguf_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a GGUF file.

    Raises:
        TokenizerError: a file without one, or with one of a kind, or a pre-tokenizer, that is not known.
        CheckpointError: a damaged file.
    """
    try:
        return tokenizer_from(read_gguf(path).metadata)
    except TokenizerError as error:
        error.file = error.file or path
        raise


def tokenizer_from(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that a file's metadata describe.

    Raises:
        TokenizerError: see `load_gguf_tokenizer`.
    """
    model = metadata.get(GGML + "model")
    if not isinstance(model, str) or model not in _KINDS:
        raise TokenizerError(
            f"{GGML}model must be one of {', '.join(_KINDS)}",
            value=model,
            remedy="Use the tokenizer of the model's Hugging Face directory.",
        )
    about = _About(metadata)
    roles = about.roles()
    if HF_JSON in metadata:
        backend = _as_published(metadata[HF_JSON], about)
    else:
        backend, frame = _KINDS[model](about)
        before, after = ([roles[role] for role in side if role in roles] for side in frame)
        framed(backend, before, after)
    length = metadata.get(f"{metadata.get('general.architecture')}.context_length")
    return Tokenizer(
        backend,
        roles,
        chat_templates=_chat_templates(metadata),
        extra_config={"model_max_length": length} if isinstance(length, int) else {},
    )


def _as_published(text: object, about: _About) -> tokenizers.Tokenizer:
    """The tokenizer.json in a file, which must have the file's vocabulary."""
    try:
        backend = tokenizers.Tokenizer.from_str(str(text))
    except Exception as error:  # what `tokenizers` raises is a plain Exception
        raise TokenizerError(f"{HF_JSON} is no tokenizer.json ({error})", remedy="Convert the model again.") from error
    spelled = about.words() if isinstance(backend.model, models.WordPiece) else about.tokens
    for token, i in backend.get_vocab(with_added_tokens=True).items():
        if i >= len(spelled) or spelled[i] != token:
            raise TokenizerError(
                f"{HF_JSON} must have the vocabulary of {GGML}tokens", value=token, remedy="Convert the model again."
            )
    return backend


Frame = tuple[tuple[str, ...], tuple[str, ...]]
"""The roles that stand before and after a text."""


class _About:
    """What the metadata say, checked."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata
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
        scores: list[float] = values.astype(np.float64).tolist()
        if not np.isfinite(values.astype(np.float64)).all():
            raise TokenizerError(f"{GGML}scores must be finite")
        return scores

    def roles(self) -> dict[str, str]:
        """The tokens that the file gives a role; an id beyond the vocabulary is none, as in llama.cpp."""
        ids = {role: self.get(key, int) for role, key in IDS.items()}
        if self._metadata[GGML + "model"] == "bert":
            # llama.cpp keeps BERT's [CLS] as what a text begins with
            ids["cls"] = ids["bos"] if ids["cls"] is None else ids["cls"]
            ids |= {"bos": None, "eos": None}
            ids |= {role: number for role, number in _BERT_IDS.items() if ids[role] is None}
        elif self._metadata[GGML + "model"] == "llama":
            ids |= {role: number for role, number in _LLAMA_IDS.items() if ids[role] is None}
        return {role: self.tokens[i] for role, i in ids.items() if i is not None and 0 <= i < len(self.tokens)}

    def special(self) -> tuple[list[str], list[str]]:
        """The tokens that are matched whole: special ones, and user-defined ones."""
        by_kind = list(zip(self.tokens, self.kinds, strict=True))
        return (
            [token for token, kind in by_kind if kind in (Kind.CONTROL, Kind.UNKNOWN)],
            [token for token, kind in by_kind if kind == Kind.USER_DEFINED],
        )

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


_BERT_IDS: Final = {"cls": 101, "sep": 102, "unk": 100, "pad": 0, "mask": 103}
_LLAMA_IDS: Final = {"bos": 1, "eos": 2, "unk": 0}
"""The ids that llama.cpp takes where a file of these kinds does not say them."""


def _kind(number: int) -> Kind:
    return Kind(number) if number in Kind._value2member_map_ else Kind.UNDEFINED


def _gpt2(about: _About) -> tuple[tokenizers.Tokenizer, Frame]:
    name = about.get("pre", str)
    if name not in PRE:
        raise TokenizerError(
            f"{GGML}pre must name a pre-tokenizer that is known",
            value=name,
            remedy=f"Use the model's tokenizer.json. Known are {', '.join(PRE)}.",
        )
    pre: Pre = PRE[name]
    merges = about.get("merges", list)
    if merges is None or not all(isinstance(merge, str) and " " in merge[1:] for merge in merges):
        raise TokenizerError(f"{GGML}merges must be a list of pairs, each parted by a space")
    pairs = []
    for merge in merges:
        at = merge.index(" ", 1)
        pairs.append((merge[:at], merge[at + 1 :]))
    vocab = {token: i for i, token in enumerate(about.tokens)}
    lost = next((f"{a} {b}" for a, b in pairs if not (a in vocab and b in vocab and a + b in vocab)), None)
    if lost is not None:
        raise TokenizerError("both parts of a merge and what they make must be tokens", value=lost)
    spells_bytes = not pre.byte_level and {f"<0x{byte:02X}>" for byte in range(256)} <= vocab.keys()
    model = models.BPE(vocab, pairs, ignore_merges=pre.ignore_merges, byte_fallback=spells_bytes)
    backend = tokenizers.Tokenizer(model)
    normalizer = pre.normalizer()
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.pre_tokenizer = pre.pre_tokenizer()
    if pre.byte_level:
        backend.decoder = decoders.ByteLevel()
    else:
        steps = [decoders.Replace(METASPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
        backend.decoder = decoders.Sequence(steps)
    added(backend, *about.special())
    return backend, about.frame(pre.adds_bos, False)


def _llama(about: _About) -> tuple[tokenizers.Tokenizer, Frame]:
    # llama.cpp does not normalise these: no table, and every space stays
    pieces = Pieces(about.tokens, about.scores(), about.kinds, prefix=about.flag("add_space_prefix", True))
    return bpe(pieces), about.frame(True, False)


def _t5(about: _About) -> tuple[tokenizers.Tokenizer, Frame]:
    return unigram(about.pieces(prefix=True)), about.frame(False, True)


def _bert(about: _About) -> tuple[tokenizers.Tokenizer, Frame]:
    special, user_defined = about.special()
    roles = about.roles()
    whole = {*special, *user_defined, *roles.values()}
    words = about.words()
    if len(set(words)) < len(words):
        raise TokenizerError("two tokens of the vocabulary are the same WordPiece", remedy="Convert the model again.")
    # An uncased vocabulary has no upper case in any word.
    cased = any(token != token.lower() for token in about.tokens if token not in whole and not _bracketed(token))
    lowercase = about.flag("normalizer.lowercase", not cased)
    strip = about.flag("normalizer.strip_accents", lowercase)
    unk = roles.get("unk", "[UNK]")
    vocab = {word: i for i, word in enumerate(words)}
    if unk not in vocab:
        raise TokenizerError("a WordPiece vocabulary needs a token for what it can't spell", value=unk)
    backend = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token=unk, max_input_chars_per_word=100))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=strip, lowercase=lowercase
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    added(backend, special, user_defined)
    before = ("cls",) if about.flag("add_bos_token", True) else ()
    return backend, (before, ("sep",) if about.flag("add_eos_token", True) else ())


def _bracketed(token: str) -> bool:
    return token.startswith("[") and token.endswith("]")


def _word_piece(token: str, whole: bool) -> str:
    """The file marks the pieces that begin a word, with ``▁``; WordPiece marks the others, with ``##``."""
    if token.startswith(METASPACE) and not whole:
        return token[len(METASPACE) :]
    return token if whole or _bracketed(token) else f"##{token}"


_KINDS: Final[dict[str, Callable[[_About], tuple[tokenizers.Tokenizer, Frame]]]] = {
    "gpt2": _gpt2,
    "llama": _llama,
    "bert": _bert,
    "t5": _t5,
}


def _chat_templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    key = "tokenizer.chat_template"
    found = {name[len(key) + 1 :]: text for name, text in metadata.items() if name.startswith(f"{key}.")}
    found |= {"default": metadata[key]} if key in metadata else {}
    for name, text in found.items():
        if not isinstance(text, str):
            raise TokenizerError(f"the chat template {name} must be a string", value=text)
    return found
