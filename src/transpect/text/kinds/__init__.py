"""The kinds of vocabulary that can be trained, one file a kind.

=============  ===================================  =====================================  ==================
tag            a token is                           ``decode(encode(text)) == text``       after the models
=============  ===================================  =====================================  ==================
``char``       one Unicode character                for characters seen in training        char-rnn
``bpe``        merged characters                    for characters seen, or any text       Llama 2
                                                    with ``byte_fallback``
``byte-bpe``   merged bytes                         for any text                           GPT-2, Llama 3
``wordpiece``  a word, or ``##`` and a part of one  no: case and spaces are lost           BERT
``unigram``    the most probable pieces             as ``bpe``; ``▁`` reads as a space     T5
=============  ===================================  =====================================  ==================
"""

from transpect.text.kinds.bpe import Bpe
from transpect.text.kinds.byte_bpe import ByteBpe
from transpect.text.kinds.char import Char
from transpect.text.kinds.common import Kind, Specials
from transpect.text.kinds.unigram import Unigram
from transpect.text.kinds.wordpiece import WordPiece

KINDS: dict[str, type[Kind]] = {kind.tag: kind for kind in (Char, Bpe, ByteBpe, WordPiece, Unigram)}
"""Tag to class, in the order in which they are best read."""

__all__ = ["KINDS", "Bpe", "ByteBpe", "Char", "Kind", "Specials", "Unigram", "WordPiece"]
