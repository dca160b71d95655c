"""Eight bits a number: within the stated bound of the dense cache, in the stated memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from transpect.base.errors import ConfigError
from transpect.cache import DenseCache, Int8, Int8Cache
from transpect.cache.int8 import Codes
from transpect.core import Tags

GENERATOR = torch.Generator().manual_seed(0)


def numbers(what: str) -> Tensor:
    x = torch.randn(3, 2, 50, 32, generator=GENERATOR, dtype=torch.float64)
    far = torch.linspace(-3e4, 3e4, 50, dtype=torch.float64)[:, None]
    return {
        "normal": x,
        "one channel sticks out": x * torch.where(torch.arange(32) == 5, 90.0, 1.0),
        "far from zero": x * 1e-3 + far,
        "above zero": x.abs() + 7,
        "below zero": -x.abs() - 7,
        "tiny": x * 1e-30,
        "huge": x * 1e30,
        "constant": torch.full_like(x, 3.7),
        "zero": torch.zeros_like(x),
        "one of a group": x * (torch.arange(32) % 8 == 3),
    }[what]


WHAT = [
    "normal",
    "one channel sticks out",
    "far from zero",
    "above zero",
    "below zero",
    "tiny",
    "huge",
    "constant",
    "zero",
    "one of a group",
]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("group", [1, 8, 32])
@pytest.mark.parametrize("what", WHAT)
def test_no_number_is_off_by_more_than_half_a_step(what: str, group: int, dtype: torch.dtype) -> None:
    x = numbers(what).to(dtype)
    x = x.nan_to_num(posinf=6e4, neginf=-6e4)
    codes = Codes.of(x, group)
    grouped = x.double().unflatten(-1, (-1, group))
    lowest, highest = grouped.amin(-1), grouped.amax(-1)
    step = codes.step.double()
    assert bool((step <= 1.008 * (highest - lowest + lowest.abs() / 125) / 255 + 1e-37).all())
    restored = codes.restored(dtype).double().unflatten(-1, (-1, group))
    rounding = torch.finfo(dtype if dtype.itemsize < 4 else torch.float32).eps * grouped.abs()
    assert bool(((restored - grouped).abs() <= 0.5 * step[..., None] + 2 * rounding).all())


@torch.no_grad()
def test_attention_is_within_what_follows_from_that(tools: Any) -> None:
    """Scores off by δ change weights by factors within e^(±2δ), so a head's output by (e^2δ − 1) of the spread of its
    values, and by what these are off."""
    model, ids, group = tools.build(layers=1), tools.tokens(2, 40), 4
    seen: dict[str, dict[str, Tensor]] = {"dense": {}, "int8": {}}
    attention = model.towers["decoder"].stack.layers[0].steps["self"].branches["self"].body
    mix = attention.mix
    for name, cache in (("dense", DenseCache()), ("int8", Int8Cache(group))):

        def spy(query: Tensor, key: Tensor, value: Tensor, *rest: Any, own: dict[str, Tensor] = seen[name]) -> Tensor:
            own.update(query=query, key=key, value=value, out=mix(query, key, value, *rest))
            return own["out"]

        attention.mix = spy
        model(ids, cache=cache)
    dense, int8 = seen["dense"], seen["int8"]
    step = {x: Codes.of(dense[x], group).step.double().repeat_interleave(group, -1) for x in ("key", "value")}
    for x in ("key", "value"):
        assert bool(((dense[x] - int8[x]).abs() <= 0.5001 * step[x]).all())
        assert float((dense[x] - int8[x]).abs().max()) > 0
    repeated = {x: step[x].repeat_interleave(2, 1) for x in step}  # two query heads a key head
    delta = (dense["query"].abs() @ (0.5 * repeated["key"]).mT).amax() * attention.scale
    spread = dense["value"].amax() - dense["value"].amin()
    bound = ((2 * delta).exp() - 1) * spread + 0.5001 * step["value"].amax()
    assert float((dense["out"] - int8["out"]).abs().max()) <= float(bound)
    assert float(bound) < 0.5 * float(spread), "this bound would not see anything"


@torch.no_grad()
def test_memory(tools: Any) -> None:
    """1 + 4/g bytes a number."""
    model = tools.build().float()
    for batch, length in ((2, 40), (3, 7)):
        dense, int8 = DenseCache(), Int8Cache(4)
        for cache in (dense, int8):
            model(tools.tokens(batch, length), cache=cache)
        count = 2 * 2 * batch * 2 * (length + 64) * 4  # layers, keys and values, B, K, room, E
        assert (dense.nbytes, int8.nbytes) == (4 * count, 2 * count)


@torch.no_grad()
def test_what_a_row_gives_depends_on_itself_alone(tools: Any) -> None:
    model, ids = tools.build().float(), tools.tokens(3, 12)
    whole = model(ids, cache=Int8Cache(4))
    cache, parts = Int8Cache(4), []
    for piece in (slice(0, 5), slice(5, 6), slice(6, 12)):
        parts.append(model(ids[:, piece], cache=cache))
    assert float((torch.cat(parts, 1) - whole).abs().max()) <= 1e-5
    row = model(ids[1:2], tags=Tags.dense(1, 12), cache=Int8Cache(4))
    assert float((row - whole[1:2]).abs().max()) <= 1e-5
    assert 1e-5 < float((whole - model(ids)).abs().max()) < 0.1


def test_groups_divide_a_head(tools: Any) -> None:
    with pytest.raises(ConfigError, match="head_dim=4, group=3"):
        Int8(3).check(tools.build().config)
    with pytest.raises(ConfigError, match="head_dim=4, group=16"):
        tools.build()(tools.tokens(1, 2), cache=Int8Cache())
    with pytest.raises(ConfigError, match="group must be at least 1"):
        Int8(0)
