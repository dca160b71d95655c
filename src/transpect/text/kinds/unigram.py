"""Unigram: the pieces that make the text most probable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from transpect.base.errors import TokenizerError
from transpect.text.kinds.common import (
    BYTE_TOKENS,
    Room,
    Specials,
    UnicodeForm,
    add_specials,
    choose_alphabet,
    cut_at_others,
    needed_size,
    normalized,
    normalizer,
    template,
)
from transpect.text.tokenizer import METASPACE

WORDS = (
    rf"{METASPACE}?[\p{{L}}\p{{M}}]+|{METASPACE}?\p{{N}}+|{METASPACE}?[^\s\p{{L}}\p{{M}}\p{{N}}{METASPACE}]+"
    rf"|[\s{METASPACE}]+(?![^\s{METASPACE}])|[\s{METASPACE}]+"
)
"""The words of :data:`transpect.text.kinds.common.WORDS`, with spaces spelled ``▁``; contractions stay whole."""


@dataclass(frozen=True)
class Unigram:
    """A probability for each piece; a text is spelled by the pieces whose product of probabilities is largest.

    A space is spelled ``▁`` (U+2581), so that character itself comes back as a space; all others come back exactly,
    spaces and newlines too. Training starts from all frequent substrings and drops what the text misses least.

    Source: Kudo 2018, section 3.2; roles and template as in T5 (Raffel et al. 2020).

    Args:
        byte_fallback: spell characters without a token in bytes (256 more tokens), so that any text round-trips.
        dummy_prefix: begin a text with ``▁``, so that its first word looks like all others. A stretch of text after
            a special token begins so too, and shows that space when it is decoded.
        character_coverage: the most frequent characters that make up this share of the text get a token.
        max_piece_length: no piece has more characters.
        lowercase: read upper case as lower case. The text is then not what it was.
        unicode_form: ``"nfc"`` or ``"nfkc"``: read equivalent spellings as one. None changes nothing.
    """

    byte_fallback: bool = False
    dummy_prefix: bool = True
    character_coverage: float = 1.0
    max_piece_length: int = 16
    lowercase: bool = False
    unicode_form: UnicodeForm | None = None

    tag: ClassVar[str] = "unigram"
    default_roles: ClassVar[Mapping[str, str]] = {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"}

    def train(self, texts: Sequence[str], vocab_size: int | None, specials: Specials) -> tokenizers.Tokenizer:
        """Learn the pieces; see :class:`~transpect.text.kinds.common.Kind`."""
        from transpect.text.kinds.unigram_em import train_unigram

        size = needed_size(vocab_size, self.tag)
        if self.max_piece_length < 1:
            raise TokenizerError("max_piece_length must be at least 1", value=self.max_piece_length, remedy="Take 16.")
        unk = specials.need("unk", self.tag)
        spaces = [normalizers.Replace(" ", METASPACE)]
        prefix = [normalizers.Prepend(METASPACE)] if self.dummy_prefix else []
        forms = normalizer(self.lowercase, self.unicode_form, *prefix, *spaces)
        words = pre_tokenizers.Split(Regex(WORDS), "isolated")

        seen = normalized(texts, forms)
        room = Room(self.tag, size, len(specials.tokens), self.byte_fallback)
        alphabet = choose_alphabet(seen, room, coverage=self.character_coverage)
        room.left(
            len(alphabet), "characters", ", lower character_coverage, or spell the rarest in bytes (byte_fallback)"
        )
        byte_tokens = BYTE_TOKENS if self.byte_fallback else []
        counts = Counter(w for t in cut_at_others(seen, alphabet) for w, _ in words.pre_tokenize_str(t))
        fixed = [*specials.tokens, *byte_tokens]
        pieces = train_unigram(counts, alphabet, size - len(fixed), self.max_piece_length)

        vocab = [*((token, 0.0) for token in fixed), *(p for p in pieces if p[0] not in fixed)]
        model = models.Unigram(vocab, unk_id=fixed.index(unk), byte_fallback=self.byte_fallback)
        backend = tokenizers.Tokenizer(model)
        if forms is not None:
            backend.normalizer = forms
        backend.pre_tokenizer = words
        strip = [decoders.Strip(" ", 1, 0)] if self.dummy_prefix else []
        backend.decoder = decoders.Sequence(
            [decoders.Replace(METASPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
        )
        add_specials(backend, specials)
        backend.post_processor = template(backend, specials, "$A {eos}", "$A {eos} $B:1 {eos}:1")
        return backend
