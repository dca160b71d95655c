"""The bytes of tokens put together are the text of their sequence, in every decoder."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from transpect.base.errors import TokenizerError
from transpect.text import Tokenizer
from transpect.text.token_bytes import token_bytes

PIECES = ["▁", "▁▁", "▁the", "cat", "猫", "a▁b", " ", "  x", "é", "Ġthe", "##ing", "##", ".", "n't", "▁.", "\n", "�"]
PIECES += [
    "<s>",
    "<tool>",
    *(f"<0x{byte:02X}>" for byte in (0x20, 0x41, 0xC0, 0xE7, 0x8C, 0xAB, 0xFF)),
    "ç",
    "Į",
    "«",
    "ÿ",
]
SPACE = decoders.Replace("▁", " ")
STREAMED = {
    "none": None,
    "llama": decoders.Sequence([SPACE, decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]),
    "gemma": decoders.Sequence([SPACE, decoders.ByteFallback(), decoders.Fuse()]),
    "t5": decoders.Metaspace(),
    "t5-never": decoders.Metaspace(prepend_scheme="never"),
    "bert": decoders.WordPiece(),
    "bert-plain": decoders.WordPiece(cleanup=False),
    "gpt2": decoders.ByteLevel(),
    "strip": decoders.Sequence([SPACE, decoders.Strip(" ", 1, 0), decoders.Fuse()]),
}


def with_decoder(decoder: decoders.Decoder | None) -> Tokenizer:
    backend = Backend(models.WordLevel({piece: i for i, piece in enumerate(["<unk>", *PIECES])}, unk_token="<unk>"))
    if decoder is not None:
        backend.decoder = decoder
    return Tokenizer(backend, {"bos": "<s>", "unk": "<unk>"})


def check(tokenizer: Tokenizer, ids: list[int]) -> None:
    first, later = token_bytes(tokenizer, at_start=True), token_bytes(tokenizer)
    assert all(not table[i] for table in (first, later) for i in tokenizer.special_ids)
    texts = [i for i in ids if i not in tokenizer.special_ids]
    if not texts or not first[texts[0]] or not all(later[i] for i in texts[1:]):
        return
    joined = first[texts[0]] + b"".join(later[i] for i in texts[1:])
    try:
        text = joined.decode()
    except UnicodeDecodeError:
        return
    assert text == tokenizer.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("name", STREAMED)
def test_the_bytes_of_any_ids_are_their_text(name: str) -> None:
    tokenizer = with_decoder(STREAMED[name])
    character = [tokenizer.token_to_id(piece) or 0 for piece in ("<0xE7>", "<0x8C>", "<0xAB>")]
    one = st.integers(0, tokenizer.vocab_size - 1).map(lambda i: [i])
    ids = st.lists(st.one_of(one, st.just(character)), max_size=8).map(
        lambda parts: [i for part in parts for i in part]
    )
    settings(max_examples=80, deadline=None)(given(ids)(lambda own: check(tokenizer, own)))()
    assert sum(map(bool, token_bytes(tokenizer))) >= 15


def test_the_bytes_of_any_ids_are_their_text_in_every_kind(tokenizer: Tokenizer) -> None:
    ids = st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=6)
    settings(max_examples=50, deadline=None)(given(ids)(lambda own: check(tokenizer, own)))()


def test_bytes_that_are_never_text_are_none() -> None:
    table, tokenizer = token_bytes(with_decoder(STREAMED["gemma"])), with_decoder(STREAMED["gemma"])
    shown = {
        piece: table[tokenizer.token_to_id(piece) or 0] for piece in ("<0x41>", "<0xC0>", "<0xFF>", "<0xE7>", "<s>")
    }
    assert shown == {"<0x41>": b"A", "<0xC0>": b"", "<0xFF>": b"", "<0xE7>": b"\xe7", "<s>": b""}


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.BPEDecoder(),  # a space, or none where no other token follows
        decoders.Sequence([decoders.Fuse(), decoders.Replace("aab", "X")]),
        decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]),
        decoders.Sequence([decoders.ByteLevel(), decoders.Replace("</w>", " ")]),
        decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 2, 0)]),
        decoders.Sequence([SPACE, decoders.ByteLevel()]),
    ],
)
def test_tokens_without_bytes_of_their_own_are_refused(decoder: decoders.Decoder) -> None:
    with pytest.raises(TokenizerError, match="must not depend on the tokens after it"):
        token_bytes(with_decoder(decoder))
