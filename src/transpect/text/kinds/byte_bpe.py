"""Byte-pair encoding over bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from transpect.text.byte_level import BYTE_OF
from transpect.text.kinds.bpe import learn_merges
from transpect.text.kinds.common import (
    LM_PAIR,
    LM_ROLES,
    LM_SINGLE,
    Room,
    Specials,
    UnicodeForm,
    add_specials,
    needed_size,
    normalized,
    normalizer,
    numbered,
    template,
)


@dataclass(frozen=True)
class ByteBpe:
    """Byte-pair encoding over the bytes of UTF-8: all 256 are in the vocabulary, so any text at all round-trips.

    Source: Radford et al. 2019 (GPT-2), section 2.2.

    Args:
        use_regex: cut the text into words with GPT-2's pattern first, so that no token crosses from one to the next.
        add_prefix_space: read the text as if a space stood before it, so that its first word looks like all others;
            the space then shows in the decoded text.
        min_frequency: a pair seen fewer times is not merged, so the vocabulary may end smaller than asked.
        lowercase: read upper case as lower case. The text is then not what it was.
        unicode_form: ``"nfc"`` or ``"nfkc"``: read equivalent spellings as one. None changes nothing.
    """

    use_regex: bool = True
    add_prefix_space: bool = False
    min_frequency: int = 2
    lowercase: bool = False
    unicode_form: UnicodeForm | None = None

    tag: ClassVar[str] = "byte-bpe"
    # No unk: there is nothing that bytes can't spell.
    default_roles: ClassVar[Mapping[str, str]] = MappingProxyType({k: v for k, v in LM_ROLES.items() if k != "unk"})

    def train(self, texts: Sequence[str], vocab_size: int | None, specials: Specials) -> tokenizers.Tokenizer:
        """Learn the merges; see :class:`~transpect.text.kinds.common.Kind`."""
        size = needed_size(vocab_size, self.tag)
        Room(self.tag, size, len(specials.tokens)).left(len(BYTE_OF), "bytes")
        forms = normalizer(self.lowercase, self.unicode_form)
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=self.add_prefix_space, use_regex=self.use_regex)
        alphabet = sorted(BYTE_OF, key=BYTE_OF.__getitem__)

        pieces, merges = learn_merges(
            normalized(texts, forms), byte_level, alphabet, size - len(specials.tokens), self.min_frequency
        )
        backend = tokenizers.Tokenizer(models.BPE(numbered(specials.tokens, pieces), merges))
        if forms is not None:
            backend.normalizer = forms
        backend.pre_tokenizer = byte_level
        backend.decoder = decoders.ByteLevel()
        add_specials(backend, specials)
        backend.post_processor = template(backend, specials, LM_SINGLE, LM_PAIR)
        return backend
