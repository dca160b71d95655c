"""Deltas join to the full decode, for every decoder and every sequence of ids."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models
from tokenizers import Tokenizer as Backend

from transpect.base.errors import TokenizerError
from transpect.text import StreamDecoder, Tokenizer

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
WORDS = [
    "▁",
    "▁▁",
    "▁the",
    "cat",
    "猫",
    "깰",
    "a▁b",
    " ",
    "  x",
    "",
    "é",
    "Ġthe",
    "##ing",
    "##",
    ".",
    "n't",
    "'s",
    "</w>",
]
WORDS += ["cat</w>", "<", "/w>", "<s>", "▁<0x41>", "<0x4>", "�", "\n", "ab", "aab", "b", "a"]
REPLACE_SPACE = decoders.Replace("▁", " ")

DECODERS = {
    "none": None,
    "llama": decoders.Sequence([REPLACE_SPACE, decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]),
    "gemma": decoders.Sequence([REPLACE_SPACE, decoders.ByteFallback(), decoders.Fuse()]),
    "t5": decoders.Metaspace(),
    "t5-first": decoders.Metaspace(prepend_scheme="first"),
    "t5-never": decoders.Metaspace(prepend_scheme="never"),
    "t5-bytes": decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]),
    "bert": decoders.WordPiece(),
    "bert-plain": decoders.WordPiece(cleanup=False),
    "gpt1": decoders.BPEDecoder(),
    "gpt2": decoders.ByteLevel(),
    "clip": decoders.Sequence(
        [decoders.ByteLevel(), decoders.Replace("</w>", " "), decoders.Strip("a", 2, 0), decoders.Fuse()]
    ),
    "fused-replace": decoders.Sequence([decoders.Fuse(), decoders.Replace("aab", "X"), decoders.Replace("b", "")]),
    "regex": decoders.Sequence([decoders.Replace(Regex("a+"), "A"), decoders.Strip("▁", 1, 0), decoders.Fuse()]),
    "byte-fallback": decoders.ByteFallback(),
}


def with_decoder(decoder: decoders.Decoder | None) -> Tokenizer:
    """A vocabulary of bytes and awkward pieces that is decoded in a given way."""
    pieces = list(dict.fromkeys(["<unk>", *BYTES, *WORDS, *map(chr, range(0x21, 0x143))]))
    backend = Backend(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token="<unk>"))
    backend.add_special_tokens(["<s>", "</s>"])
    backend.add_tokens([AddedToken("<tool call>"), AddedToken("<｜User｜>")])
    if decoder is not None:
        backend.decoder = decoder
    return Tokenizer(backend, {"bos": "<s>", "eos": "</s>", "unk": "<unk>"})


def streamed(tokenizer: Tokenizer, ids: Iterable[int], *, skip: bool = False) -> list[str]:
    stream = StreamDecoder(tokenizer, skip_special_tokens=skip)
    return [*(stream.push(i) for i in ids), stream.flush()]


def check_ids(tokenizer: Tokenizer, ids: list[int]) -> None:
    for skip in (False, True):
        full = tokenizer.decode(ids, skip_special_tokens=skip)
        deltas = streamed(tokenizer, ids, skip=skip)
        assert "".join(deltas) == full
        assert sum(delta.count("\ufffd") for delta in deltas) == full.count("\ufffd")


@pytest.mark.parametrize("name", DECODERS)
def test_any_ids_stream_to_the_full_decode(name: str) -> None:
    tokenizer = with_decoder(DECODERS[name])
    known = st.integers(0, tokenizer.vocab_size + 5)  # some beyond the vocabulary, as models pad it
    awkward = st.sampled_from(
        [i for w in (*WORDS, "</s>", "<tool call>", "<｜User｜>") if (i := tokenizer.token_to_id(w))]
    )
    # The bytes of real characters, whole and broken.
    character = st.sampled_from(list("깰猫é👩")).map(lambda c: [f"<0x{b:02X}>" for b in c.encode()])
    byte_run = character.map(lambda run: [tokenizer.token_to_id(byte) or 0 for byte in run])
    part = st.one_of(known.map(lambda i: [i]), awkward.map(lambda i: [i]), byte_run, byte_run.map(lambda run: run[:-1]))

    @given(st.lists(part, max_size=12).map(lambda parts: [i for part in parts for i in part]))
    @settings(max_examples=150, deadline=None)
    def check(ids: list[int]) -> None:
        check_ids(tokenizer, ids)

    check()


def test_any_bytes_stream_to_the_full_decode(trained: dict[str, Tokenizer]) -> None:
    tokenizer = trained["byte-bpe"]
    single = [tokenizer.token_to_id(chr(c)) for c in range(0x21, 0x7F)]
    assert None not in single
    multibyte = [i for i in range(tokenizer.vocab_size) if not tokenizer.tokens([i])[0].isascii()]
    broken = [i for i in range(tokenizer.vocab_size) if "\\x" in tokenizer.tokens([i])[0]]
    assert len(broken) >= 128

    @given(st.lists(st.sampled_from(broken + multibyte + single[:20]), max_size=20))
    @settings(max_examples=300, deadline=None)
    def check(ids: list[int]) -> None:
        check_ids(tokenizer, ids)

    check()


@pytest.mark.parametrize("corpus", ["chinese", "english", "mixed", "emoji", "spaces", "combining", "hangul"])
def test_every_cut_of_a_text_streams(tokenizer: Tokenizer, corpus: str, corpora: dict[str, str]) -> None:
    ids = tokenizer.encode(corpora[corpus], add_special_tokens=True)
    for start in range(0, len(ids), 2):
        for end in range(start, min(len(ids), start + 12) + 1):
            check_ids(tokenizer, ids[start:end])
    check_ids(tokenizer, ids)


@pytest.mark.parametrize(
    ("name", "pieces", "deltas"),
    [
        ("llama", ["<0xEA>", "<0xB9>", "<0xB0>", "!"], ["", "", "", "깰!", ""]),
        ("llama", ["<0xEA>", "<0xB9>", "<0xB0>"], ["", "", "", "깰"]),
        ("llama", ["<0xEA>", "<0xB9>", "cat"], ["", "", "\ufffd\ufffdcat", ""]),
        ("llama", ["▁the", "▁", "cat"], ["the", " ", "cat", ""]),
        ("llama", ["<s>", "▁the"], ["<s>", " the", ""]),
        ("t5", ["▁the", "▁the"], ["the", " the", ""]),
        ("bert", ["cat", "##ing", ".", "n't"], ["cat", "ing", ".", "n't", ""]),
        ("gpt1", ["cat</w>", "cat", "cat</w>"], ["cat", " cat", "cat", ""]),
        ("gpt2", ["Ġthe", "ç", "Į", "«", "a"], [" the", "", "", "猫", "a", ""]),
        ("gpt2", ["ç", "Į"], ["", "", "\ufffd"]),
        ("gpt2", ["ç", "Į", "a"], ["", "", "\ufffda", ""]),
        ("gpt2", ["<｜User｜>", "ÿ", "<tool call>"], ["<｜User｜>", "\ufffd", "<tool call>", ""]),
        ("none", ["cat", "猫"], ["cat", " 猫", ""]),
    ],
)
def test_text_comes_as_early_as_it_is_certain(name: str, pieces: list[str], deltas: list[str]) -> None:
    tokenizer = with_decoder(DECODERS[name])
    ids = [tokenizer.token_to_id(piece) for piece in pieces]
    assert None not in ids
    assert streamed(tokenizer, ids) == deltas


def test_byte_level_holds_three_bytes_at_most(trained: dict[str, Tokenizer]) -> None:
    tokenizer = trained["byte-bpe"]
    text = "👩‍👩‍👧猫깰é" * 50
    stream, sent = StreamDecoder(tokenizer), ""
    ids = tokenizer.encode(text)
    for n, i in enumerate(ids, 1):
        sent += stream.push(i)
        whole = tokenizer.decode(ids[:n]).rstrip("\ufffd")
        assert sent == whole


def test_a_flushed_stream_begins_anew() -> None:
    tokenizer = with_decoder(DECODERS["llama"])
    stream = StreamDecoder(tokenizer)
    for _ in range(2):
        assert stream.push(tokenizer.token_to_id("▁the") or 0) == "the"
        assert stream.push(tokenizer.token_to_id("<0xEA>") or 0) == ""
        assert stream.flush() == "\ufffd"
    assert stream.flush() == ""


@pytest.mark.parametrize("corpus", ["chinese", "english", "mixed", "emoji", "spaces", "combining", "hangul"])
def test_a_primed_stream_goes_on_after_a_prompt(tokenizer: Tokenizer, corpus: str, corpora: dict[str, str]) -> None:
    ids = tokenizer.encode("龘" + corpora[corpus])
    full = tokenizer.decode(ids)
    for at in range(min(len(ids), 40) + 1):
        stream = StreamDecoder(tokenizer)
        stream.prime(ids[:at])
        rest = "".join(map(stream.push, ids[at:])) + stream.flush()
        # A prompt may end within a character, whose first bytes decode to U+FFFD.
        shown = tokenizer.decode(ids[:at]).rstrip("\ufffd")
        assert rest == full[len(shown) :]


@pytest.mark.parametrize("name", DECODERS)
def test_a_primed_stream_goes_on_in_every_decoder(name: str) -> None:
    tokenizer = with_decoder(DECODERS[name])
    pieces = ["<0xEA>", "<0xB9>", "<0xB0>", "▁the", "cat</w>", "ç", "Į", "«", "##ing", "<0xEA>", "<0xB9>", "<0xB0>"]
    pieces += ["cat", "▁the", "."]
    ids = [i for piece in pieces if (i := tokenizer.token_to_id(piece)) is not None]
    for at in range(len(ids) + 1):
        stream = StreamDecoder(tokenizer)
        stream.prime(ids[:at])
        rest = "".join(map(stream.push, ids[at:])) + stream.flush()
        assert rest == tokenizer.decode(ids)[len(tokenizer.decode(ids[:at]).rstrip("\ufffd")) :]


def test_work_per_token_does_not_grow(trained: dict[str, Tokenizer], monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = trained["bpe+bytes"]
    ids = tokenizer.encode("小猫 cat 龘 " * 500)
    expected = tokenizer.decode(ids)
    # Neither the whole nor any window of it is ever decoded again.
    monkeypatch.setattr(Tokenizer, "decode", lambda *_: pytest.fail("decoded again"))
    assert "".join(streamed(tokenizer, ids)) == expected


def test_streams_do_not_share_state(trained: dict[str, Tokenizer]) -> None:
    tokenizer = trained["byte-bpe"]
    first, second = StreamDecoder(tokenizer), StreamDecoder(tokenizer)
    ids = tokenizer.encode("龘龘")
    woven = [(first.push(i), second.push(i)) for i in ids]
    assert "".join(a for a, _ in woven) == "".join(b for _, b in woven) == "龘龘"


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.CTC(),
        decoders.Sequence([decoders.Fuse(), decoders.Metaspace()]),
        decoders.Sequence([decoders.Fuse(), decoders.Replace(Regex("a+"), "b")]),
        decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 0, 1)]),
    ],
)
def test_what_cannot_be_streamed_is_refused_by_name(decoder: decoders.Decoder) -> None:
    with pytest.raises(TokenizerError, match="can't be streamed"):
        StreamDecoder(with_decoder(decoder))


@pytest.mark.parametrize("bad", [-1, 2**32, 1.5, "a", None])
def test_an_id_must_be_a_number(bad: object, trained: dict[str, Tokenizer]) -> None:
    with pytest.raises(TokenizerError, match="whole number"):
        StreamDecoder(trained["char"]).push(bad)  # type: ignore[arg-type]
