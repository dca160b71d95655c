"""A model that computes activations again has the outputs and gradients of one that keeps them, and keeps less."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from transpect.core import Glu, Mlp, ModelConfig, Moe, Tags, Transformer, override, preset
from transpect.core.feedforward import ACTIVATIONS
from transpect.core.norms import BranchEnd, Enter, Post, Pre, Sandwich
from transpect.runtime.borrowed import _entry, can_borrow
from transpect.train import recompute
from transpect.train.pointwise import ByAutograd, InOnePass, Pointwise, TanhGelu, gated, pointwise
from transpect.train.recompute import recompute_activations

V, B, T, D = 13, 3, 7, 16
SMALL = [("vocab_size", V), ("d_model", D), ("n_layers", 2), ("n_heads", 2), ("context_length", 16)]
STILL = [("dropout", 0.0), ("attention.dropout", 0.0), ("embedding.dropout", 0.0)]
FEEDFORWARDS = [
    *(Mlp(20, act=act) for act in ACTIVATIONS),
    Mlp(20, bias=False),
    Mlp(20, dropout=0.3),
    *(Glu(20, act=act) for act in ("silu", "gelu_tanh")),
    Glu(20, bias=True),
    Moe(3, ffn=Glu(20)),
]


def config_of(name: str = "gpt2", **changes: Any) -> ModelConfig:
    return override(preset(name), [*SMALL, *STILL]).map_stacks(**changes)


def passed(model: Transformer, *, autocast: bool = False) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits, and the gradient of a loss by every weight."""
    ids = torch.randint(V, (B, T), generator=torch.Generator().manual_seed(1))
    options: dict[str, Any] = {"tags": Tags.padded(torch.arange(T) < torch.tensor([T, 3, 5])[:, None])}
    torch.manual_seed(2)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        if model.config.kind == "encoder-decoder":
            options["source"] = model.encode(ids.flip(1))
        logits = model(ids, **options)
    model.zero_grad()
    functional.cross_entropy(
        logits.flatten(0, 1).float() if autocast else logits.flatten(0, 1), ids.flatten()
    ).backward()
    return logits.detach(), {n: w.grad for n, w in model.named_parameters() if w.grad is not None}


def assert_same(config: ModelConfig, tolerance: float = 1e-12, *, autocast: bool = False) -> None:
    kept, again = Transformer(config), recompute_activations(Transformer(config))
    if not autocast:
        kept, again = kept.double(), again.double()
    assert [name for name, _ in kept.named_parameters()] == [name for name, _ in again.named_parameters()]
    (logits, wanted), (found, slopes) = (passed(model, autocast=autocast) for model in (kept, again))
    assert float((found - logits).norm()) <= tolerance * float(logits.norm())
    assert slopes.keys() == wanted.keys()
    for name, slope in slopes.items():
        assert float((slope - wanted[name]).norm()) <= tolerance * float(wanted[name].norm()) + tolerance, name


@pytest.mark.parametrize("at_once", [20, 100, 2**20])
@pytest.mark.parametrize("ffn", FEEDFORWARDS, ids=str)
def test_every_feed_forward(ffn: Any, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recompute, "AT_ONCE", at_once)
    assert_same(config_of(ffn=ffn))


@pytest.mark.parametrize("placement", [Pre(), Post(), Sandwich(), BranchEnd(), Enter()], ids=lambda p: p.kind)
@pytest.mark.parametrize("name", ["gpt2", "llama", "transformer-base", "bert-base"])
def test_every_placement_of_norms(name: str, placement: Any) -> None:
    assert_same(config_of(name, placement=placement))


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_autocast_rounds_no_more_than_it_does(name: str) -> None:
    assert_same(config_of(name), 0.01, autocast=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_gelu_of_a_gate_is_torchs(dtype: torch.dtype) -> None:
    tolerance = {torch.float64: 1e-14, torch.float32: 1e-5, torch.bfloat16: 0.02}[dtype]
    u = torch.cat([torch.linspace(-30, 30, 1001), torch.linspace(-4, 4, 1001)]).to(dtype)
    by = torch.randn(u.shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    ways: list[Pointwise] = [TanhGelu(), ByAutograd(ACTIVATIONS["gelu_tanh"])]
    outs = [torch.empty_like(u) for _ in ways]
    pulled = [way.pull([u], by, [out]) for way, out in zip(ways, outs, strict=True)]
    assert torch.equal(pulled[0], ways[0].value([u]))
    for found, expected in (pulled, outs):
        assert found.dtype == dtype
        assert torch.allclose(found.double(), expected.double(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("act", ["gelu_tanh", "silu"])
def test_loops_in_one_pass_are_torchs_operations(act: str, threads: int) -> None:
    """Of one number and of two, at any length, in vectors and what is left of them, by any number of threads."""
    way, inputs = (pointwise, 1) if act == "gelu_tanh" else (gated, 2)
    ours, function = way(ACTIVATIONS[act]), ACTIVATIONS[act]
    assert isinstance(ours, InOnePass)
    torchs = ByAutograd(function if inputs == 1 else lambda u, w: function(u) * w)
    draw = torch.Generator().manual_seed(0)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for length in (1, 7, 8, 63, 1001):
            given = [torch.linspace(-90, 90, length), *torch.randn(inputs - 1, length, generator=draw).unbind()]
            by = torch.randn(length, generator=draw)
            slopes, expected = ([torch.empty(length) for _ in given] for _ in range(2))
            value = torchs.pull(given, by.clone(), expected)
            assert torch.allclose(ours.value(given), value, rtol=1e-5, atol=1e-6)
            assert torch.allclose(ours.pull(given, by.clone(), slopes), value, rtol=1e-5, atol=1e-6)
            for found, right in zip(slopes, expected, strict=True):
                assert torch.allclose(found, right, rtol=1e-5, atol=1e-5)
    finally:
        torch.set_num_threads(before)


def test_a_number_that_is_none_stays_none() -> None:
    for way, inputs in ((pointwise(ACTIVATIONS["gelu_tanh"]), 1), (gated(ACTIVATIONS["silu"]), 2)):
        given = [torch.tensor([1.0, torch.nan, 2.0]) for _ in range(inputs)]
        out = [torch.empty(3) for _ in given]
        for value in (way.value(given), way.pull(given, torch.ones(3), out), *out):
            assert value.isnan().tolist() == [False, True, False]


def test_a_layer_of_gpt_keeps_ten_vectors_instead_of_sixteen() -> None:
    """The input of each norm, queries, keys, values, what attention gives, and what the activation is of."""
    deep, flat = (config_of(ffn=Mlp(4 * D), n_layers=n) for n in (3, 1))
    for prepare, vectors in ((lambda model: model, 16), (recompute_activations, 10)):
        change: Callable[[Transformer], Transformer] = prepare
        kept = [graph_of(change(Transformer(config))) for config in (deep, flat)]
        assert (kept[0] - kept[1]) / 2 / (B * T * D) == pytest.approx(vectors, abs=0.5)


def graph_of(model: Transformer) -> int:
    """Bytes that tensors alive after a forward pass take more than before, in float32 numbers."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        hidden = model.hidden(torch.zeros(B, T, dtype=torch.int64))
    kept = sum(event.self_cpu_memory_usage for event in record.key_averages())
    del hidden
    return kept // 4


@pytest.mark.skipif(not can_borrow(), reason="torch has no threads of GNU's OpenMP here")
def test_threads_of_other_packages_are_left_alone() -> None:
    """sentencepiece brings the same library under another name, and so may any package."""
    import sentencepiece  # noqa: F401

    _entry.cache_clear()
    assert can_borrow()
