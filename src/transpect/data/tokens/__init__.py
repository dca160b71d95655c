"""Corpora as token files: a text is encoded once, and read in place ever after, however large it is. No torch.

A directory holds the files below, all numbers little-endian, none with a header::

    manifest.json      what the rest is, with the SHA-256 of every file; written last
    tokenizer/         the tokenizer
    00000.bin          the ids of a shard's documents, end to end, without special tokens: uint16, or uint32 where the
                       vocabulary has more than 65,536 ids
    00000.idx          int64 [documents + 1, 3]: the first token and the first character of each document, counted from
                       the beginning of the shard, and the first 8 bytes of its text's blake2b; the last row tells where
                       the last document ends
"""

from transpect.data.tokens.layout import MANIFEST, Manifest, Shard, fingerprint
from transpect.data.tokens.prepare import Prepared, prepare
from transpect.data.tokens.shards import TokenDocuments, open_tokens, verify

__all__ = [
    "MANIFEST",
    "Manifest",
    "Prepared",
    "Shard",
    "TokenDocuments",
    "fingerprint",
    "open_tokens",
    "prepare",
    "verify",
]
