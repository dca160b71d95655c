"""Global tokens and the projections of their own through which they look."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from transpect.cache import DenseCache
from transpect.core import (
    AttentionConfig,
    Causal,
    GlobalTokens,
    ModelConfig,
    Naive,
    NormalInit,
    QkNorm,
    RMSNorm,
    Sdpa,
    StackConfig,
    Tags,
    Transformer,
    Visibility,
    Window,
)
from transpect.core.positions import Alibi, Learned, Position, Rope, T5Buckets, TransformerXL

LENGTH, VOCAB = 13, 11
BOTH_WAYS = Window(3, both_ways=True) | GlobalTokens()
CAUSAL = Causal() & (Window(3) | GlobalTokens())
RULES = {"encoder": BOTH_WAYS, "decoder": CAUSAL}
POSITIONS = {
    "learned": Learned(offset=2),
    "rope": Rope(),
    "alibi": Alibi(),
    "t5": T5Buckets(buckets=8, max_distance=6),
    "transformer-xl": TransformerXL(),
}
GRID = list(itertools.product(RULES, POSITIONS, (True, False)))


def stack(rule: Visibility, positions: Position, *, global_projections: bool = True, **options: object) -> StackConfig:
    attention = AttentionConfig(
        n_heads=6,
        n_kv_heads=2,
        head_dim=8,
        qk_norm=QkNorm(RMSNorm()),
        global_projections=global_projections,
    )
    return StackConfig(n_layers=2, attention=attention, visibility=rule, positions=positions, **options)


def net(
    tower: str, config: StackConfig, kernel: Naive | Sdpa | None = None, dtype: torch.dtype = torch.float32
) -> Transformer:
    model = ModelConfig(vocab_size=VOCAB, d_model=18, context_length=64, init=NormalInit(std=0.3), **{tower: config})
    return Transformer(model.with_kernel(kernel or Sdpa()), seed=1).eval().to(dtype)


def ids() -> Tensor:
    return torch.randint(0, VOCAB, (2, LENGTH), generator=torch.Generator().manual_seed(0))


def marks() -> Tensor:
    return torch.stack([torch.arange(LENGTH) % 5 == 1, torch.arange(LENGTH) == 7])


def gap(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


@pytest.mark.parametrize(("tower", "positions", "own"), GRID)
@torch.no_grad()
def test_padded_batched_and_computed_by_any_kernel(tower: str, positions: str, own: bool) -> None:
    config = stack(RULES[tower], POSITIONS[positions], global_projections=own)
    model = net(tower, config)
    tags = Tags.of(torch.arange(LENGTH).expand(2, -1), is_global=marks())
    full = model(ids(), tags=tags)
    assert gap(full, model(ids())) > 1e-3, "marks that change nothing"
    exact = net(tower, config, Naive(), torch.float64)(ids(), tags=tags)
    assert gap(exact, full.double()) <= 1e-5
    for row, length in ((0, LENGTH), (1, 9)):
        alone = Tags.of(torch.arange(length)[None], is_global=marks()[row : row + 1, :length])
        expected = model(ids()[row : row + 1, :length], tags=alone)
        for left, right in ((0, 20 - length), (20 - length, 0), (3, 17 - length)):
            pad = (left, right)
            padded = torch.nn.functional.pad(ids()[row : row + 1, :length], pad)
            real = torch.nn.functional.pad(torch.ones(1, length, dtype=torch.bool), pad)
            marked = torch.nn.functional.pad(alone.is_global, pad, value=True)  # a mark on padding says nothing
            out = model(padded, tags=Tags.padded(real, is_global=marked))
            assert out.isfinite().all()
            assert gap(out[real], expected[0]) <= 1e-5


@pytest.mark.parametrize(("positions", "own"), list(itertools.product(POSITIONS, (True, False))))
@pytest.mark.parametrize("chunks", [(1, 5, 7), (12, 1), (1,) * 13])
@torch.no_grad()
def test_cached_equals_full(positions: str, own: bool, chunks: tuple[int, ...]) -> None:
    model = net("decoder", stack(CAUSAL, POSITIONS[positions], global_projections=own))
    tags = Tags.of(torch.arange(LENGTH).expand(2, -1), is_global=marks())
    cache, done, outs = DenseCache(), 0, []
    for size in chunks:
        part = slice(done, done + size)
        outs.append(model(ids()[:, part], tags=tags.columns(part), cache=cache))
        done += size
    assert gap(torch.cat(outs, 1), model(ids(), tags=tags)) <= 1e-5


@torch.no_grad()
def test_global_tokens_look_through_their_own_projections() -> None:
    """All tokens global: the usual projections are not read; none global: those of global tokens are not."""
    config = stack(BOTH_WAYS, Rope())
    plain = net("encoder", stack(BOTH_WAYS, Rope(), global_projections=False))
    model = net("encoder", config)
    state = plain.state_dict()
    names = ("query", "key", "value")
    own = {name.replace(f"body.{n}.", f"body.{n}_global."): value for name, value in state.items() for n in names}
    for every in (True, False):
        tags = Tags.of(torch.arange(LENGTH).expand(2, -1), is_global=torch.full((2, LENGTH), every))
        model.load_state_dict({**model.state_dict(), **(own if every else state)}, strict=False)
        assert gap(model(ids(), tags=tags), plain(ids(), tags=tags)) <= 1e-6


@torch.no_grad()
def test_the_first_token_can_be_global_in_any_case() -> None:
    first = torch.arange(LENGTH).expand(2, -1) == 0
    config = stack(BOTH_WAYS, Learned())
    asked, always = net("encoder", config), net("encoder", replace(config, first_is_global=True))
    position = torch.arange(LENGTH).expand(2, -1)
    expected = asked(ids(), tags=Tags.of(position, is_global=first))
    assert gap(always(ids()), expected) <= 1e-6
    assert gap(asked(ids()), expected) > 1e-3
    both = always(ids(), tags=Tags.of(position, is_global=marks()))
    assert gap(both, asked(ids(), tags=Tags.of(position, is_global=marks() | first))) <= 1e-6
    real = torch.nn.functional.pad(torch.ones(2, LENGTH, dtype=torch.bool), (4, 1))
    padded = always(torch.nn.functional.pad(ids(), (4, 1)), tags=Tags.padded(real))
    assert gap(padded[:, 4:-1], expected) <= 1e-5


def test_gradients_reach_every_projection() -> None:
    model = net("encoder", stack(BOTH_WAYS, Learned()))
    tags = Tags.of(torch.arange(LENGTH).expand(2, -1), is_global=marks())
    model(ids(), tags=tags).square().sum().backward()
    silent = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert silent == []
