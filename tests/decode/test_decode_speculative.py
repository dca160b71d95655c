"""Decoding with drafts is decoding: the same tokens at temperature 0, whoever drafts, and a row that feels nobody."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from transpect.base.errors import ConfigError, ContextLengthError, GenerationError, TranspectError
from transpect.cache import CacheKind, Int8, Sinks, Static
from transpect.core import Transformer
from transpect.core.kernels import Linear
from transpect.decode import GenerationParams, Passage, Request, Result, generate, logprobs, stream
from transpect.decode.constraints import Regex
from transpect.decode.strategies import DraftModel, EarlyExit, PromptLookup, Strategy
from transpect.decode.strategies.prompt_lookup import Continuations

POSITIONS = ("none", "sinusoidal", "learned", "rope", "rope-dynamic", "alibi", "t5", "transformer-xl")
SHAPES = ("mha", "gqa", "window", "packed", "prefix", "encoder-decoder")
UNSURE = {"assistant_confidence_threshold": 0.0}


def ways(model: Transformer, tools: Any) -> dict[str, Strategy]:
    """Each mode with few drafts that stay, and a draft that is the model itself."""
    shape = "encoder-decoder" if model.config.encoder else "mha"
    other = tools.model(tools.Case("sinusoidal", shape), vocab_size=model.config.vocab_size)
    return {
        "look-up": PromptLookup(prompt_lookup_num_tokens=4),
        "draft": DraftModel(draft=other, num_assistant_tokens=3, **UNSURE),
        "itself": DraftModel(draft=model, num_assistant_tokens=3, num_assistant_tokens_schedule="heuristic", **UNSURE),
        "early exit": EarlyExit(early_exit=1, num_assistant_tokens=3, assistant_confidence_threshold=0.3),
    }


def by(strategy: Strategy, requests: Sequence[Request]) -> list[Request]:
    return [replace(request, params=replace(request.params, strategy=strategy)) for request in requests]


def same(found: Sequence[Result], expected: Sequence[Result]) -> None:
    assert [(row.ids, row.text, row.finish_reason) for row in found] == [
        (row.ids, row.text, row.finish_reason) for row in expected
    ]
    for one, other in zip(found, expected, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-9)


@pytest.mark.parametrize(("positions", "shape"), list(itertools.product(POSITIONS, SHAPES)))
def test_greedy_tokens_are_those_without_drafts(positions: str, shape: str, tools: Any) -> None:
    """Rows of other lengths that end at other times."""
    model = tools.model(tools.Case(positions, shape))
    requests = tools.requests(model, [GenerationParams(count) for count in (7, 1, 4)])
    expected = generate(model, requests)
    for name, strategy in ways(model, tools).items():
        found = generate(model, by(strategy, requests))
        same(found, expected)
        for row in found:
            assert 0 <= row.accepted <= row.drafted
            assert row.accepted < max(1, len(row.ids))
            if name == "itself":
                assert row.accepted == row.drafted >= min(len(row.ids) - 2, 3)


FILTERS: dict[str, dict[str, Any]] = {
    "penalties": {"repetition_penalty": 1.5, "presence_penalty": 0.5, "frequency_penalty": 0.3},
    "bans": {"no_repeat_ngram_size": 2, "banned": (3, 4), "bad_words": ((5, 6), (7,))},
    "ends": {"eos_ids": tuple(range(0, 31, 5)), "min_new_tokens": 3},
    "bias": {"logit_bias": {2: 3.0, 5: -2.0}, "dry_multiplier": 0.8},
}


def varied(rows: int, **changes: Any) -> list[GenerationParams]:
    return [GenerationParams(**{"max_new_tokens": 5 + row, "seed": row, **changes}) for row in range(rows)]


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("shape", ["mha", "encoder-decoder"])
def test_filters_hold_for_tokens_ahead(shape: str, filters: str, tools: Any) -> None:
    """Each looks at the past that a token would have, drafted tokens included."""
    model = tools.model(tools.Case("rope", shape))
    requests = tools.requests(model, varied(4, **FILTERS[filters]))
    expected = generate(model, requests)
    assert expected != generate(model, tools.requests(model, varied(4)))
    for strategy in ways(model, tools).values():
        same(generate(model, by(strategy, requests)), expected)


@pytest.mark.parametrize("filters", ["plain", *FILTERS])
def test_a_guess_changes_no_seed(filters: str, tools: Any) -> None:
    """Drafts without a law: what is drawn is what is drawn without them, at any temperature."""
    model = tools.model(tools.Case("rope", "gqa"))
    params = varied(4, temperature=0.9, top_p=0.9, **FILTERS.get(filters, {}))
    requests = [replace(one, prompt=[*one.prompt, *one.prompt]) for one in tools.requests(model, params)]
    expected = generate(model, requests)
    for most, longest in ((1, 1), (3, 2), (10, 4)):
        guessing = PromptLookup(prompt_lookup_num_tokens=most, max_matching_ngram_size=longest)
        found = generate(model, by(guessing, requests))
        same(found, expected)
        assert filters != "plain" or any(row.drafted for row in found)


def test_guessing_goes_on_after_a_break(tools: Any) -> None:
    model = tools.model()
    params = GenerationParams(9, temperature=1.0, seed=3, strategy=PromptLookup())
    (whole,) = generate(model, [Request([1, 2, 3, 1, 2], params)])
    broken = [Request([1, 2, 3, 1, 2], params, written=whole.ids[:at]) for at in range(1, 9)]
    for at, rest in enumerate(generate(model, broken), 1):
        assert rest.ids == whole.ids[at:]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("shape", ["gqa", "encoder-decoder"])
def test_a_needle_does_not_feel_its_neighbours(shape: str, temperature: float, tools: Any) -> None:
    """In float32, in any place, among neighbours that draft and accept other numbers of tokens."""
    model = tools.model(tools.Case("rope", shape), torch.float32)
    generator = torch.Generator().manual_seed(3)
    for strategy in ways(model.double(), tools).values():
        if isinstance(strategy, DraftModel):
            strategy.draft.float()
        model.float()
        (needle,) = by(strategy, tools.requests(model, [GenerationParams(9, temperature=temperature, seed=9)]))
        alone = generate(model, [needle])[0]
        for size in (2, 5):
            place = int(torch.randint(0, size, (), generator=generator))
            others = by(strategy, tools.requests(model, varied(size - 1, temperature=1.0, top_k=6)))
            found = generate(model, [*others[:place], needle, *others[place:]])[place]
            assert (found.ids, found.drafted, found.accepted) == (alone.ids, alone.drafted, alone.accepted)
            assert found.logprobs == pytest.approx(alone.logprobs, abs=1e-5)


@pytest.mark.parametrize("shape", ["mha", "encoder-decoder"])
def test_logprobs_are_the_models_own(shape: str, tools: Any) -> None:
    model = tools.model(tools.Case("alibi", shape))
    requests = tools.requests(model, varied(4, temperature=1.0, top_k=4))
    for strategy in ways(model, tools).values():
        found = generate(model, by(strategy, requests))
        given = [Passage(own.prompt, row.ids, own.source) for own, row in zip(requests, found, strict=True)]
        for row, values in zip(found, logprobs(model, given), strict=True):
            assert row.logprobs == pytest.approx(values, abs=1e-9)


def test_a_seed_gives_the_same_and_outputs_differ(tools: Any) -> None:
    model = tools.model()
    for strategy in ways(model, tools).values():
        (request,) = by(strategy, [Request([3, 4, 3], GenerationParams(8, temperature=1.0, seed=5, n=3))])
        several = generate(model, [request])
        assert [row.choice for row in several] == [0, 1, 2]
        assert len({row.ids for row in several}) == 3
        again = generate(model, [replace(request, params=replace(request.params, n=1, seed=6))])[0]
        assert again.ids == several[1].ids


# what ends or holds an output


def test_stop_strings_cut_within_a_draft(letters: Any, tools: Any) -> None:
    model = tools.model(vocab_size=letters.vocab_size)
    free = generate(model, tools.requests(model, varied(4, max_new_tokens=12)), tokenizer=letters)
    stops = [row.text[4:7] for row in free]
    requests = tools.requests(model, [GenerationParams(12, seed=0, stop=stop) for stop in stops])
    expected = generate(model, requests, tokenizer=letters)
    assert {row.finish_reason for row in expected} == {"stop"}
    for strategy in ways(model, tools).values():
        same(generate(model, by(strategy, requests), tokenizer=letters), expected)
        deltas = [event.text for event in stream(model, by(strategy, requests[:1]), tokenizer=letters)]
        assert "".join(deltas) == expected[0].text


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_a_language_holds_drafts_too(temperature: float, letters: Any, tools: Any) -> None:
    model = tools.model(vocab_size=letters.vocab_size)
    pattern = "(fox|dog){1,3}[.]"
    params = GenerationParams(20, temperature=temperature, constraint=Regex(pattern), ignore_eos=True)
    requests = [
        replace(one, params=replace(params, seed=i)) for i, one in enumerate(tools.requests(model, [params] * 4))
    ]
    expected = generate(model, requests, tokenizer=letters)
    for strategy in ways(model, tools).values():
        found = generate(model, by(strategy, requests), tokenizer=letters)
        if temperature == 0 or isinstance(strategy, PromptLookup):
            same(found, expected)
        for row in found:
            assert re.fullmatch(pattern, row.text)


def test_guidance_goes_along(tools: Any) -> None:
    model = tools.model(tools.Case("rope", "gqa"))
    params = [GenerationParams(8, seed=i, guidance_scale=scale) for i, scale in enumerate((1.5, 3.0, 0.5))]
    requests = tools.requests(model, params)
    expected = generate(model, requests)
    for strategy in ways(model, tools).values():
        same(generate(model, by(strategy, requests)), expected)


def test_the_context_ends_an_output(tools: Any) -> None:
    """Nothing is read beyond the last position, drafts included."""
    model = tools.model(tools.Case("learned"), context_length=9)
    requests = [Request([1, 2] * half, GenerationParams(50, overflow="stop")) for half in (1, 3, 4)]
    expected = generate(model, requests)
    for strategy in (
        PromptLookup(),
        DraftModel(draft=model, num_assistant_tokens=9, **UNSURE),
        EarlyExit(early_exit=1, num_assistant_tokens=9, **UNSURE),
    ):
        same(generate(model, by(strategy, requests)), expected)


def test_a_draft_with_a_shorter_context_drafts_while_it_can(tools: Any) -> None:
    model, short = tools.model(tools.Case("learned")), tools.model(tools.Case("learned"), context_length=8)
    short.load_state_dict({**model.state_dict(), **{k: v for k, v in short.state_dict().items() if "position" in k}})
    requests = [Request([1, 2], GenerationParams(20)), Request([1] * 7, GenerationParams(12))]
    drafting = DraftModel(draft=short, num_assistant_tokens=5, **UNSURE)
    found = generate(model, by(drafting, requests))
    same(found, generate(model, requests))
    assert 0 < found[1].drafted < 4
    with pytest.raises(ContextLengthError, match="draft's context of 8"):
        generate(model, by(drafting, [Request([1] * 9, GenerationParams(3))]))


def test_an_encoder_decoder_takes_a_decoder_as_its_draft(tools: Any) -> None:
    model = tools.model(tools.Case("rope", "encoder-decoder"))
    requests = tools.requests(model, varied(4))
    found = generate(model, by(DraftModel(draft=tools.model(), num_assistant_tokens=2, **UNSURE), requests))
    same(found, generate(model, requests))


def sums(model: Transformer) -> Transformer:
    """The same sizes with attention by sums."""
    stack = model.config.last
    attention = replace(stack.attention, kernel=Linear(), dropout=0.0)
    twin = Transformer(replace(model.config, decoder=replace(stack, attention=attention))).eval().double()
    twin.load_state_dict(model.state_dict())
    return twin


def test_sums_are_taken_back_too(tools: Any) -> None:
    other = tools.model(tools.Case("none"))
    model = sums(other)
    requests = tools.requests(model, varied(5))
    expected = generate(model, requests)
    for strategy in (
        PromptLookup(),
        DraftModel(draft=other, num_assistant_tokens=3, **UNSURE),
        EarlyExit(early_exit=1, num_assistant_tokens=3, **UNSURE),
    ):
        same(generate(model, by(strategy, requests)), expected)
    with pytest.raises(GenerationError, match="attention by sums"):
        generate(other, by(DraftModel(draft=model), requests))


# what is asked for, and what can't be


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("from 0", {"prompt_lookup_num_tokens": -1}),
    ("from 0", {"prompt_lookup_num_tokens": 2.0}),
    ("from 1", {"prompt_lookup_num_tokens": 2, "max_matching_ngram_size": 0}),
    ("early_exit must be", {"early_exit": 0}),
    ("from 1", {"early_exit": 1, "num_assistant_tokens": True}),
    ("schedule must be one of constant, heuristic", {"early_exit": 1, "num_assistant_tokens_schedule": "linear"}),
    ("probability from 0 to 1", {"early_exit": 1, "assistant_confidence_threshold": 1.5}),
    ("draft must be a model", {"draft": "gpt2"}),
    ("belong to one strategy", {"num_assistant_tokens": 3}),
    ("belong to one strategy", {"max_matching_ngram_size": 3}),
    ("belong to one strategy", {"prompt_lookup_num_tokens": 3, "early_exit": 1}),
    ("belong to one strategy", {"prompt_lookup_num_tokens": 3, "num_assistant_tokens": 1}),
]


@pytest.mark.parametrize(("message", "options"), REFUSED, ids=str)
def test_wrong_options_are_refused_by_name(message: str, options: dict[str, Any]) -> None:
    with pytest.raises(GenerationError, match=message) as caught:
        GenerationParams().override(options)
    assert caught.value.remedy


def test_options_choose_by_name(tools: Any) -> None:
    model = tools.model()
    asked = {"draft": model, "num_assistant_tokens": 4}
    assert GenerationParams().override(asked).strategy == DraftModel(draft=model, num_assistant_tokens=4)
    looking = GenerationParams().override({"prompt_lookup_num_tokens": 7})
    assert looking.strategy == PromptLookup(prompt_lookup_num_tokens=7)
    assert looking.override({"prompt_lookup_num_tokens": None}).strategy == GenerationParams().strategy


def test_what_a_model_can_not_do_is_refused_before_anything_runs(tools: Any) -> None:
    model = tools.model()
    model.token.register_forward_hook(lambda *_: pytest.fail("something ran"))
    for message, strategy in (
        ("vocabulary of the model", DraftModel(draft=tools.model(vocab_size=30))),
        ("needs a source", DraftModel(draft=tools.model(tools.Case("rope", "encoder-decoder")))),
        ("before the last of 2 layers", EarlyExit(early_exit=2)),
    ):
        with pytest.raises(GenerationError, match=message):
            stream(model, by(strategy, [Request([1], GenerationParams(3))]))


def test_what_lets_go_of_tokens_is_refused_before_anything_runs(tools: Any) -> None:
    model = tools.model()
    kinds: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"memory": 4}, {}),
        ({"cache": Sinks(1, 4)}, {}),
        ({}, {"overflow": "sinks"}),
    ]
    strategies = ways(model, tools).values()
    model.token.register_forward_hook(lambda *_: pytest.fail("something ran"))
    for strategy, (options, changes) in itertools.product(strategies, kinds):
        request = Request([1, 2, 1], GenerationParams(5, strategy=strategy, **changes))
        with pytest.raises(ConfigError, match="memory of the last tokens"):
            stream(model, [request], **options)


@pytest.mark.parametrize("kind", [Static(21), Int8(4)], ids=str)
def test_every_cache_that_takes_back_serves_drafts(kind: CacheKind, tools: Any) -> None:
    """A static one to its last column, whatever the rows keep; one of eight bits gives what it gives without drafts."""
    model = tools.model(tools.Case("rope", "gqa"))
    prompts = [[1, 2, 3], [4, 5, 4, 5, 4, 5], [6] * 12]
    requests = [Request(prompt, GenerationParams(21 - len(prompt))) for prompt in prompts]
    expected = generate(model, requests, cache=kind)
    for strategy in ways(model, tools).values():
        same(generate(model, by(strategy, requests), cache=kind), expected)


def test_damaged_drafts_are_told(tools: Any) -> None:
    model, broken = tools.model(), tools.model(tools.Case("alibi"))
    with torch.no_grad():
        broken.token.weight.fill_(torch.nan)
    for temperature in (0.0, 1.0):
        requests = by(DraftModel(draft=broken), [Request([1], GenerationParams(5, temperature=temperature))])
        with pytest.raises(TranspectError, match="logits must be numbers"):
            generate(model, requests)


# what it costs


def test_a_round_is_one_pass(tools: Any) -> None:
    """Of the model, whatever is drafted; each token but the accepted ones has a pass of its own."""
    model = tools.model(tools.Case("none"))
    passes = []
    model.token.register_forward_hook(lambda _, inputs, output: passes.append(inputs[0].shape[1]))
    request = Request([1, 2, 3, 4, 5, 6] * 3, GenerationParams(30, repetition_penalty=1.0))
    (row,) = generate(model, by(PromptLookup(), [request]))
    assert len(passes) == len(row.ids) - row.accepted
    assert sum(passes) == 18 + len(row.ids) - 1 - row.accepted + row.drafted


def test_a_draft_model_reads_each_token_once(tools: Any) -> None:
    """Beside those that it drafted in vain."""
    model, draft = tools.model(), tools.model(tools.Case("sinusoidal"))
    read = []
    draft.token.register_forward_hook(lambda _, inputs, output: read.append(inputs[0].shape[1]))
    request = Request([1, 2, 3], GenerationParams(25))
    (row,) = generate(model, by(DraftModel(draft=draft, num_assistant_tokens=3, **UNSURE), [request]))
    assert sum(read) <= 3 + len(row.ids) + row.drafted - row.accepted


def naive(ids: list[int], n: int, most: int) -> list[int]:
    for size in range(min(n, len(ids)), 0, -1):
        for start in range(len(ids) - size - 1, -1, -1):
            if ids[start : start + size] == ids[-size:]:
                drafted = list(ids)
                for step in range(most):
                    drafted.append(drafted[start + size + step])
                return drafted[len(ids) :]
    return []


@pytest.mark.parametrize("n", [1, 2, 4])
def test_look_up_finds_the_last_continuation_of_the_longest_run(n: int) -> None:
    generator = torch.Generator().manual_seed(n)
    for length in range(40):
        ids = torch.randint(0, 4, (length,), generator=generator).tolist()
        seen = Continuations(n, ids[: length // 2])
        seen.extend(ids[length // 2 :])
        assert seen.draft(7) == naive(ids, n, 7)


def test_look_up_copies_from_a_source_and_not_across_its_end(tools: Any) -> None:
    seen = Continuations(3, [5, 6, 7, -1, 1, 5])
    assert seen.draft(5) == [6, 7]
    seen = Continuations(3, [5, 6, 7, -1, 7])
    assert seen.draft(5) == []
