"""Linformer: the formula, the package of others, padding, and what it can't do."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from transpect.base.errors import ConfigError, ContextLengthError
from transpect.core import (
    AttentionConfig,
    Causal,
    Full,
    ModelConfig,
    NormalInit,
    StackConfig,
    Tags,
    Transformer,
    Window,
)
from transpect.core.kernels import Linformer, Scoring, Sizes
from transpect.core.kernels.linformer import LinformerWay
from transpect.core.positions import Learned, Position, Rope
from transpect.core.view import View
from transpect.interop import load_model, save_model

SHARES = ("none", "heads", "key_value")
LENGTH, CONTEXT, VOCAB = 9, 16, 13
ROPE = Rope()


def way_of(share: str, *, rank: int = 5, kv_heads: int = 2) -> LinformerWay:
    way = Linformer(rank=rank, share=share).build(Sizes(4, kv_heads, 6, CONTEXT)).double()
    with torch.no_grad():
        way.draw(torch.Generator().manual_seed(0))
    return way


def drawn(queries: int, keys: int, kv_heads: int = 2) -> list[Tensor]:
    g = torch.Generator().manual_seed(1)
    shapes = [(2, 4, queries, 6), (2, kv_heads, keys, 6), (2, kv_heads, keys, 6)]
    return [torch.randn(shape, generator=g, dtype=torch.float64, requires_grad=True) for shape in shapes]


def by_definition(way: LinformerWay, x: list[Tensor], position: Tensor, scale: float) -> Tensor:
    """softmax(scale · q (E k)ᵀ) (F v), a row, a head and a key at a time."""
    query, key, value = x
    mixes = (way.mix_keys, way.mix_keys if way.mix_values is None else way.mix_values)
    out = []
    for row in range(query.shape[0]):
        for head in range(query.shape[1]):
            group = head // (query.shape[1] // key.shape[1])
            keys, values = (
                sum(
                    torch.outer(mix[min(group, len(mix) - 1), :, int(place)], of[row, group, column])
                    for column, place in enumerate(position[row])
                    if place >= 0
                )
                for mix, of in zip(mixes, (key, value), strict=True)
            )
            out.append((scale * query[row, head] @ keys.T).softmax(-1) @ values)
    return torch.stack(out).view(query.shape)


def gap(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    return float((a.detach() - b.detach()).abs().max())


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("padded", [None, "later", "left", "holes"])
def test_equals_the_formula_forward_and_backward(share: str, kv_heads: int, padded: str | None) -> None:
    way, x = way_of(share, kv_heads=kv_heads), drawn(LENGTH, LENGTH, kv_heads)
    tags = Tags.dense(2, LENGTH, start=0 if padded is None else 4)
    if padded in ("left", "holes"):
        column = torch.arange(LENGTH).expand(2, -1)
        real = column >= torch.tensor([[4], [1]]) if padded == "left" else column % 3 != torch.tensor([[0], [1]])
        tags = Tags.padded(real)
    real = (tags.position >= 0)[:, None, :, None]
    out = way.attend(*x, View(Full(), tags, tags), Scoring(0.4))
    expected = by_definition(way, x, tags.position, 0.4) * real
    assert gap(out, expected) <= 1e-12
    assert not out[~real.expand_as(out)].any()
    wanted = [*x, *way.parameters()]
    for ours, theirs in zip(
        torch.autograd.grad(out.square().sum(), wanted),
        torch.autograd.grad(expected.square().sum(), wanted),
        strict=True,
    ):
        assert gap(ours, theirs) <= 1e-11


def test_shapes_and_start_of_the_matrices() -> None:
    """One drawing for all: U(±1/√r), whatever the model's own initialisation."""
    shapes = {share: [tuple(matrix.shape) for matrix in way_of(share).parameters()] for share in SHARES}
    own, shared = (2, 5, CONTEXT), (1, 5, CONTEXT)
    assert shapes == {"none": [own, own], "heads": [shared, shared], "key_value": [shared]}
    model = model_of(Linformer(rank=25, share="none"), context=200)
    for name, matrix in model.state_dict().items():
        if "mix_" in name:
            assert float(matrix.abs().max()) <= 1 / math.sqrt(25)
            assert float(matrix.std()) == pytest.approx(1 / math.sqrt(25) / math.sqrt(3), rel=0.05)
    with pytest.raises(ConfigError, match="at least 1"):
        Linformer(rank=0)
    with pytest.raises(ConfigError, match="at most"):
        model_of(Linformer(rank=2**31 - 1, share="none"), context=2**31 - 1)


# in a model


def model_of(kernel: Linformer, positions: Position = ROPE, context: int = CONTEXT) -> Transformer:
    stack = StackConfig(
        n_layers=2,
        attention=AttentionConfig(n_heads=4, n_kv_heads=2, kernel=kernel),
        positions=positions,
        visibility=Full(),
    )
    config = ModelConfig(vocab_size=VOCAB, d_model=24, context_length=context, init=NormalInit(std=0.3), encoder=stack)
    return Transformer(config, seed=3)


def ids(rows: int = 2, length: int = LENGTH) -> Tensor:
    return torch.randint(0, VOCAB, (rows, length), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("positions", [Rope(), Learned()], ids=lambda p: p.kind)
@torch.no_grad()
def test_padding_and_neighbours_change_nothing(share: str, positions: Position) -> None:
    model = model_of(Linformer(rank=5, share=share), positions).eval()
    for row, length in ((0, LENGTH), (1, 6)):
        alone = model(ids()[row : row + 1, :length])[0]
        for left, right in ((0, 3), (3, 0), (2, 11)):  # more columns than the context has positions
            real = torch.nn.functional.pad(torch.ones(1, length, dtype=torch.bool), (left, right))
            filled = torch.nn.functional.pad(ids()[row : row + 1, :length], (left, right), value=VOCAB - 1)
            out = model(filled.expand(2, -1), tags=Tags.padded(torch.cat([real, ~real])))
            assert out.isfinite().all()
            assert gap(out[0, real[0]], alone) <= 1e-5


def test_the_context_ends() -> None:
    model = model_of(Linformer(rank=5))
    model(ids(1, CONTEXT))
    for tags in (None, Tags.of(torch.arange(CONTEXT + 1)[None])):
        with pytest.raises(ContextLengthError, match=r"each of 16 positions \(got '17 tokens'\)"):
            model(ids(1, CONTEXT + 1), tags=tags)
    out = model(ids(2, 3), tags=Tags.of(torch.full((2, 3), -1)))
    assert out.isfinite().all()


@pytest.mark.parametrize("rule", [Causal(), Window(3, both_ways=True)], ids=lambda r: r.kind)
def test_rules_that_hide_are_refused_with_the_reason(rule: Causal | Window) -> None:
    with pytest.raises(ConfigError, match="`linformer` mixes all keys of a row, later ones too"):
        StackConfig(n_layers=1, attention=AttentionConfig(n_heads=2, kernel=Linformer()), visibility=rule)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_finite(dtype: torch.dtype) -> None:
    model = model_of(Linformer(rank=5)).to(dtype)
    out = model(ids(), tags=Tags.padded(torch.arange(LENGTH) >= torch.tensor([[LENGTH], [2]])))
    out.float().square().sum().backward()
    assert out.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@torch.no_grad()
def test_cross_attention_to_mixtures_of_a_source() -> None:
    attention = AttentionConfig(n_heads=4, kernel=Linformer(rank=5))
    own = AttentionConfig(n_heads=4)
    config = ModelConfig(
        vocab_size=VOCAB,
        d_model=24,
        context_length=CONTEXT,
        encoder=StackConfig(n_layers=1, attention=attention, visibility=Full()),
        decoder=StackConfig(n_layers=1, attention=own, cross=attention, steps=(("self",), ("cross",), ("ffn",))),
    )
    model = Transformer(config).eval()
    source = model.encode(ids(1, 5))
    padded = model.encode(
        torch.cat([ids(1, 2), ids(1, 5)], 1), tags=Tags.padded(torch.arange(7)[None] >= 2)
    )  # fmt: skip
    out = model(ids(1, 4), source=source)
    assert gap(out, model(ids(1, 4), source=padded)) <= 1e-5
    assert gap(out, model(ids(1, 4), source=model.encode(ids(1, 6)))) > 1e-4


@pytest.mark.parametrize("share", SHARES)
def test_matrices_are_saved_and_loaded(share: str, tmp_path: Path) -> None:
    model = model_of(Linformer(rank=5, share=share)).eval()
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    assert again.config == model.config
    assert torch.equal(model(ids()), again(ids()))
    assert again.state_dict().keys() == model.state_dict().keys()


# the package of others


@pytest.fixture(scope="module")
def package() -> ModuleType:
    return pytest.importorskip("linformer.linformer", reason="needs the package linformer", exc_type=ImportError)


@pytest.mark.parametrize(("share", "kv_heads"), [("heads", 4), ("key_value", 4), ("heads", 1)])
def test_equals_the_package(package: ModuleType, share: str, kv_heads: int) -> None:
    """Layer against layer. The package shares its matrices among heads; where it shares them among keys and values it
    shares those themselves, so ours are given the same."""
    theirs = package.LinformerSelfAttention(
        24, CONTEXT, k=5, heads=4, dim_head=6, one_kv_head=kv_heads == 1, share_kv=share == "key_value"
    ).double()
    way = way_of(share, kv_heads=kv_heads)
    x = torch.randn(2, LENGTH, 24, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    split = [
        layer(x).view(2, LENGTH, -1, 6).transpose(1, 2)
        for layer in (theirs.to_q, theirs.to_k, theirs.to_k if share == "key_value" else theirs.to_v)
    ]
    with torch.no_grad():
        way.mix_keys.copy_(theirs.proj_k.T)
        if way.mix_values is not None:
            way.mix_values.copy_(theirs.proj_v.T)
    tags = Tags.dense(2, LENGTH)
    heads = way.attend(*split, View(Full(), tags, tags), Scoring(6**-0.5))
    assert gap(theirs.to_out(heads.transpose(1, 2).flatten(2)), theirs(x)) <= 1e-12
