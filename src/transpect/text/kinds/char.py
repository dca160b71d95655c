"""One token a Unicode character."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import tokenizers
from tokenizers import decoders, models

from transpect.text.kinds.common import (
    BYTE_TOKENS,
    LM_PAIR,
    LM_ROLES,
    LM_SINGLE,
    Room,
    Specials,
    UnicodeForm,
    add_specials,
    choose_alphabet,
    normalized,
    normalizer,
    numbered,
    template,
)


@dataclass(frozen=True)
class Char:
    """One token a Unicode character (code point): spaces, newlines and combining marks too, none of them changed.

    A character that was not seen in training is the unk token, or its UTF-8 bytes.

    Args:
        byte_fallback: spell characters without a token in bytes (256 more tokens), so that any text round-trips.
            With it the rarest characters go where ``vocab_size`` is too small; without it that is an error.
        min_frequency: a character seen fewer times gets no token.
        lowercase: read upper case as lower case. The text is then not what it was.
        unicode_form: ``"nfc"`` or ``"nfkc"``: read equivalent spellings as one. None changes nothing.
    """

    byte_fallback: bool = False
    min_frequency: int = 1
    lowercase: bool = False
    unicode_form: UnicodeForm | None = None

    tag: ClassVar[str] = "char"
    default_roles: ClassVar[Mapping[str, str]] = LM_ROLES

    def train(self, texts: Sequence[str], vocab_size: int | None, specials: Specials) -> tokenizers.Tokenizer:
        """Count the characters; see :class:`~transpect.text.kinds.common.Kind`."""
        unk = specials.need("unk", self.tag)
        forms = normalizer(self.lowercase, self.unicode_form)
        room = Room(self.tag, vocab_size, len(specials.tokens), self.byte_fallback)
        alphabet = choose_alphabet(normalized(texts, forms), room, min_frequency=self.min_frequency, fallback_share=1.0)
        room.left(len(alphabet), "characters", ", or spell the rarest in bytes (byte_fallback)")
        byte_tokens = BYTE_TOKENS if self.byte_fallback else []
        # A BPE without merges: the whole text is one word, and each character of it a token.
        vocab = numbered(specials.tokens, byte_tokens, alphabet)
        model = models.BPE(vocab, [], unk_token=unk, byte_fallback=self.byte_fallback)
        backend = tokenizers.Tokenizer(model)
        if forms is not None:
            backend.normalizer = forms
        backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
        add_specials(backend, specials)
        backend.post_processor = template(backend, specials, LM_SINGLE, LM_PAIR)
        return backend
