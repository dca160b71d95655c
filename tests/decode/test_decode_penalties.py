"""Filters of the past by example: the numbers that others publish, and who gives way to whom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from transpect.base.errors import GenerationError
from transpect.decode import GenerationParams, Request, Row, Sampler, decode
from transpect.decode.sampling import check_minimum
from transpect.decode.trace import Trace

from .filter_cases import VOCAB, Only

OUT = -math.inf


def process(logits: list[float] | Tensor, trace: Trace, **params: Any) -> list[float]:
    """Through all filters of the past, in float32; V is the number of logits."""
    given = torch.as_tensor(logits, dtype=torch.float32)[None]
    sampler = Sampler([GenerationParams(**params)], [0], given.shape[-1], torch.device("cpu"))
    return [round(x, 5) for x in sampler.process(given, [trace])[0].tolist()]


def test_case_11_repetition_penalty() -> None:
    """A negative logit is multiplied, and a token counts once; 0 is neither. The one that was not seen stays."""
    seen = Trace((0, 1, 0), (1, 1, 2))
    assert process([-1, 2, 0, 3], seen, repetition_penalty=2.0) == [-2, 1, 0, 3]
    assert process([-1, 2, 0, 3], seen, repetition_penalty=0.5) == [-0.5, 4, 0, 3]


def test_prompt_and_output_count_for_repetition_and_the_output_for_presence_and_frequency() -> None:
    trace = Trace((0, 0, 1), (1, 2, 2, 2), source=(3,))
    assert process([1, 1, 1, 1], trace, repetition_penalty=2.0) == [0.5, 0.5, 0.5, 1]
    assert process([1, 1, 1, 1], trace, presence_penalty=0.5) == [1, 0.5, 0.5, 1]
    assert process([1, 1, 1, 1], trace, frequency_penalty=0.5) == [1, 0.5, -0.5, 1]
    assert process([1, 1, 1, 1], trace, frequency_penalty=0.5, presence_penalty=-0.25) == [1, 0.75, -0.25, 1]
    assert process([1, 1, 1, 1], trace, encoder_repetition_penalty=2.0) == [1, 1, 1, 2]
    prompted = Trace((0, 0, 1), (1, 2, 2, 2))
    assert process([1, -1, 1, 1], prompted, encoder_repetition_penalty=2.0) == [2, -0.5, 1, 1]


def test_padding_is_no_part_of_the_past() -> None:
    """Rows of unlike lengths, of which one begins with the token that pads: each is as it is alone."""
    rows = [Trace((0, 1)), Trace((2,), (3, 3, 3))]
    sampler = Sampler([GenerationParams(repetition_penalty=2.0)] * 2, [0, 0], 4, torch.device("cpu"))
    assert sampler.process(torch.ones(2, 4), rows).tolist() == [[0.5, 0.5, 1, 1], [1, 1, 0.5, 0.5]]


@pytest.mark.parametrize(
    ("size", "past", "banned"),
    [
        (2, (1, 2, 3, 1), {2}),
        (2, (1, 2, 1, 3, 1), {2, 3}),
        (2, (1, 1), {1}),
        (2, (1,), set()),
        (1, (1, 2), {1, 2}),
        (3, (1, 2, 3, 1, 2), {3}),
        (3, (1, 2, 3, 2), set()),
        (9, (1, 2, 3), set()),
    ],
)
def test_no_repeat_ngram(size: int, past: tuple[int, ...], banned: set[int]) -> None:
    for cut in range(len(past) + 1):  # wherever the prompt ends
        found = process([0.0] * 5, Trace(past[:cut], past[cut:]), no_repeat_ngram_size=size)
        assert {i for i, x in enumerate(found) if x == OUT} == banned


def test_the_ngrams_of_the_source() -> None:
    trace = Trace((0,), (1,), source=(1, 2, 4, 1, 3))
    assert process([0.0] * 5, trace, encoder_no_repeat_ngram_size=2) == [0, 0, OUT, OUT, 0]
    assert process([0.0] * 5, Trace((1, 2), (1,)), encoder_no_repeat_ngram_size=2) == [0, 0, OUT, 0, 0]
    for size in (3, 4):  # of which too little has been written yet
        assert process([0.0] * 5, Trace((1,), source=(1, 1, 1, 1, 4)), encoder_no_repeat_ngram_size=size) == [0.0] * 5


def test_bad_words_of_any_length() -> None:
    words = ((4,), (1, 2), (1, 3), (0, 1, 1), (3, 0, 1, 0), (2, 2, 2, 2, 2, 2))
    assert process([0.0] * 6, Trace((3, 0), (1,)), bad_words=words) == [OUT, OUT, OUT, OUT, OUT, 0]
    assert process([0.0] * 6, Trace((5,), (0,)), bad_words=words) == [0, 0, 0, 0, OUT, 0]


def test_an_end_alone_is_no_bad_word_and_can_be_banned() -> None:
    assert process([0.0] * 3, Trace((0,)), bad_words=((1,), (2,)), eos_ids=1) == [0, 0, OUT]
    assert process([0.0] * 3, Trace((0,)), banned=(1, 2), eos_ids=1) == [0, OUT, OUT]


def test_biases_add_up() -> None:
    found = process([0, 1, 2, OUT], Trace((2,), (0,)), logit_bias={1: 5, 3: 9}, sequence_bias={(0, 1): -2.5, (2, 1): 7})
    assert found == [0, 3.5, 2, OUT]
    assert process([0, 1], Trace((2,), (0,)), sequence_bias=[[[1], 2.0], [[0, 1], 3.0]]) == [0, 6]


A, B, C, Y = 0, 1, 2, 3


def test_dry_as_llama_cpp_explains_it() -> None:
    """ "a b c c b c y a b c": `c` would make 4 of 3, `b` 2 of 1, `y` 3 of 2."""
    trace = Trace((A, B, C, C, B), (C, Y, A, B, C))
    dry = {"dry_multiplier": 1.0, "dry_base": 2.0}
    assert process([0.0] * 5, trace, **dry, dry_allowed_length=1) == [0, -1, -4, -2, 0]
    assert process([0.0] * 5, trace, **dry, dry_allowed_length=2) == [0, 0, -2, -1, 0]
    assert process([0.0] * 5, trace, **dry, dry_allowed_length=4) == [0, 0, 0, 0, 0]
    assert process([0.0] * 5, trace, **dry, dry_allowed_length=1, dry_penalty_last_n=7) == [0, -1, 0, -2, 0]
    assert process([0.0] * 5, trace, **dry, dry_penalty_last_n=0) == [0, 0, 0, 0, 0]


def test_dry_stops_at_breakers() -> None:
    trace = Trace((A, B, C, Y, A, B, C))
    dry = {"dry_multiplier": 1.0, "dry_base": 2.0, "dry_allowed_length": 1}
    assert process([0.0] * 5, trace, **dry) == [0, 0, 0, -4, 0]
    assert process([0.0] * 5, trace, **dry, dry_sequence_breakers=[A]) == [0, 0, 0, -2, 0]
    assert process([0.0] * 5, trace, **dry, dry_sequence_breakers=[[A, B]]) == [0, 0, 0, -1, 0]
    assert process([0.0] * 5, trace, **dry, dry_sequence_breakers=[C]) == [0, 0, 0, 0, 0]
    assert process([0.0] * 5, trace, **dry, dry_sequence_breakers=[Y]) == [0, 0, 0, 0, 0]


@pytest.mark.parametrize("number", [10**25, 10**308, 1e308], ids=lambda number: f"{number:.0e}")
def test_dry_takes_any_number(number: float) -> None:
    trace = Trace((A, B, C, A, B, C, A))
    for dry in ({"dry_multiplier": number}, {"dry_multiplier": 1, "dry_base": number}):
        left = process([0.0] * 5, trace, **dry, dry_allowed_length=1)
        assert left[B] < -1e20 and max(map(abs, left)) < 1.1e30


def test_an_end_becomes_likelier_after_its_start() -> None:
    decay = {"exponential_decay_length_penalty": (2, 2.0), "eos_ids": (0, 1)}
    assert process([-1, 3, 5], Trace((2,), (2, 2)), **decay) == [-1, 3, 5]
    assert process([-1, 3, 5], Trace((2,), (2, 2, 2)), **decay) == [0, 6, 5]
    assert process([-1, 3, 5], Trace((2,), (2, 2, 2, 2)), **decay) == [2, 12, 5]
    assert process([-1, 3, 5], Trace((2,), (2, 2, 2)), **decay, ignore_eos=True) == [-1, 3, 5]


def test_the_last_token_is_the_forced_one() -> None:
    forced = {"forced_eos_token_id": 1, "max_new_tokens": 3}
    assert process([5, 1, 2], Trace((2,), (2,)), **forced) == [5, 1, 2]
    assert process([5, 1, 2], Trace((2,), (2, 2)), **forced) == [OUT, 0, OUT]
    assert process([5, 1, 2], Trace((2,), (2, 2)), **forced, banned=1) == [5, OUT, 2]
    assert process([5, 1, 2], Trace((2,), (2, 2)), **forced, min_new_tokens=3, eos_ids=1) == [OUT, 0, OUT]


def test_what_would_take_the_last_token_gives_way() -> None:
    past = Trace((0, 1), (2,))
    assert process([3, 2, 1], past, no_repeat_ngram_size=1) == [3, 2, 1]
    assert process([3, OUT, 1], past, bad_words=[[0], [2]]) == [3, OUT, 1]
    assert process([3, 2, 1], past, banned=(0, 1), bad_words=[[2]]) == [OUT, OUT, 1]
    assert process([3, 2, 1], Trace((0,)), begin_suppress_tokens=(0, 1, 2)) == [3, 2, 1]
    # one after the other: the first is kept, the second gives way
    assert process([3, 2, 1], Trace((0, 1)), no_repeat_ngram_size=1, bad_words=[[2]]) == [OUT, OUT, 1]


def test_a_constraint_comes_first() -> None:
    even, odd = frozenset({1, 2}), frozenset({2})
    start, later = Trace((0,), (), Only(even, odd)), Trace((0,), (1,), Only(even, odd))
    logits = torch.zeros(VOCAB)
    allowed = lambda found: {i for i, x in enumerate(found) if x > OUT}  # noqa: E731
    assert allowed(process(logits, start)) == {1, 2}
    assert allowed(process(logits, later)) == {2}
    assert allowed(process(logits, start, banned=2)) == {1}
    assert allowed(process(logits, later, banned=2)) == {2}  # else nothing could be written
    assert allowed(process(logits, later, min_new_tokens=5, eos_ids=2)) == {2}
    assert allowed(process(logits, start, forced_eos_token_id=7, max_new_tokens=1)) == {1, 2}
    assert allowed(process(logits, start, forced_eos_token_id=(7, 2), max_new_tokens=1)) == {2}
    assert allowed(process(logits, start, no_repeat_ngram_size=1, bad_words=[[1], [2]])) == {1, 2}
    logits[[1, 2]] = OUT  # the model would write neither
    assert allowed(process(logits, start)) == {1, 2}
    assert allowed(process(logits, start, banned=2)) == {1}


def test_a_constraint_that_allows_nothing_is_an_error() -> None:
    with pytest.raises(GenerationError, match="at least one token"):
        process(torch.zeros(VOCAB), Trace((0,), (), Only(frozenset(), frozenset())))


@pytest.mark.parametrize(
    "params",
    [
        {"logit_bias": {5: 1.0}},
        {"logit_bias": {0: 1.0, 99: 0.0}},
        {"sequence_bias": {(1, 5): 1.0}},
        {"bad_words": [[5, 1]]},
        {"forced_eos_token_id": 5},
        {"dry_sequence_breakers": [[1, 5]]},
    ],
    ids=str,
)
def test_ids_outside_the_vocabulary_are_refused(params: dict[str, Any]) -> None:
    with pytest.raises(GenerationError, match=f"{next(iter(params))}.*vocab_size=5"):
        check_minimum(GenerationParams(**params), 5)
    check_minimum(GenerationParams(**params), 100)


class Certain:
    """A model that is certain of an end, whatever it reads."""

    vocab_size, device, spare = 6, torch.device("cpu"), 1

    def __init__(self, rows: int) -> None:
        self._logits = torch.full((rows, 6), OUT)
        self._logits[:, 4] = 0.0

    def prefill(self) -> Tensor:
        return self._logits

    def advance(self, token: Tensor) -> Tensor:
        return self._logits[: len(token)]

    def select(self, rows: Sequence[int]) -> None:
        pass


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_case_13_five_tokens_and_an_end(temperature: float) -> None:
    params = GenerationParams(20, min_new_tokens=5, eos_ids=(4, 5), temperature=temperature, seed=1)
    rows = [Row(i, Request(range(length), params)) for i, length in enumerate((7, 1))]
    events = list(decode(Certain(2), rows))  # type: ignore[arg-type]
    for i in range(2):
        tokens = [event.token for event in events if event.request == i]
        assert len(tokens) == 6 and tokens[5] == 4 and not {4, 5} & {*tokens[:5]}


def test_the_minimum_of_both_kinds_waits() -> None:
    ends = {"eos_ids": (0, 1)}
    for written in range(6):
        trace = Trace((2, 2), (2,) * written)
        assert (process([3, 2, 1], trace, **ends, min_new_tokens=3)[0] == OUT) == (written < 3)
        assert (process([3, 2, 1], trace, **ends, min_length=3)[0] == OUT) == (written < 1)
        assert (process([3, 2, 1], trace, **ends, min_length=6, min_new_tokens=3)[0] == OUT) == (written < 4)
    with pytest.raises(GenerationError, match="min_length"):
        check_minimum(GenerationParams(min_length=1, eos_ids=(0, 1)), 2)
