"""Streams of text and their ends, on scripted tokens: whatever the model, the deltas are those of the whole text."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from transpect.decode import Event, GenerationParams, Request, Row, Steps, decode
from transpect.text import Tokenizer

TEXTS = [
    "The quick brown fox",
    "小猫爱吃鱼。",
    "👩‍👩‍👧 says 👋🏽 to 🇨🇳 and ❤️‍🔥",
    "안녕 깰 e\u0301",
    "  two  spaces \n and lines\n",
]
TOKENIZERS = ["letters", "pieces", "words"]


class Script:
    """`Steps` that are certain of the next token of each row."""

    device = torch.device("cpu")
    spare = 1

    def __init__(self, scripts: Sequence[Sequence[int]], vocab_size: int) -> None:
        self.vocab_size, self._rest = vocab_size, [list(script) for script in scripts]

    def prefill(self) -> Tensor:
        logits = torch.full((len(self._rest), self.vocab_size), -torch.inf)
        for row, script in enumerate(self._rest):
            logits[row, script[0]] = 0.0
        return logits

    def advance(self, token: Tensor) -> Tensor:
        for script, given in zip(self._rest, token.tolist(), strict=True):
            assert script[0] == given
            script.pop(0)
        return self.prefill()

    def select(self, rows: Sequence[int]) -> None:
        self._rest = [self._rest[row] for row in rows]


def run(
    scripts: Sequence[Sequence[int]],
    params: Sequence[GenerationParams],
    tokenizer: Tokenizer,
    prompt: Sequence[int] = (0,),
) -> list[list[Event]]:
    """The events of each row."""
    requests = [Request(prompt, p).seeded() for p in params]
    rows = [Row(i, request, tokenizer) for i, request in enumerate(requests)]
    steps: Steps = Script(scripts, tokenizer.vocab_size)
    events = list(decode(steps, rows))
    return [[event for event in events if event.request == i] for i in range(len(rows))]


def said(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events)


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    found: Tokenizer = request.getfixturevalue(request.param)
    return found


def test_case_23_a_stop_string_never_leaks(letters: Tokenizer) -> None:
    ids = letters.encode("The quick brown fox jumps")
    (events,) = run([ids], [GenerationParams(99, stop=("own fox",))], letters)
    assert said(events) == "The quick br"
    assert events[-1].finish_reason == "stop"
    assert len(events) == len("The quick brown fox")
    assert "".join(event.text for event in events[:13]) == "The quick br"  # held from the first letter of the stop on


def test_held_text_is_given_out_without_a_match(letters: Tokenizer) -> None:
    ids = letters.encode("The quick brown fo")
    for end in ("length", "eos"):
        script = [*ids, letters.eos_id or 0]
        params = GenerationParams(
            len(ids) if end == "length" else 99, stop=("own fox",), eos_ids=(letters.eos_id or 0,)
        )
        (events,) = run([script], [params], letters)
        assert said(events) == "The quick brown fo"
        assert events[-1].finish_reason == end


@pytest.mark.parametrize("text", TEXTS)
def test_deltas_join_to_the_text(text: str, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(text)
    (events,) = run([ids], [GenerationParams(len(ids))], tokenizer, tokenizer.encode("The"))
    whole = tokenizer.decode([*tokenizer.encode("The"), *ids], skip_special_tokens=True)
    assert "The" + said(events) == whole
    assert [event.token for event in events] == ids
    if "\ufffd" not in whole:
        assert all("\ufffd" not in event.text for event in events)


@pytest.mark.parametrize("text", TEXTS)
def test_every_cut_of_the_output_decodes_as_a_whole(text: str, tokenizer: Tokenizer) -> None:
    """An output may end in the middle of a character; its text is then what decoding all its tokens gives."""
    ids, before = tokenizer.encode(text), tokenizer.encode("fox")
    cuts = range(1, len(ids) + 1)
    found = run([ids] * len(cuts), [GenerationParams(cut) for cut in cuts], tokenizer, before)
    for cut, events in zip(cuts, found, strict=True):
        assert "fox" + said(events) == tokenizer.decode([*before, *ids[:cut]], skip_special_tokens=True)


@pytest.mark.parametrize("text", TEXTS[:3])
def test_every_stop_string_cuts_where_it_begins(text: str, tokenizer: Tokenizer) -> None:
    """Each substring as a stop, however the tokens lie across it, alone and with a second one."""
    ids, before = tokenizer.encode(text), tokenizer.encode("The")
    whole = tokenizer.decode([*before, *ids], skip_special_tokens=True).removeprefix("The")
    spans = [whole[i:j] for i, j in itertools.combinations(range(len(whole) + 1), 2) if j - i <= 6]
    stops = [(span, "fox") for span in spans[::3]] + [(span,) for span in spans[1::3]]
    found = run([ids] * len(stops), [GenerationParams(len(ids), stop=pair) for pair in stops], tokenizer, before)
    for pair, events in zip(stops, found, strict=True):
        at = min((whole.find(stop) for stop in pair if stop in whole), default=-1)
        assert said(events) == (whole if at < 0 else whole[:at])
        assert events[-1].finish_reason == ("length" if at < 0 else "stop")


def test_case_13_two_ends_wait_for_the_minimum(letters: Tokenizer) -> None:
    """P(EOS) = 1 at every step and two EOS ids: exactly 5 other tokens, then EOS."""
    for end in (2, 3):
        for temperature in (0.0, 1.0):
            params = GenerationParams(20, min_new_tokens=5, eos_ids=(2, 3), temperature=temperature)
            (row,) = [Row(0, Request([9] * 7, params).seeded())]
            events = list(decode(Certain(end, letters.vocab_size), [row]))
            assert [event.token in (2, 3) for event in events] == [False] * 5 + [True]
            assert events[-1].token == end
            assert events[-1].finish_reason == "eos"


class Certain(Script):
    """Steps that always want the same token."""

    def __init__(self, token: int, vocab_size: int) -> None:
        super().__init__([[token]], vocab_size)

    def advance(self, token: Tensor) -> Tensor:
        return self.prefill()


def test_special_tokens_and_the_end_have_no_text(letters: Tokenizer) -> None:
    eos, bos = letters.eos_id, letters.bos_id
    assert eos is not None and bos is not None
    ids = [*letters.encode("ox"), bos, *letters.encode("en"), eos]
    (events,) = run([ids], [GenerationParams(99, eos_ids=(eos,))], letters)
    assert said(events) == "oxen"
    assert [event.token for event in events] == ids
    (events,) = run([ids], [GenerationParams(len(ids), eos_ids=(eos,), ignore_eos=True)], letters)
    assert said(events) == "oxen"
    assert events[-1].finish_reason == "length"


def test_rows_end_each_in_its_own_way(letters: Tokenizer) -> None:
    ids = [*letters.encode("The lazy dog"), letters.eos_id or 0]
    params = [
        GenerationParams(99, eos_ids=(letters.eos_id or 0,)),
        GenerationParams(5),
        GenerationParams(99, stop=("lazy",)),
        GenerationParams(1),
        GenerationParams(12, stop=("dog",)),
    ]
    found = run([ids] * 5, params, letters)
    assert [said(events) for events in found] == ["The lazy dog", "The l", "The ", "T", "The lazy "]
    assert [events[-1].finish_reason for events in found] == ["eos", "length", "stop", "length", "stop"]
    assert all(event.finish_reason is None for events in found for event in events[:-1])
