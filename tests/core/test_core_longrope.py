"""LongRoPE: which factors a row gets, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch

from transpect.base.errors import ConfigError
from transpect.cache import DenseCache
from transpect.core import AttentionConfig, ModelConfig, StackConfig, Tags, Transformer
from transpect.core.positions import LongRope, Rope
from transpect.core.positions.rope import inverse_frequencies

SCALING = LongRope(short=(1.0, 1.25, 2.0, 3.0), long=(1.0, 4.0, 8.0, 16.0), original_length=6, factor=4.0)


def model(scaling: LongRope, fraction: float = 1.0) -> Transformer:
    rope = Rope(theta=100.0, fraction=fraction, scaling=scaling)
    stack = StackConfig(n_layers=2, attention=AttentionConfig(n_heads=3, head_dim=8), positions=rope)
    return Transformer(ModelConfig(vocab_size=31, d_model=18, context_length=64, decoder=stack)).eval()


def test_each_row_gets_the_factors_of_its_own_final_length() -> None:
    got = SCALING.frequencies(1e4, 8, torch.tensor([1, 6, 7, 60]))
    plain = inverse_frequencies(1e4, 8)
    short, long = (plain / torch.tensor(numbers, dtype=torch.float64) for numbers in (SCALING.short, SCALING.long))
    assert torch.equal(got, torch.stack([short, short, long, long]))


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        (SCALING, math.sqrt(1 + math.log(4) / math.log(6))),
        (LongRope((1.0,), (1.0,), original_length=6), 1.0),
        (LongRope((1.0,), (1.0,), original_length=6, factor=9.0, attention_factor=1.5), 1.5),
    ],
)
def test_attention_factor(scaling: LongRope, expected: float) -> None:
    assert scaling.attention == pytest.approx(expected, rel=1e-12)


@torch.no_grad()
def test_a_cache_whose_length_was_not_stated_is_refused_only_where_it_matters() -> None:
    net, ids = model(SCALING), torch.arange(12)[None]
    cache = DenseCache()
    net(ids[:, :4], cache=cache)
    net(ids[:, 4:6], cache=cache)  # still short
    with pytest.raises(ConfigError, match="final length"):
        net(ids[:, 6:], cache=cache)
    cache = DenseCache()
    stated = Tags.of(torch.arange(3)[None], horizon=torch.tensor([12]))
    together = torch.cat([net(ids[:, :3], tags=stated, cache=cache), net(ids[:, 3:], cache=cache)], 1)
    assert (together - net(ids)).abs().max() <= 1e-5


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_a_factor_for_each_pair_of_what_is_rotated(fraction: float) -> None:
    pairs = int(8 * fraction) // 2
    for count in range(1, 6):
        scaling = LongRope((1.0,) * count, (2.0,) * count, original_length=6)
        if count == pairs:
            model(scaling, fraction)
        else:
            with pytest.raises(ConfigError, match=f"{count} for {2 * pairs} dimensions"):
                model(scaling, fraction)


@pytest.mark.parametrize(
    "wrong",
    [
        {"short": (1.0, 0.0)},
        {"long": (1.0, float("nan"))},
        {"short": ()},
        {"long": (1.0,)},
        {"original_length": 1},
        {"factor": 0.0},
        {"attention_factor": -1.0},
    ],
)
def test_nonsense_is_refused(wrong: dict[str, object]) -> None:
    good: dict[str, object] = {"short": (1.0, 1.0), "long": (1.0, 2.0), "original_length": 6}
    LongRope(**good)
    with pytest.raises(ConfigError):
        LongRope(**{**good, **wrong})
