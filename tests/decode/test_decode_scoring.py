"""Scores against log-softmax of single full passes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from transpect.base.errors import ConfigError, ContextLengthError, GenerationError
from transpect.core import NO_SOURCE, Tags, Transformer, Window
from transpect.decode import Passage, Score, logprobs

SHAPES = ("mha", "window", "packed", "prefix", "encoder-decoder")


@torch.no_grad()
def spelled_out(model: Transformer, passage: Passage) -> list[float]:
    ids = [*passage.context, *passage.target]
    position = torch.arange(len(ids) - 1)[None]
    tags = Tags.of(position, prefix=position < len(passage.context))
    source = NO_SOURCE if passage.source is None else model.encode(torch.tensor([list(passage.source)]))
    out = model(torch.tensor([ids[:-1]]), tags=tags, source=source)[0].double().log_softmax(-1)
    first = max(1, len(passage.context))
    return [float(out[i - 1, ids[i]]) for i in range(first, len(ids))]


def passages(model: Transformer) -> list[Passage]:
    sizes = [(1, 5), (4, 9), (0, 7), (3, 1), (2, 0), (0, 1), (0, 0), (6, 6)]
    generator = torch.Generator().manual_seed(2)

    def ids(size: int) -> list[int]:
        return torch.randint(0, 31, (size,), generator=generator).tolist()

    return [Passage(ids(a), ids(b), ids(1 + a) if model.config.encoder else None) for a, b in sizes]


@pytest.mark.parametrize("batch_size", [1, 3, 8])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("positions", ["rope", "rope-dynamic", "t5", "learned"])
def test_batched_equals_spelled_out(positions: str, shape: str, batch_size: int, tools: Any) -> None:
    model = tools.model(tools.Case(positions, shape))
    rows = passages(model)
    found = logprobs(model, rows, batch_size=batch_size)
    for got, row in zip(found, rows, strict=True):
        expected = [] if len(row.context) + len(row.target) < 2 else spelled_out(model, row)
        assert got == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("stride", [1, 3, 4, 8])
@pytest.mark.parametrize("n_context", [0, 1, 5, 11])
def test_a_long_text_is_read_in_windows(n_context: int, stride: int, tools: Any) -> None:
    """Each token once, given at least context − stride tokens before it."""
    model = tools.model(tools.Case("rope"), context_length=8)
    ids = torch.randint(0, 31, (30,), generator=torch.Generator().manual_seed(5)).tolist()
    (found,) = logprobs(model, [Passage(ids[:n_context], ids[n_context:])], stride=stride)
    assert len(found) == 30 - max(1, n_context)
    for place, got in enumerate(found, max(1, n_context)):
        choices = [
            spelled_out(model, Passage(ids[begin:place], [ids[place]]))[0]
            for begin in range(max(0, place - 8), max(1, place - 8 + stride))
        ]
        assert min(abs(got - choice) for choice in choices) < 1e-9


def test_a_text_as_long_as_the_context_is_read_at_once(tools: Any) -> None:
    model = tools.model(tools.Case("learned"), context_length=8)
    (found,) = logprobs(model, [Passage([1], [2] * 8)])
    assert found == pytest.approx(spelled_out(model, Passage([1], [2] * 8)), abs=1e-9)
    assert logprobs(model, [Passage([1], [2] * 8)], stride=2) == [found]
    with pytest.raises(ContextLengthError, match="stride"):
        logprobs(model, [Passage([1], [2] * 9)])


def test_what_can_not_be_scored_is_refused(tools: Any) -> None:
    decoder, both = tools.model(context_length=8), tools.model(tools.Case("rope", "encoder-decoder"), context_length=8)
    for model, passage in ((decoder, Passage([1], [2], [3])), (both, Passage([1], [2]))):
        with pytest.raises(GenerationError, match="source"):
            logprobs(model, [passage])
    with pytest.raises(ContextLengthError, match="source"):
        logprobs(both, [Passage([1], [2], [3] * 9)])
    for bad in ({"stride": 0}, {"stride": 9}, {"batch_size": 0}):
        with pytest.raises(GenerationError, match=next(iter(bad))):
            logprobs(decoder, [Passage([1], [2])], **bad)


@pytest.mark.parametrize("place", ["context", "target", "source"])
@pytest.mark.parametrize("bad", [-1, 31, 999])
def test_an_id_without_a_row_is_refused_before_anything_is_read(bad: int, place: str, tools: Any) -> None:
    model = tools.model(tools.Case("rope", "encoder-decoder"))
    read = []
    model.token.register_forward_hook(lambda *_: read.append(1))
    good = Passage([0, 30], [30, 0], [30, 0])
    with pytest.raises(GenerationError, match=rf"{place}.*vocab_size=31 \(got '{bad} at place 1'\)"):
        logprobs(model, [good, replace(good, **{place: [0, bad, -7]})], batch_size=1)
    assert not read
    assert len(logprobs(model, [good])[0]) == 2


def test_a_model_in_training_is_scored_without_dropout_and_trains_on(tools: Any) -> None:
    model = tools.model()
    rows = passages(model)
    expected = logprobs(model, rows)
    assert logprobs(model.train(), rows) == expected
    assert all(module.training for module in model.modules())


def test_measures() -> None:
    score = Score((math.log(0.5), math.log(0.25)), n_chars=6)
    assert score.n_tokens == 2
    assert score.logprob == pytest.approx(math.log(0.125))
    assert score.perplexity == pytest.approx(0.125**-0.5)
    assert score.bits_per_char == pytest.approx(0.5)
    assert math.isnan(Score((), 0).perplexity)
    assert Score((-1e4,), 1).perplexity == math.inf
    assert math.isnan(Score((math.nan,), 1).perplexity)
    assert math.isnan(Score((), 0).bits_per_char)


@pytest.mark.parametrize("batch_size", [1, 3, 8])
@pytest.mark.parametrize("shape", ["mha", "window"])
@pytest.mark.parametrize("positions", ["rope", "t5", "transformer-xl", "sinusoidal"])
def test_in_segments_with_a_memory_as_long_as_the_past_it_is_one_pass(
    positions: str, shape: str, batch_size: int, tools: Any
) -> None:
    """Texts longer than the context too; in each batch rows of every length."""
    model = tools.model(tools.Case(positions, shape), context_length=4)
    rows = passages(model)
    for stride in (1, 3, 4, None):
        found = logprobs(model, rows, batch_size=batch_size, stride=stride, memory=50)
        for got, row in zip(found, rows, strict=True):
            expected = [] if len(row.context) + len(row.target) < 2 else spelled_out(model, row)
            assert got == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("memory", [0, 2, 5])
def test_a_short_memory_is_a_window_and_no_row_feels_another(memory: int, tools: Any) -> None:
    """Token by token a memory of M is `Window` (M + 1)."""
    model = tools.model(tools.Case("transformer-xl"))
    rule = replace(model.config.last, visibility=Window(memory + 1))
    ruled = Transformer(replace(model.config, decoder=rule)).double().eval()
    ruled.load_state_dict(model.state_dict())
    rows = passages(model)
    found = logprobs(model, rows, stride=1, memory=memory)
    assert found != logprobs(model, rows)
    for got, row in zip(found, rows, strict=True):
        expected = [] if len(row.context) + len(row.target) < 2 else spelled_out(ruled, row)
        assert got == pytest.approx(expected, abs=1e-9)
    for stride in (3, 4):
        alone = [logprobs(model, [row], stride=stride, memory=memory)[0] for row in rows]
        for got, expected in zip(logprobs(model, rows, stride=stride, memory=memory), alone, strict=True):
            assert got == pytest.approx(expected, abs=1e-9)


def test_a_memory_is_refused_where_it_can_not_go_on(tools: Any) -> None:
    passage = Passage([1], [2, 3])
    for case in (tools.Case("learned"), tools.Case("rope-dynamic")):
        with pytest.raises(ConfigError, match="with a memory"):
            logprobs(tools.model(case), [passage], memory=3)
    with pytest.raises(GenerationError, match="memory must be at least 0"):
        logprobs(tools.model(tools.Case("rope")), [passage], memory=-1)
