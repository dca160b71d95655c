"""The text of an output and its stop strings, over every kind of tokenizer: any tokens, any stops, any prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from transpect.decode import Event, GenerationParams, Request, Row
from transpect.text import Tokenizer, train_tokenizer

TEXTS = [
    "The quick brown fox, isn't it.",
    "👩‍👩‍👧 says 👋🏽 to 🇨🇳 and ❤️‍🔥",
    "小猫爱吃鱼。龘",
    "안녕 깰 \u1100\u1161\u11a8",
    "e\u0301 n\u0303 नमस्ते",
    "  two  spaces \n and\tlines\n",
]
SPACE = decoders.Replace("▁", " ")
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = [
    "▁",
    "▁the",
    "cat",
    "猫",
    "##ing",
    ".",
    "n't",
    "cat</w>",
    "s</w>",
    " ",
    "a▁b",
    "깰",
    "\u1100",
    "\u1161",
    "\u200d",
]


def built(decoder: decoders.Decoder | None) -> Tokenizer:
    """Bytes and awkward pieces that are decoded in a given way."""
    vocab = {piece: i for i, piece in enumerate(["<unk>", "<s>", "</s>", *BYTES, *PIECES])}
    backend = Backend(models.WordLevel(vocab, unk_token="<unk>"))
    if decoder is not None:
        backend.decoder = decoder
    return Tokenizer(backend, {"bos": "<s>", "eos": "</s>", "unk": "<unk>"})


KINDS: Mapping[str, Callable[[], Tokenizer]] = {
    "char": lambda: train_tokenizer("char", TEXTS),
    "char-bytes": lambda: train_tokenizer("char", TEXTS[:1], byte_fallback=True),
    "bpe-bytes": lambda: train_tokenizer("bpe", TEXTS * 3, 500, byte_fallback=True),
    "byte-bpe": lambda: train_tokenizer("byte-bpe", TEXTS * 3, 350),
    "unigram": lambda: train_tokenizer("unigram", TEXTS * 3, 420, byte_fallback=True),
    "unigram-nfkc": lambda: train_tokenizer("unigram", TEXTS * 3, 420, byte_fallback=True, unicode_form="nfkc"),
    "wordpiece": lambda: train_tokenizer("wordpiece", TEXTS * 3, 200),
    "llama": lambda: built(
        decoders.Sequence([SPACE, decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    ),
    "t5": lambda: built(decoders.Metaspace()),
    "bert": lambda: built(decoders.WordPiece()),
    "gpt1": lambda: built(decoders.BPEDecoder()),
    "none": lambda: built(None),
}


@cache
def tokenizer_of(kind: str) -> Tokenizer:
    return KINDS[kind]()


def events_of(tokenizer: Tokenizer, prompt: list[int], ids: list[int], stops: list[str]) -> list[Event]:
    params = GenerationParams(len(ids), stop=tuple(stops), seed=0)
    row, events = Row(0, Request(prompt, params), tokenizer), list[Event]()
    for token in ids:
        events.append(row.take(token, 0.0))
        if events[-1].finish_reason is not None:
            break
    return events


def said(tokenizer: Tokenizer, prompt: list[int], ids: list[int]) -> str:
    """The definition: what decoding all has after decoding the prompt, of which an unfinished character is not yet."""
    before = tokenizer.decode(prompt, skip_special_tokens=True).rstrip("\ufffd")
    return tokenizer.decode([*prompt, *ids], skip_special_tokens=True)[len(before) :]


def check(tokenizer: Tokenizer, prompt: list[int], ids: list[int], stops: list[str]) -> None:
    whole = said(tokenizer, prompt, ids)
    found = [(whole.find(stop), stop) for stop in stops if stop in whole]
    expected = whole[: min(found)[0]] if found else whole
    events = events_of(tokenizer, prompt, ids, stops)
    assert "".join(event.text for event in events) == expected
    assert events[-1].finish_reason == ("stop" if found else "length")
    assert len(events) == len(ids) or found
    # nothing of it came later than it was certain: what is held may begin a stop, or a character
    if not stops:
        for n in range(1, len(ids)):
            sent = "".join(event.text for event in events[:n])
            assert said(tokenizer, prompt, ids[:n]).startswith(sent)


def ids_of(tokenizer: Tokenizer) -> st.SearchStrategy[list[int]]:
    """Whole texts, their pieces, the bytes of characters whole and broken, and any ids."""
    character = st.sampled_from(list("깰猫é👩\u200d한")).map(lambda c: [f"<0x{b:02X}>" for b in c.encode()])
    known = character.map(lambda run: [i for piece in run if (i := tokenizer.token_to_id(piece)) is not None])
    text = st.sampled_from(TEXTS).flatmap(lambda t: st.tuples(st.just(t), st.integers(0, len(t)), st.integers(1, 6)))
    spelled = text.map(lambda part: tokenizer.encode(part[0][part[1] : part[1] + part[2]]))
    one = st.integers(0, tokenizer.vocab_size + 2).map(lambda i: [i])
    part = st.one_of(spelled, known, known.map(lambda run: run[:-1]), known.map(lambda run: run[1:]), one)
    return st.lists(part, min_size=1, max_size=5).map(lambda parts: [i for own in parts for i in own])


def prompts_of(tokenizer: Tokenizer) -> st.SearchStrategy[list[int]]:
    """A text, which may end with the first bytes of a character. (Whole characters of byte tokens stay what they are
    even where bytes follow that make the full decode see none of the run as text.)"""
    byte = [tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in "깰".encode()]
    cut = st.integers(0, 2).map(lambda n: [i for i in byte[:n] if i is not None])
    texts = [tokenizer.encode(text) for text in ("The", "小猫", "fox ", "n't", " ")]
    text = st.sampled_from([ids for ids in texts if not any("<0x" in (tokenizer.id_to_token(i) or "") for i in ids)])
    return st.tuples(text, cut).map(lambda parts: [*parts[0], *parts[1]] or [0])


@pytest.mark.parametrize("kind", KINDS)
def test_any_tokens_any_stops_any_prompt(kind: str) -> None:
    """Stops are cut out of the text itself, across tokens and within their characters, some beginning others."""
    tokenizer = tokenizer_of(kind)
    prompts, some = prompts_of(tokenizer), ids_of(tokenizer)

    @given(st.data())
    @settings(max_examples=25, deadline=None)
    def run(data: st.DataObject) -> None:
        prompt, ids = data.draw(prompts), data.draw(some)
        if not ids:
            return
        check(tokenizer, prompt, ids, [])
        whole = said(tokenizer, prompt, ids)
        if not whole:
            return
        stops = []
        for _ in range(data.draw(st.integers(1, 3))):
            at, length = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(1, 5))
            stops.append(whole[at : at + length] + data.draw(st.sampled_from(["", "", "x", "小", " "])))
        check(tokenizer, prompt, ids, stops)
        check(tokenizer, prompt, ids, [stops[0], stops[0] + "x", stops[0][:1] + "y"])

    run()


@pytest.mark.parametrize("kind", ["char-bytes", "bpe-bytes", "byte-bpe", "unigram", "unigram-nfkc", "llama"])
@pytest.mark.parametrize("character", list("깰猫é한\u1100\u200d👩\u0301"))
def test_a_character_of_bytes_comes_whole_and_is_a_stop_as_a_whole(kind: str, character: str) -> None:
    """Case 14: byte tokens hold a character back until it is there; a stop that ends with it, or begins, or is it."""
    tokenizer = tokenizer_of(kind)
    ids = [tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in character.encode()]
    spelled = [i for i in ids if i is not None]
    if len(spelled) < len(ids):  # bytes by their own spelling
        by_byte = {added: i for i, added in enumerate(map(bytes, table_of(kind))) if len(added) == 1}
        spelled = [by_byte[bytes([byte])] for byte in character.encode()]
    prompt, around = tokenizer.encode("The "), tokenizer.encode(" a")
    for stops in ([], [character], [character + " "], ["x" + character], [character + "z"]):
        check(tokenizer, prompt, [*spelled, *around], stops)
        check(tokenizer, prompt, [*around, *spelled], stops)
        for cut in range(1, len(spelled)):
            check(tokenizer, prompt, spelled[:cut], stops)  # invalid bytes are given out at the end
            check(tokenizer, prompt, [*spelled[:cut], *around], stops)
    texts = [event.text for event in events_of(tokenizer, prompt, spelled, [])]
    assert texts == [*[""] * (len(spelled) - 1), character]


@cache
def table_of(kind: str) -> tuple[bytes, ...]:
    from transpect.text.token_bytes import token_bytes

    return token_bytes(tokenizer_of(kind))
