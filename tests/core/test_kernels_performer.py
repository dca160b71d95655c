"""Performer: features that estimate the softmax's, their draws, and the package of others."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from transpect.base.errors import ConfigError
from transpect.core import AttentionConfig, Causal, Full, ModelConfig, StackConfig, Tags, Transformer, Visibility
from transpect.core.kernels import Naive, Performer, Scoring, Sizes
from transpect.core.kernels.performer import PerformerWay, estimate, log_features, mean_error, orthogonal_features
from transpect.core.positions import Rope
from transpect.core.view import View
from transpect.interop import load_model, save_model

WIDTH = 8


def drawn(rows: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """[1, 2, rows, E]."""
    return torch.randn(1, 2, rows, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def way_of(features: int, *, seed: int = 0, dtype: torch.dtype = torch.float64, width: int = WIDTH) -> PerformerWay:
    way = Performer(features=features, seed=seed).build(Sizes(2, 2, width, 8)).to(dtype)
    way.draw(0, 0)
    return way


def view_of(rule: Visibility, rows: int) -> View:
    tags = Tags.dense(1, rows)
    return View(rule, tags, tags)


def gap(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    return float((a.detach().double() - b.detach().double()).abs().max())


@pytest.mark.parametrize("features", [1, 8, 30])
@pytest.mark.parametrize("rule", [Full(), Causal()], ids=lambda r: r.kind)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)], ids=str)
def test_equals_the_formula(features: int, rule: Visibility, dtype: torch.dtype, tolerance: float) -> None:
    """φ(q)·φ(k) written out: every feature an exponential, every weight a number."""
    way, scale = way_of(features), 0.6
    x = [drawn(50, seed) for seed in range(3)]
    query, key = (
        torch.stack([torch.exp(x[i] * scale**0.5 @ w - scale * x[i].square().sum(-1) / 2) for w in way.omega], -1)
        for i in (0, 1)
    )
    weights = (query / math.sqrt(features)) @ (key / math.sqrt(features)).transpose(-1, -2)
    assert gap(weights, estimate(x[0], x[1], way.omega, scale)) <= 1e-12 * float(weights.max())
    weights = weights * view_of(rule, 50).mask
    expected = weights / weights.sum(-1, keepdim=True) @ x[2]
    out = way.to(dtype).attend(*(y.to(dtype) for y in x), view_of(rule, 50), Scoring(scale))
    assert gap(out, expected) <= tolerance


def test_the_estimate_has_no_bias() -> None:
    """Over many draws the mean is exp(scale·q·k), within four standard errors; each draw by itself is far from it.
    The norms are small, for the estimate's variance grows as exp|q + k|²."""
    query, key, scale = drawn(5, 0)[0, 0] / 2, drawn(6, 1)[0, 0] / 2, 0.7
    exact = (scale * query @ key.T).exp()
    draws = [
        estimate(query, key, orthogonal_features(12, WIDTH, torch.Generator().manual_seed(seed)), scale)
        for seed in range(4000)
    ]
    found = torch.stack(draws)
    error = (found.mean(0) - exact) / (found.std(0) / math.sqrt(len(draws)))
    assert float(error.abs().max()) < 4
    assert float((found.std(0) / exact).min()) > 0.05


def test_directions_are_orthogonal_and_normal() -> None:
    """Orthogonal within a block; the first component of the first row is symmetric, which a bare QR's is not."""
    omega = torch.stack([orthogonal_features(20, WIDTH, torch.Generator().manual_seed(seed)) for seed in range(2000)])
    for block in omega.split(WIDTH, 1):
        products = block @ block.transpose(-1, -2)
        assert float((products - torch.diag_embed(products.diagonal(dim1=-2, dim2=-1))).abs().max()) <= 1e-10
    flat = omega.permute(1, 2, 0)  # [m, E, draws]
    assert float(flat.mean(-1).abs().max()) < 5 / math.sqrt(2000)
    assert float((flat.square().mean(-1) - 1).abs().max()) < 5 * math.sqrt(2 / 2000)
    assert float((omega.square().sum(-1).mean(0) - WIDTH).abs().max()) < 5 * math.sqrt(2 * WIDTH / 2000)


@pytest.mark.parametrize("rule", [Full(), Causal()], ids=lambda r: r.kind)
def test_the_error_falls_as_features_grow(rule: Visibility) -> None:
    x = [drawn(40, seed) / 2 for seed in range(3)]
    errors = [mean_error(*x, rule, features=m, seeds=range(8)) for m in (8, 64, 512, 4096)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0] / 8, "an error that falls as 1/√m"
    assert errors[-1] < 0.05


def test_a_token_times_a_hundred_changes_no_earlier_one() -> None:
    """Keys of such norms have features that are 0 in float32, and queries ones that are infinite."""
    way = way_of(40, dtype=torch.float32)
    x = [drawn(90, seed, torch.float32) for seed in range(3)]
    before = way.attend(*x, view_of(Causal(), 90), Scoring(0.35))
    for at in (1, 40, 64, 89):
        later = torch.arange(90)[:, None] >= at
        out = way.attend(*(torch.where(later, y * 100, y) for y in x), view_of(Causal(), 90), Scoring(0.35))
        assert out.isfinite().all()
        assert gap(out[:, :, :at], before[:, :, :at]) <= 1e-6
        assert gap(out[:, :, at:], before[:, :, at:]) > 1e-2
    huge = [y * 1000 for y in x]
    for rule in (Full(), Causal()):
        out = way.attend(*huge, view_of(rule, 90), Scoring(0.35))
        assert out.isfinite().all()
        if rule == Causal():
            assert gap(out[:, :, 0], huge[2][:, :, 0]) <= 1e-3, "who sees itself alone gets its own value"


def test_default_number_of_features() -> None:
    for width in (1, 2, 8, 64):
        way = Performer().build(Sizes(2, 2, width, 8))
        assert tuple(way.omega.shape) == (max(1, math.ceil(width * math.log(width))), width)
    for options in ({"features": 0}, {"redraw": 0}):
        with pytest.raises(ConfigError, match="at least 1"):
            Performer(**options)


# draws in a model


def model_of(redraw: int | None = None, seed: int = 0, **options: int | None) -> Transformer:
    attention = AttentionConfig(n_heads=2, kernel=Performer(features=12, redraw=redraw, seed=seed))
    stack = StackConfig(n_layers=3, attention=attention, positions=Rope())
    return Transformer(ModelConfig(vocab_size=11, d_model=16, context_length=32, decoder=stack), **options)


def omegas(model: Transformer) -> list[Tensor]:
    return [buffer.clone() for name, buffer in model.named_buffers() if name.endswith("omega")]


def same(one: list[Tensor], other: list[Tensor]) -> list[bool]:
    return [torch.equal(a, b) for a, b in zip(one, other, strict=True)]


def test_draws_depend_on_seed_layer_and_period_alone() -> None:
    first = omegas(model_of(redraw=4))
    assert not torch.equal(first[0], first[1])
    torch.manual_seed(77)
    assert same(first, omegas(model_of(redraw=4, seed=0))) == [True] * 3
    assert same(first, omegas(model_of(redraw=4, seed=1))) == [False] * 3
    model = model_of(redraw=4)
    model.redraw(0)
    assert same(first, omegas(model)) == [True] * 3
    for step in (1, 2, 3):
        model.redraw(step)
        assert same(first, omegas(model)) == [True] * 3
    model.redraw(4)
    second = omegas(model)
    assert same(first, second) == [False] * 3
    jumped = model_of(redraw=4)
    state = torch.get_rng_state()
    jumped.redraw(4)
    assert torch.equal(state, torch.get_rng_state())
    assert same(second, omegas(jumped)) == [True] * 3
    way = way_of(12)
    periods = [Performer(features=12, redraw=4).build(Sizes(2, 2, WIDTH, 8)) for _ in range(2)]
    for other, step in zip(periods, (4, 7), strict=True):
        other.draw(0, step)
    assert torch.equal(periods[0].omega, periods[1].omega)
    assert not torch.equal(periods[0].omega.double(), way.omega)
    fixed = model_of()
    for step in range(9):
        fixed.redraw(step)
    assert same(omegas(fixed), omegas(model_of())) == [True] * 3


def test_features_are_saved_and_loaded(tmp_path: Path) -> None:
    model = model_of(redraw=5).eval()
    model.redraw(10)
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    assert again.config == model.config
    assert same(omegas(again), omegas(model)) == [True] * 3
    ids = torch.arange(9)[None]
    assert torch.equal(model(ids), again(ids))
    with pytest.raises(ConfigError, match="another one"):
        load_model(tmp_path, kernel="linear")


# the package of others


@pytest.fixture(scope="module")
def package() -> ModuleType:
    return pytest.importorskip(
        "performer_pytorch.performer_pytorch", reason="needs the package performer-pytorch", exc_type=ImportError
    )


@pytest.mark.parametrize("rule", [Full(), Causal()], ids=lambda r: r.kind)
def test_equals_performer_pytorch(package: ModuleType, rule: Visibility) -> None:
    """Without the ε that it adds to each feature, which biases its estimate; in float64, since it leaves the causal
    sums without one."""
    way = way_of(20)
    query, key, value = (drawn(70, seed) for seed in range(3))
    ours = way.attend(query, key, value, view_of(rule, 70), Scoring(WIDTH**-0.5))
    phi_q, phi_k = (
        package.softmax_kernel(x, projection_matrix=way.omega, is_query=is_query, eps=0.0)
        for x, is_query in ((query, True), (key, False))
    )
    if rule == Full():
        theirs = package.linear_attention(phi_q, phi_k, value)
    else:
        theirs = package.causal_linear_attention_noncuda(phi_q, phi_k, value, chunk_size=7, eps=0.0)
    assert gap(ours, theirs) <= 1e-10


def test_features_are_those_of_performer_pytorch(package: ModuleType) -> None:
    """Up to the factors that cancel."""
    way, x = way_of(20), drawn(30, 0)
    theirs = package.softmax_kernel(x, projection_matrix=way.omega, is_query=True, eps=0.0)
    ours = log_features(x * WIDTH**-0.25, way.omega)
    ratio = ours - theirs.log()
    assert float((ratio - ratio.mean(-1, keepdim=True)).abs().max()) <= 1e-10


def test_naive_is_its_limit() -> None:
    """With many features, a layer's attention is the softmax's."""
    x = [drawn(30, seed) * 0.5 for seed in range(3)]
    exact = Naive().attend(*x, view_of(Causal(), 30), Scoring(0.35))
    assert gap(way_of(20_000).attend(*x, view_of(Causal(), 30), Scoring(0.35)), exact) <= 0.03
