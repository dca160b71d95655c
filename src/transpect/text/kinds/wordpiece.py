"""WordPiece: words, and parts of words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from transpect.text.kinds.common import (
    Room,
    Specials,
    add_specials,
    choose_alphabet,
    cut_at_others,
    needed_size,
    normalized,
    numbered,
    template,
)

PREFIX = "##"


@dataclass(frozen=True)
class WordPiece:
    """BERT's vocabulary: a word is spelled by the longest pieces that fit, later ones marked ``##``.

    Words are parted at spaces and punctuation, and each Chinese character is one. Decoding puts spaces between words
    and takes them away before punctuation; case, accents (with ``lowercase``) and the original spaces are lost.
    The pieces are learnt by merging frequent pairs, as the ``tokenizers`` package does; Google's trainer is not public.

    Source: Devlin et al. 2019, section 3 and the released ``tokenization.py``; Wu et al. 2016, section 4.1.

    Args:
        lowercase: read upper case as lower case (BERT's "uncased").
        strip_accents: drop accents; None: when ``lowercase``.
        character_coverage: the most frequent characters that make up this share of the text get a token; a word
            with any other is the unk token.
        min_frequency: a pair seen fewer times is not merged, so the vocabulary may end smaller than asked.
    """

    lowercase: bool = True
    strip_accents: bool | None = None
    character_coverage: float = 1.0
    min_frequency: int = 2

    tag: ClassVar[str] = "wordpiece"
    default_roles: ClassVar[Mapping[str, str]] = {
        "pad": "[PAD]",
        "unk": "[UNK]",
        "cls": "[CLS]",
        "sep": "[SEP]",
        "mask": "[MASK]",
    }

    def train(self, texts: Sequence[str], vocab_size: int | None, specials: Specials) -> tokenizers.Tokenizer:
        """Learn the pieces; see :class:`~transpect.text.kinds.common.Kind`."""
        size = needed_size(vocab_size, self.tag)
        unk = specials.need("unk", self.tag)
        forms = normalizers.BertNormalizer(lowercase=self.lowercase, strip_accents=self.strip_accents)
        # BertNormalizer puts spaces around Chinese characters; they part words and are no characters to learn.
        seen = [" ".join(text.split()) for text in normalized(texts, forms)]
        room = Room(self.tag, size, len(specials.tokens))
        alphabet = choose_alphabet((text.replace(" ", "") for text in seen), room, coverage=self.character_coverage)
        words = cut_at_others(seen, [*alphabet, " "])

        first = _learn(words, alphabet, [], size=0, min_frequency=self.min_frequency)
        # Which characters also occur inside words is known only now. Given in a fixed order, they fix the ids that
        # the trainer breaks ties by; left to itself it numbers them in the order of a randomly seeded hash map.
        inner = sorted(piece for piece in first if piece.startswith(PREFIX) and len(piece) == len(PREFIX) + 1)
        room.left(
            len(alphabet) + len(inner),
            "characters (at the start of words, and inside)",
            ", or lower character_coverage",
        )
        pieces = _learn(words, alphabet, inner, size - len(specials.tokens), self.min_frequency)

        vocab = numbered(specials.tokens, alphabet, inner, pieces)
        backend = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token=unk, continuing_subword_prefix=PREFIX))
        backend.normalizer = forms
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        backend.decoder = decoders.WordPiece(prefix=PREFIX, cleanup=True)
        add_specials(backend, specials)
        backend.post_processor = template(backend, specials, "{cls} $A {sep}", "{cls} $A {sep} $B:1 {sep}:1")
        return backend


def _learn(
    words: Sequence[str], alphabet: Sequence[str], inner: Sequence[str], size: int, min_frequency: int
) -> list[str]:
    """At most ``size`` pieces: the alphabet, the same inside words, and what is merged from them, in that order."""
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        show_progress=False,
        special_tokens=list(inner),
        initial_alphabet=list(alphabet),
        limit_alphabet=len(alphabet),
        continuing_subword_prefix=PREFIX,
    )
    backend.train_from_iterator(words, trainer)
    vocab: dict[str, int] = json.loads(backend.to_str())["model"]["vocab"]
    return sorted(vocab, key=vocab.__getitem__)
