"""Vocabularies of SentencePiece: pieces with scores, merged by score or chosen by it.

One description, `Pieces`, for its own ``.model`` files and for GGUF, and the ``tokenizers`` backends that give the same
ids.

Source: Kudo & Richardson 2018; https://github.com/google/sentencepiece.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from transpect.base.errors import TokenizerError
from transpect.text.tokenizer import METASPACE

__all__ = ["Kind", "Pieces", "bpe", "framed", "merges_by_score", "unigram"]


class Kind(IntEnum):
    """What a piece is; the numbers are those of ``ModelProto.SentencePiece.Type`` and of GGUF's ``token_type``."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


SPELLED: Final = (Kind.NORMAL, Kind.USER_DEFINED, Kind.UNUSED, Kind.UNDEFINED)
"""The kinds of pieces that stand for their own text."""


@dataclass(frozen=True)
class Pieces:
    """A vocabulary of SentencePiece.

    Attributes:
        texts: the pieces, by id; no two are equal.
        scores: of each.
        kinds: of each.
        prefix: begin a text with a space.
        squeeze: spaces at either end are dropped, and of several in a row one is left.
        charsmap: the compiled table of the normaliser; empty changes nothing.
        suffix: the space that marks a word stands behind it, not before it.
        whole_text: as in SentencePiece, a text is normalised as a whole, and user-defined pieces are found after that.
            False is as in llama.cpp: they part the text first, and what is between them is normalised by itself, so
            that each stretch begins with a space of its own.
    """

    texts: Sequence[str]
    scores: Sequence[float]
    kinds: Sequence[Kind]
    prefix: bool = True
    squeeze: bool = False
    charsmap: bytes = b""
    suffix: bool = False
    whole_text: bool = False

    def of(self, *kinds: Kind) -> list[str]:
        """The pieces of some kinds."""
        return [text for text, kind in zip(self.texts, self.kinds, strict=True) if kind in kinds]

    @property
    def unknown(self) -> int | None:
        """The id of the piece for what can't be spelled."""
        return next((i for i, kind in enumerate(self.kinds) if kind == Kind.UNKNOWN), None)

    @property
    def spells_bytes(self) -> bool:
        """Whether there is a piece for every byte."""
        return {f"<0x{byte:02X}>" for byte in range(256)} <= set(self.of(Kind.BYTE))


def merges_by_score(pieces: Pieces) -> list[tuple[str, str]]:
    """The pairs that the merging of SentencePiece joins, the first to join first.

    It joins the two neighbours whose joined piece has the highest score, and of equal ones the leftmost. Every way to
    part a piece into two pieces is therefore a merge, in the order of the scores. Pieces of equal scores are ordered by
    id here, since a list of merges can't say "the leftmost": only vocabularies that were patched together have these.

    Pieces that stand for no text (control, unknown, byte) are never joined, as in SentencePiece.

    Raises:
        TokenizerError: all pieces have the same score, so that nothing says what is joined first.
    """
    ids = {text: i for i, (text, kind) in enumerate(zip(pieces.texts, pieces.kinds, strict=True)) if kind in SPELLED}
    found = []
    for text, i in ids.items():
        splits = [(text[:cut], text[cut:]) for cut in range(1, len(text))]
        parts = sorted((ids[left], ids[right]) for left, right in splits if left in ids and right in ids)
        found += [(-pieces.scores[i], i, left, right) for left, right in parts]
    found.sort(key=lambda row: row[:2])  # stable: the splits of a piece stay together
    if len({row[1] for row in found}) > 1 and found[0][0] == found[-1][0]:
        raise TokenizerError(
            "the scores of a vocabulary must say which pieces are merged first, and all are equal",
            value=-found[0][0],
            remedy="Use the model's tokenizer.json or tokenizer.model instead, or convert it again from the latter.",
        )
    return [(pieces.texts[left], pieces.texts[right]) for _, _, left, right in found]


def bpe(pieces: Pieces) -> tokenizers.Tokenizer:
    """The backend that merges by score.

    Raises:
        TokenizerError: see `merges_by_score`.
    """
    unknown = pieces.unknown
    # a user-defined piece, cut out of its text, is itself; then no other piece may be found by its mere text either
    whole = pieces.whole_text and Kind.USER_DEFINED in pieces.kinds
    model = models.BPE(
        {text: i for i, text in enumerate(pieces.texts)},
        merges_by_score(pieces),
        unk_token=None if unknown is None else pieces.texts[unknown],
        fuse_unk=True,
        byte_fallback=pieces.spells_bytes,
        ignore_merges=whole,
    )
    backend = tokenizers.Tokenizer(model)
    whole_pieces = sorted(pieces.of(Kind.USER_DEFINED), key=len, reverse=True)
    _around(backend, pieces, [*_tears(pieces), *map(re.escape, whole_pieces)] if whole else [])
    return backend


def unigram(pieces: Pieces) -> tokenizers.Tokenizer:
    """The backend that chooses the pieces whose scores have the largest sum.

    Raises:
        TokenizerError: no unknown piece.
    """
    if pieces.unknown is None:
        raise TokenizerError("a Unigram vocabulary needs an unknown piece", remedy="Check the kinds of its pieces.")
    normal = [score for score, kind in zip(pieces.scores, pieces.kinds, strict=True) if kind == Kind.NORMAL]
    best = max(normal, default=0.0)
    vocab = [
        (text, len(text.encode()) * best - 0.1 if kind == Kind.USER_DEFINED else float(score))
        for text, score, kind in zip(pieces.texts, pieces.scores, pieces.kinds, strict=True)
    ]
    backend = tokenizers.Tokenizer(models.Unigram(vocab, pieces.unknown, byte_fallback=pieces.spells_bytes))
    _around(backend, pieces, _tears(pieces))
    return backend


def _tears(pieces: Pieces) -> list[str]:
    """Where a text must be cut so that no piece is found in it that stands for no text of its own, e.g. ``</s>``.

    These are cut out of the text as special tokens before; but not where they are to be read as ordinary text. Each is
    torn between two characters that no other piece holds side by side, if there are such, so that nothing else changes.
    """
    others = "\0".join(pieces.of(*SPELLED))
    alone = {text for text in pieces.of(*SPELLED) if len(text) == 1}

    def tear(text: str, behind: str) -> str:
        free = (
            cut
            for cut in range(1, len(text))
            if text[cut - 1 : cut + 1] not in others and (pieces.spells_bytes or {text[cut - 1], text[cut]} & alone)
        )
        cut = next(free, 1)
        return f"(?<={re.escape(text[:cut])})(?={re.escape(text[cut:])}{behind})"

    found = [tear(text, "") for text in pieces.of(Kind.CONTROL, Kind.UNKNOWN, Kind.UNUSED) if len(text) > 1]
    return [*found, tear("<0x", "[0-9A-F]{2}>")] if Kind.BYTE in pieces.kinds else found


def _around(backend: tokenizers.Tokenizer, pieces: Pieces, cuts: Sequence[str]) -> None:
    """Normaliser, pre-tokenizer (patterns that cut), decoder and added tokens."""
    if pieces.suffix:
        raise TokenizerError("spaces that are marked behind a word are not supported", remedy="Use a tokenizer.json.")
    steps: list[normalizers.Normalizer] = []
    if pieces.charsmap:
        steps.append(_table(pieces.charsmap))
    if pieces.squeeze:
        steps += [normalizers.Replace(Regex(rf"\A +|[ {METASPACE}]+\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    if pieces.prefix:
        steps.append(normalizers.Prepend(" "))
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", METASPACE)])
    if cuts:
        backend.pre_tokenizer = pre_tokenizers.Split(Regex("|".join(cuts)), "isolated")
    shown: list[decoders.Decoder] = [decoders.Replace(METASPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if pieces.prefix:
        shown.append(decoders.Strip(" ", 1, 0))
    backend.decoder = decoders.Sequence(shown)
    user_defined = [] if pieces.whole_text else pieces.of(Kind.USER_DEFINED)
    added(backend, pieces.of(Kind.CONTROL, Kind.UNKNOWN), user_defined)


def _table(charsmap: bytes) -> normalizers.Normalizer:
    try:
        return normalizers.Precompiled(charsmap)
    except Exception as error:  # what `tokenizers` raises is a plain Exception
        raise TokenizerError(
            f"the normaliser's table can't be read ({error})", remedy="Copy the file again."
        ) from error


def added(
    backend: tokenizers.Tokenizer,
    special: Sequence[str],
    user_defined: Sequence[str],
    strips: Mapping[str, Mapping[str, bool]] = MappingProxyType({}),
) -> None:
    """Make tokens match whole in text: special ones, and those that are ordinary text besides.

    Args:
        backend: gets them.
        special: tokens.
        user_defined: tokens.
        strips: which of them take the spaces beside them along (``lstrip``, ``rstrip``).
    """
    for tokens, is_special in ((special, True), (user_defined, False)):
        made = [AddedToken(text, special=is_special, normalized=False, **strips.get(text, {})) for text in tokens]
        if is_special:
            backend.add_special_tokens(made)
        else:
            backend.add_tokens(made)


def framed(backend: tokenizers.Tokenizer, before: Sequence[str], after: Sequence[str]) -> None:
    """Let ``add_special_tokens=True`` put tokens around a text."""
    if not before and not after:
        return
    ids = [(token, backend.token_to_id(token)) for token in dict.fromkeys([*before, *after])]
    backend.post_processor = processors.TemplateProcessing(
        single=[*before, "$A", *after],
        pair=[*before, "$A", *after, "$B:1", *(f"{token}:1" for token in after)],
        special_tokens=ids,
    )
