"""Buffers of one length: the same numbers as the dense cache, one compiled graph for all steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from transpect.base.errors import ConfigError, ContextLengthError
from transpect.cache import DenseCache, StaticCache


@torch.no_grad()
def test_what_has_no_room_is_refused_and_nothing_written(tools: Any) -> None:
    model, cache = tools.build(), StaticCache(8)
    ids = tools.tokens(2, 9)
    with pytest.raises(ContextLengthError, match=r"static cache of 8 columns.*0 and 9 new ones.*Make it longer"):
        model(ids, cache=cache)
    assert cache.length == 0
    whole = model(ids[:, :8])
    model(ids[:, :6], cache=cache)
    with pytest.raises(ContextLengthError, match="6 and 3 new ones"):
        model(ids[:, :3], cache=cache)
    assert cache.length == 6
    assert float((model(ids[:, 6:8], cache=cache) - whole[:, 6:]).abs().max()) <= 1e-10
    with pytest.raises(ConfigError, match="length must be at least 1"):
        StaticCache(0)


@torch.no_grad()
def test_shapes_and_places_do_not_change(tools: Any) -> None:
    model, cache = tools.build(), StaticCache(16)
    places = set()
    model(tools.tokens(3, 4), cache=cache)
    for step in range(9):
        model(tools.tokens(3, 1, seed=step), cache=cache)
        cache.select(torch.tensor([2, 0, 0]))
        keys, values = cache._stores
        held = [*keys.values(), *values.values(), cache._tags.position, cache._end]
        places.add(tuple((tuple(x.shape), x.data_ptr()) for x in held))
    assert len(places) == 1
    assert cache.nbytes == 2 * 2 * 3 * 2 * 16 * 4 * 8  # keys and values, layers, B, K, N, E, bytes


@pytest.mark.slow
@pytest.mark.parametrize("positions", ["rope", "learned", "alibi", "t5"])
@torch.no_grad()
def test_one_graph_serves_all_steps(positions: str, tools: Any) -> None:
    """Rows padded on the left, in float32; a second graph would be an error."""
    model, ids = tools.build(positions).float(), tools.tokens(2, 30)
    tags = tools.left([4, 6], 6)
    static, dense = StaticCache(26), DenseCache()
    for cache in (static, dense):
        model(ids[:, :6], tags=tags, cache=cache)
    torch._dynamo.reset()
    step = torch.compile(lambda token: model(token, cache=static), fullgraph=True, dynamic=False)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for i in range(6, 26):
            token = ids[:, i : i + 1].clone()
            assert float((step(token) - model(token, cache=dense)).abs().max()) <= 1e-5
        assert static.length == 26
        with pytest.raises(RuntimeError, match="static cache of 26 columns"):
            step(ids[:, :1].clone())
