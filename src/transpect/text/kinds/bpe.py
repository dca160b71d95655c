"""Byte-pair encoding over characters, with bytes for the rare ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

from transpect.text.kinds.common import (
    BYTE_TOKENS,
    LM_PAIR,
    LM_ROLES,
    LM_SINGLE,
    WORDS,
    Room,
    Specials,
    UnicodeForm,
    add_specials,
    choose_alphabet,
    cut_at_others,
    needed_size,
    normalized,
    normalizer,
    numbered,
    template,
)

FALLBACK_FROM: Final = 2048
"""The ``vocab_size`` from which 256 byte tokens are a fair price for a text without unknown characters."""


@dataclass(frozen=True)
class Bpe:
    """Byte-pair encoding over Unicode characters: the most frequent pair of neighbours is merged, again and again.

    Spaces and newlines are characters like all others, so a text comes back exactly. A character without a token
    is spelled in its UTF-8 bytes (``<0xE7><0x8C><0xAB>``), or is the unk token.

    Source: Sennrich et al. 2016, section 3.2; byte fallback as in Llama 2's SentencePiece.

    Args:
        byte_fallback: spell rare characters in bytes, with 256 tokens for that; any text then round-trips. None:
            where ``vocab_size`` is 2,048 or more.
        character_coverage: the most frequent characters that make up this share of the text get a token. With byte
            fallback they take at most three quarters of the vocabulary.
        min_frequency: a pair seen fewer times is not merged, so the vocabulary may end smaller than asked.
        lowercase: read upper case as lower case. The text is then not what it was.
        unicode_form: ``"nfc"`` or ``"nfkc"``: read equivalent spellings as one. None changes nothing.
    """

    byte_fallback: bool | None = None
    character_coverage: float = 1.0
    min_frequency: int = 2
    lowercase: bool = False
    unicode_form: UnicodeForm | None = None

    tag: ClassVar[str] = "bpe"
    default_roles: ClassVar[Mapping[str, str]] = LM_ROLES

    def train(self, texts: Sequence[str], vocab_size: int | None, specials: Specials) -> tokenizers.Tokenizer:
        """Learn the merges; see :class:`~transpect.text.kinds.common.Kind`."""
        size = needed_size(vocab_size, self.tag)
        fallback = size >= FALLBACK_FROM if self.byte_fallback is None else self.byte_fallback
        unk = specials.need("unk", self.tag)
        forms = normalizer(self.lowercase, self.unicode_form)
        seen = normalized(texts, forms)
        room = Room(self.tag, size, len(specials.tokens), fallback)
        alphabet = choose_alphabet(seen, room, coverage=self.character_coverage)
        room.left(len(alphabet), "characters", ", or spell the rarest in bytes (byte_fallback)")
        byte_tokens = BYTE_TOKENS if fallback else []
        words = pre_tokenizers.Split(Regex(WORDS), "isolated")

        pieces, merges = learn_merges(
            cut_at_others(seen, alphabet),
            words,
            alphabet,
            size - len(specials.tokens) - len(byte_tokens),
            self.min_frequency,
        )
        vocab = numbered(specials.tokens, byte_tokens, pieces)
        backend = tokenizers.Tokenizer(models.BPE(vocab, merges, unk_token=unk, byte_fallback=fallback))
        if forms is not None:
            backend.normalizer = forms
        backend.pre_tokenizer = words
        backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
        add_specials(backend, specials)
        backend.post_processor = template(backend, specials, LM_SINGLE, LM_PAIR)
        return backend


def learn_merges(
    texts: Sequence[str],
    words: pre_tokenizers.PreTokenizer,
    alphabet: Sequence[str],
    size: int,
    min_frequency: int,
) -> tuple[list[str], list[tuple[str, str]]]:
    """Merge until there are ``size`` pieces or no pair is frequent enough.

    Ties go to the pair whose pieces came first, so the result depends on the texts alone, not on threads.

    Returns:
        The pieces (the alphabet, then one a merge) and the merges in the order learnt.
    """
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = words
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        show_progress=False,
        initial_alphabet=list(alphabet),
        limit_alphabet=len(alphabet),
    )
    backend.train_from_iterator(texts, trainer)
    learnt = json.loads(backend.to_str())["model"]
    pieces = sorted(learnt["vocab"], key=learnt["vocab"].__getitem__)
    return pieces, [(left, right) for left, right in learnt["merges"]]
