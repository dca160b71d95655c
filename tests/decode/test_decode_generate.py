"""Batched decoding with a cache against single full passes without one, over position schemes × shapes of model."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch

from transpect.base.errors import ContextLengthError, GenerationError
from transpect.core import CausalLM, Full, ModelConfig, SequenceClass, Transformer, Window, override, preset
from transpect.decode import Event, GenerationParams, Request, Result, generate, stream

POSITIONS = ("none", "sinusoidal", "learned", "rope", "rope-dynamic", "alibi", "t5", "transformer-xl")
SHAPES = ("mha", "gqa", "window", "packed", "prefix", "encoder-decoder")
NEW = 7


def mixed(rows: int, **common: Any) -> list[GenerationParams]:
    """Rows that differ in all they can: some greedy, some sampled, of different lengths."""
    kinds: list[dict[str, Any]] = [
        {"max_new_tokens": NEW},
        {"temperature": 1.0, "max_new_tokens": NEW - 3},
        {"temperature": 0.8, "top_k": 5, "top_p": 0.9},
        {"max_new_tokens": 1},
        {"temperature": 2.0, "top_p": 0.5},
        {"temperature": 1.0, "top_k": 3, "min_new_tokens": 3, "eos_ids": tuple(range(0, 31, 2))},
    ]
    return [
        GenerationParams(**{"max_new_tokens": NEW, "seed": 100 + i, **common, **kinds[i % len(kinds)]})
        for i in range(rows)
    ]


def greedy(rows: int, **changes: Any) -> list[GenerationParams]:
    return [GenerationParams(**{"max_new_tokens": NEW, "seed": 0, **changes})] * rows


def check(results: list[Result], expected: list[tuple[list[int], list[float]]]) -> None:
    assert [list(result.ids) for result in results] == [ids for ids, _ in expected]
    for result, (_, logprobs) in zip(results, expected, strict=True):
        assert result.logprobs == pytest.approx(logprobs, abs=1e-9)


@pytest.mark.parametrize(("positions", "shape"), list(itertools.product(POSITIONS, SHAPES)))
def test_batched_and_cached_equals_spelled_out(positions: str, shape: str, tools: Any) -> None:
    model = tools.model(tools.Case(positions, shape))
    requests = tools.requests(model, greedy(3) + mixed(5))
    expected = [tools.spelled_out(model, request) for request in requests]
    check(generate(model, requests), expected)
    check(generate(model, requests, batch_size=3, prefill_chunk=2), expected)
    check([generate(model, [request])[0] for request in requests[3:6]], expected[3:6])
    assert len({token for ids, _ in expected for token in ids}) > 3, "the models should have something to say"


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("shape", SHAPES)
def test_prompts_may_be_read_in_pieces(shape: str, chunk: int, tools: Any) -> None:
    model = tools.model(tools.Case("rope-dynamic", shape))
    requests = tools.requests(model, mixed(6))
    whole, pieces = generate(model, requests), generate(model, requests, prefill_chunk=chunk)
    assert [r.ids for r in pieces] == [r.ids for r in whole]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("shape", ["gqa", "prefix", "encoder-decoder"])
def test_a_needle_does_not_feel_its_neighbours(shape: str, temperature: float, tools: Any) -> None:
    """In float32, in every place of batches of many sizes, among neighbours of other lengths and parameters."""
    model = tools.model(tools.Case("rope", shape), torch.float32)
    (needle,) = tools.requests(model, [GenerationParams(12, temperature=temperature, seed=9)])
    alone = generate(model, [needle])[0]
    generator = torch.Generator().manual_seed(3)
    for size in (2, 3, 5, 8, 13):
        place = int(torch.randint(0, size, (), generator=generator))
        neighbours = tools.requests(model, mixed(size - 1, seed=size))
        found = generate(model, [*neighbours[:place], needle, *neighbours[place:]])[place]
        assert found.ids == alone.ids
        assert found.logprobs == pytest.approx(alone.logprobs, abs=1e-5)


def test_equal_requests_give_equal_tokens_and_other_seeds_others(tools: Any) -> None:
    model = tools.model()
    params = GenerationParams(20, temperature=1.0, seed=4)
    twice = generate(model, [Request([1, 2], params)] * 2)
    assert twice[0] == twice[1]
    others = generate(model, [Request([1, 2], replace(params, seed=seed)) for seed in range(8)])
    assert len({result.ids for result in others}) == 8


def test_without_a_seed_the_result_says_which_was_taken(tools: Any) -> None:
    model = tools.model()
    request = Request([1, 2], GenerationParams(20, temperature=1.0))
    first, second = generate(model, [request, request])
    assert first.seed != second.seed
    assert first.ids != second.ids
    again = generate(model, [Request([1, 2], replace(request.params, seed=first.seed))])[0]
    assert (again.ids, again.seed) == (first.ids, first.seed)


# how an output ends


def test_each_eos_id_ends_its_own_row_only(tools: Any) -> None:
    model = tools.model()
    free = generate(model, tools.requests(model, greedy(6, max_new_tokens=10)))
    ends = [(row.ids[2], row.ids[5]) for row in free]
    params = [GenerationParams(10, seed=0, eos_ids=pair) for pair in ends]
    for row, eos, whole in zip(generate(model, tools.requests(model, params)), ends, free, strict=True):
        first = min(whole.ids.index(token) for token in eos)
        assert row.ids == whole.ids[: first + 1]
        assert row.finish_reason == "eos"


def test_ignore_eos_goes_on(tools: Any) -> None:
    model = tools.model()
    free = generate(model, tools.requests(model, greedy(2)))
    params = [GenerationParams(NEW, NEW, seed=0, eos_ids=row.ids, ignore_eos=True) for row in free]
    kept = generate(model, tools.requests(model, params))
    assert [row.ids for row in kept] == [row.ids for row in free]
    assert {row.finish_reason for row in kept} == {"length"}


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_tokens(count: int, tools: Any) -> None:
    model = tools.model()
    events = list(stream(model, [Request([3, 4], GenerationParams(count)), Request([5], GenerationParams(2))]))
    own = [event for event in events if event.request == 0]
    assert [event.finish_reason for event in own] == [None] * max(0, count - 1) + ["length"]
    assert sum(event.token is not None for event in own) == count
    assert len(generate(model, [Request([3, 4], GenerationParams(count))])[0].ids) == count


def test_nothing_asked_nothing_run(tools: Any) -> None:
    model = tools.model()
    assert generate(model, []) == []
    model.forward = model.towers = None  # whatever is run would fail
    assert list(stream(model, [Request([1], GenerationParams(0, seed=0))])) == [Event(0, None, finish_reason="length")]


def test_the_context_ends_an_output(tools: Any) -> None:
    model = tools.model(tools.Case("learned"), context_length=8)
    params = GenerationParams(100, overflow="stop")
    results = generate(model, [Request([1] * length, params) for length in (1, 5, 7)])
    assert [len(result.ids) for result in results] == [7, 3, 1]
    assert {result.finish_reason for result in results} == {"length"}
    assert generate(model, [Request([1] * 8, GenerationParams(0))])[0].ids == ()
    assert len(generate(model, [Request([1] * 6, replace(params, min_new_tokens=50))])[0].ids) == 2


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_prompt_beyond_the_context_is_refused_at_the_call(positions: str, tools: Any) -> None:
    model = tools.model(tools.Case(positions), context_length=8)
    for length in (8, 9, 30):
        with pytest.raises(ContextLengthError, match="context of 8"):
            stream(model, [Request([1], GenerationParams(1)), Request([1] * length)])
    both = tools.model(tools.Case(positions, "encoder-decoder"), context_length=8)
    with pytest.raises(ContextLengthError, match="source"):
        stream(both, [Request([1], source=[1] * 9)])


# what can't be decoded


def encoder_only() -> ModelConfig:
    return override(preset("bert-base"), [("n_layers", 1), ("d_model", 8), ("n_heads", 2), ("vocab_size", 9)])


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("sees ahead", {"visibility": Full()}, "left to right"),
    ("window both ways", {"visibility": Window(3, both_ways=True)}, "left to right"),
]


@pytest.mark.parametrize(("name", "changes", "message"), REFUSED, ids=lambda x: x if isinstance(x, str) else "")
def test_a_decoder_that_looks_ahead_is_refused(name: str, changes: dict[str, Any], message: str, tools: Any) -> None:
    config = tools.config(tools.Case())
    with pytest.raises(GenerationError, match=message):
        stream(Transformer(replace(config, decoder=replace(config.decoder, **changes))), [Request([1])])


def test_what_writes_no_text_is_refused(tools: Any) -> None:
    with pytest.raises(GenerationError, match="encoder"):
        stream(Transformer(encoder_only()), [Request([1])])
    with pytest.raises(GenerationError, match="encoder"):
        stream(Transformer(replace(encoder_only(), head=CausalLM())), [Request([1])])
    classifier = replace(tools.config(tools.Case()), head=SequenceClass(n_classes=3))
    with pytest.raises(GenerationError, match="head"):
        stream(Transformer(classifier), [Request([1])])


def test_requests_that_do_not_fit_the_model_are_refused(tools: Any) -> None:
    decoder, both = tools.model(), tools.model(tools.Case("rope", "encoder-decoder"))
    for model, request in (
        (decoder, Request([])),
        (decoder, Request([1], source=[1])),
        (both, Request([1])),
        (both, Request([], source=[1])),
        (both, Request([1], source=[])),
        (decoder, Request([1], GenerationParams(1, stop=("x",)))),
    ):
        with pytest.raises(GenerationError):
            stream(model, [request])
    for bad in ({"batch_size": 0}, {"prefill_chunk": 0}):
        with pytest.raises(GenerationError, match=next(iter(bad))):
            stream(decoder, [Request([1])], **bad)


@pytest.mark.parametrize("place", ["prompt", "source"])
@pytest.mark.parametrize("bad", [-1, 31, 999])
def test_an_id_without_a_row_is_refused_before_anything_is_read(bad: int, place: str, tools: Any) -> None:
    model = tools.model(tools.Case("rope", "encoder-decoder"))
    read = []
    model.token.register_forward_hook(lambda *_: read.append(1))
    good = Request([1, 2], source=[3])
    with pytest.raises(GenerationError, match=rf"{place}.*vocab_size=31 \(got '{bad} at place 1'\)") as caught:
        stream(model, [good, replace(good, **{place: [0, bad, -7]})], batch_size=1)
    assert caught.value.remedy
    assert not read
    ends = replace(good, prompt=[0, 30], source=[30, 0], params=GenerationParams(1))
    assert len(generate(model, [ends])[0].ids) == 1


def test_a_minimum_without_a_token_to_go_on_with_is_refused_at_the_call(tools: Any) -> None:
    everything = GenerationParams(min_new_tokens=1, eos_ids=tuple(range(31)))
    with pytest.raises(GenerationError, match="min_new_tokens"):
        stream(tools.model(), [Request([1]), Request([1], everything)], batch_size=1)


# what decoding leaves behind


def test_modes_randomness_and_gradients_are_left_alone(tools: Any) -> None:
    """A model in training is decoded without dropout, and trains on between two tokens."""
    model = tools.model()
    requests = tools.requests(model, mixed(4))
    expected = generate(model, requests)
    model.train()
    frozen = model.towers["decoder"].stack.layers[0].eval()
    modes = [module.training for module in model.modules()]
    state = torch.get_rng_state()
    events = stream(model, requests)
    for event in events:
        assert not torch.is_inference_mode_enabled()
        assert torch.is_grad_enabled()
        assert [module.training for module in model.modules()] == modes
        assert event.token is not None
    assert torch.equal(torch.get_rng_state(), state)
    assert not frozen.training
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert [row.ids for row in generate(model, requests)] == [row.ids for row in expected]
    model(torch.tensor([[1, 2]])).sum().backward()


def test_an_error_in_the_model_leaves_its_mode(tools: Any) -> None:
    model = tools.model().train()
    with torch.no_grad():
        model.token.weight.fill_(torch.nan)
    with pytest.raises(GenerationError, match="logits"):
        generate(model, [Request([1])])
    assert all(module.training for module in model.modules())


def test_closing_the_stream_ends_the_work(tools: Any) -> None:
    model = tools.model()
    calls = []
    model.head.register_forward_hook(lambda *_: calls.append(1))
    events = stream(model, tools.requests(model, greedy(4)))
    next(events)
    events.close()
    assert len(calls) == 1


def test_finished_rows_leave_the_batch(tools: Any) -> None:
    model = tools.model()
    rows = []
    model.head.register_forward_hook(lambda _, inputs, output: rows.append(len(output)))
    generate(model, tools.requests(model, [GenerationParams(n) for n in (1, 4, 2, 4)]))
    assert rows == [4, 3, 2, 2]


def test_prompts_cost_the_logits_of_one_column(tools: Any) -> None:
    model = tools.model()
    columns = []
    model.head.register_forward_hook(lambda _, inputs, output: columns.append(output.shape[1]))
    generate(model, [Request([1] * 20, GenerationParams(3))])
    assert columns == [1, 1, 1]
    columns.clear()
    generate(model, [Request([1] * 20, GenerationParams(3))], prefill_chunk=6)
    assert columns == [1, 1, 1], "the head has nothing to say before the last piece"


def test_rows_that_leave_take_nothing_of_the_encoders_output_along(tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache holds its keys and values; the vectors themselves are let go of after the prompt."""
    model = tools.model(tools.Case("rope", "encoder-decoder"))
    requests = tools.requests(model, [GenerationParams(n) for n in (1, 4, 2, 4)])
    expected = [tools.spelled_out(model, request) for request in requests]
    held: list[int] = []
    hidden = Transformer.hidden

    def watched(self: Transformer, ids: torch.Tensor, **context: Any) -> torch.Tensor:
        held.append(context["source"].hidden.numel())
        return hidden(self, ids, **context)

    monkeypatch.setattr(Transformer, "hidden", watched)
    found = generate(model, requests)
    assert held[0] > 0
    assert held[1:] == [0, 0, 0]
    check(found, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_half_precision_writes(shape: str, dtype: torch.dtype, tools: Any) -> None:
    model = tools.model(tools.Case("rope", shape), dtype)
    for result in generate(model, tools.requests(model, mixed(6))):
        assert all(logprob <= 0 for logprob in result.logprobs)
