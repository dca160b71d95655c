"""Generation by each kind of cache: the same tokens as by the dense one, or by its own alone."""

from __future__ import annotations

from typing import Any

import pytest

from transpect.base.codec import from_data
from transpect.base.errors import ConfigError, ContextLengthError
from transpect.cache import CacheKind, Dense, Int8, Paged, Sinks, Sliding, Static
from transpect.decode import GenerationParams, Request, generate, stream


def mixed(count: int) -> list[GenerationParams]:
    """Greedy and sampled, of different lengths, so that rows leave one by one."""
    return [GenerationParams(3 + 2 * i, temperature=i % 2, seed=i) for i in range(count)]


def same(results: list[Any], expected: list[Any]) -> None:
    assert [result.ids for result in results] == [result.ids for result in expected]
    for one, other in zip(results, expected, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-9)


@pytest.mark.parametrize("shape", ["gqa", "encoder-decoder"])
@pytest.mark.parametrize("positions", ["rope", "learned", "t5"])
def test_buffers_of_one_length_change_nothing(positions: str, shape: str, tools: Any) -> None:
    """Nor where they are just long enough for the longest row alone."""
    model = tools.model(tools.Case(positions, shape))
    requests = tools.requests(model, mixed(5))
    expected = generate(model, requests)
    least = max(len(request.prompt) + request.params.max_new_tokens for request in requests)
    same(generate(model, requests, cache=Static(least)), expected)
    same(generate(model, requests, cache=Static(60), prefill_chunk=3, batch_size=2), expected)
    with pytest.raises(ContextLengthError, match=rf"must fit the {least - 1} of its cache"):
        stream(model, requests, cache=Static(least - 1))


@pytest.mark.parametrize("shape", ["gqa", "encoder-decoder"])
@pytest.mark.parametrize("strategy", [{}, {"num_beams": 3, "n": 2}, {"prompt_lookup_num_tokens": 3}], ids=str)
def test_blocks_change_nothing(strategy: dict[str, Any], shape: str, tools: Any) -> None:
    model = tools.model(tools.Case("rope", shape))
    requests = tools.requests(model, [GenerationParams(3 + i, seed=i).override(strategy) for i in range(4)])
    same(generate(model, requests, cache=Paged(3)), generate(model, requests))


@pytest.mark.parametrize("positions", ["rope", "transformer-xl"])
def test_eight_bits_depend_on_no_neighbour(positions: str, tools: Any) -> None:
    model = tools.model(tools.Case(positions, "gqa"))
    requests = tools.requests(model, mixed(5))
    alone = [generate(model, [request], cache=Int8(4), prefill_chunk=2)[0] for request in requests]
    same(generate(model, requests, cache=Int8(4)), alone)


def test_the_widest_window_is_all_that_is_needed(tools: Any) -> None:
    model = tools.model(tools.Case("rope", "window"))
    requests = tools.requests(model, mixed(5))
    for chunk in (None, 1, 3):
        same(generate(model, requests, cache=Sliding(), prefill_chunk=chunk), generate(model, requests))
    with pytest.raises(ConfigError, match="every layer sees a window"):
        stream(tools.model(), requests, cache=Sliding())


@pytest.mark.parametrize("kind", [Dense(), Static(9), Paged(8), Int8(), Sliding(3), Sinks(2, 5)], ids=str)
def test_a_kind_has_a_name(kind: CacheKind) -> None:
    options = {name: value for name, value in vars(kind).items() if value is not None}
    assert from_data(CacheKind, {"kind": kind.kind, **options}) == kind  # type: ignore[type-abstract]


def test_what_does_not_fit_a_kind_is_refused_at_the_call(tools: Any) -> None:
    request = Request([1], GenerationParams(2))
    with pytest.raises(ConfigError, match="whole groups"):
        stream(tools.model(), [request], cache=Int8(3))
    with pytest.raises(ConfigError, match="length must be at least 1"):
        Static(0)
