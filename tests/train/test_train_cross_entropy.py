"""Cross-entropy by chunks is torch's of all logits: its value and every gradient, whatever the chunks.

Axes: N tokens, W width, V vocabulary.
"""

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from transpect.core import CausalLM, MaskedLM, ModelConfig, TokenClass, Transformer, override, preset
from transpect.data.batch import IGNORE
from transpect.train.cross_entropy import Readout, features_of, in_one_pass, label_loss, summed_cross_entropy

N, W, V = 11, 5, 17
CHUNKS = (1, 3, 4, 11, 1000)
SMALL = [("vocab_size", V), ("d_model", 8), ("n_layers", 1), ("n_heads", 2), ("context_length", 16)]


def drawn(seed: int, dtype: torch.dtype, *, bias: bool, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor | None]:
    g = torch.Generator().manual_seed(seed)
    features, weight, offset = (
        torch.randn(shape, generator=g, dtype=torch.float64) for shape in ((N, W), (V, W), (V,))
    )
    leaves = [(tensor * scale).to(dtype).requires_grad_() for tensor in (features, weight, offset)]
    return leaves[0], leaves[1], leaves[2] if bias else None


def plain(features: Tensor, labels: Tensor, readout: Readout, smoothing: float) -> Tensor:
    """As a textbook writes it."""
    logits = functional.linear(features, readout.weight, readout.bias)
    if readout.cap is not None:
        logits = readout.cap * torch.tanh(logits / readout.cap)
    return functional.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)


def gradients(loss: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad(loss * 0.7, leaves))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("bias", "cap"), list(itertools.product([False, True], [None, 2.0])))
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_value_and_gradients_are_those_of_all_logits(
    dtype: torch.dtype, bias: bool, cap: float | None, smoothing: float
) -> None:
    tolerance = {torch.float64: 1e-13, torch.float32: 2e-6}[dtype]
    features, weight, offset = drawn(0, dtype, bias=bias, scale=3.0)
    labels = torch.randint(V, (N,), generator=torch.Generator().manual_seed(1))
    readout, leaves = Readout(weight, offset, cap), [leaf for leaf in (features, weight, offset) if leaf is not None]
    expected = plain(features, labels, readout, smoothing)
    slopes = gradients(expected, leaves)
    for at_once in CHUNKS:
        found = summed_cross_entropy(features, labels, readout, smoothing=smoothing, at_once=at_once)
        assert found.dtype == dtype
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=0.0)
        for a, b in zip(gradients(found, leaves), slopes, strict=True):
            assert float((a - b).norm()) <= tolerance * float(b.norm())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 63, 1000])
@pytest.mark.parametrize("factor", [0.0, 1.0, 1e3])
def test_float32_in_one_pass_is_float64(size: int, smoothing: float, factor: float) -> None:
    """Whatever the vocabulary, and however sure the model is; and so are single rows."""
    g = torch.Generator().manual_seed(size)
    logits, labels = factor * torch.randn(12, size, generator=g), torch.randint(size, (12,), generator=g)
    wide = logits.double().requires_grad_()
    expected = functional.cross_entropy(wide, labels, reduction="sum", label_smoothing=smoothing)
    (wanted,) = torch.autograd.grad(expected, wide)
    slope, alone = torch.empty_like(logits), torch.empty_like(logits)
    found, right = float(label_loss(logits, labels, smoothing, slope=slope)), float(expected.detach())
    rows = [slice(n, n + 1) for n in range(12)]
    single = sum(float(label_loss(logits[own], labels[own], smoothing, slope=alone[own])) for own in rows)
    for loss in (found, single):
        assert abs(loss - right) <= 3e-6 * abs(right) + 2e-6 * max(1.0, factor)
    assert float((slope - wanted).abs().max()) <= 1e-6
    assert torch.equal(slope, alone)


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_a_logit_that_is_no_number_shows(broken: float) -> None:
    logits = torch.zeros(3, 9)
    logits[1, 4] = broken
    slope = torch.empty_like(logits)
    assert label_loss(logits, torch.zeros(3, dtype=torch.int64), slope=slope).isnan()
    assert slope.isnan().any(-1).tolist() == [False, True, False]


@pytest.mark.parametrize("frozen", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
def test_only_what_needs_a_gradient_gets_one(frozen: tuple[int, ...]) -> None:
    leaves = [leaf for leaf in drawn(2, torch.float64, bias=True) if leaf is not None]
    labels = torch.arange(N)
    expected = gradients(plain(leaves[0], labels, Readout(leaves[1], leaves[2]), 0.1), leaves)
    for at in frozen:
        leaves[at].requires_grad_(False)
    loss = summed_cross_entropy(leaves[0], labels, Readout(leaves[1], leaves[2]), smoothing=0.1, at_once=4)
    loss.backward()
    for at, (leaf, wanted) in enumerate(zip(leaves, expected, strict=True)):
        assert leaf.grad is None if at in frozen else torch.allclose(leaf.grad * 0.7, wanted, rtol=1e-12)


def test_a_label_that_is_next_to_impossible_has_a_finite_loss() -> None:
    features, weight, _ = drawn(3, torch.float32, bias=False, scale=30.0)
    labels = functional.linear(features, weight).argmin(-1)
    found = summed_cross_entropy(features, labels, Readout(weight), at_once=4)
    assert found.item() > 1000.0 * N
    torch.testing.assert_close(found, plain(features, labels, Readout(weight), 0.0), rtol=1e-6, atol=0.0)


def test_autocast_lowers_the_products_and_nothing_else() -> None:
    """The gradients are those of autocast's own operations, which round at the same places."""
    features, weight, offset = drawn(4, torch.float32, bias=True)
    labels = torch.arange(N)
    leaves = [leaf for leaf in (features, weight, offset) if leaf is not None]
    exact = gradients(plain(features, labels, Readout(weight, offset), 0.1), leaves)
    with torch.autocast("cpu", torch.bfloat16):
        expected = plain(features, labels, Readout(weight, offset), 0.1)
        found = summed_cross_entropy(features, labels, Readout(weight, offset), smoothing=0.1, at_once=4)
    assert found.dtype == torch.float32
    for a, b, c in zip(gradients(found, leaves), gradients(expected, leaves), exact, strict=True):
        assert a.dtype == torch.float32
        assert not torch.equal(a, c)
        assert float((a - c).norm()) <= 1.5 * float((b - c).norm()) <= 0.02 * float(c.norm())


HEADS = [
    *(
        CausalLM(tied=tied, bias=bias, soft_cap=cap)
        for tied in (True, False)
        for bias in (True, False)
        for cap in (None, 3.0)
    ),
    CausalLM(rescaled=True),
    *(MaskedLM(tied=tied, bias=bias) for tied in (True, False) for bias in (True, False)),
    TokenClass(V, dropout=0.0),
]


def model_of(head: CausalLM | MaskedLM | TokenClass) -> ModelConfig:
    return replace(
        override(preset("gpt2"), [*SMALL, ("dropout", 0.0), ("attention.dropout", 0.0), ("embedding.dropout", 0.0)]),
        head=head,
    )


@pytest.mark.parametrize("head", HEADS, ids=str)
def test_every_head_is_features_and_a_readout(head: CausalLM | MaskedLM | TokenClass) -> None:
    model = Transformer(model_of(head)).double()
    ids = torch.randint(V, (2, 7), generator=torch.Generator().manual_seed(5))
    labels = torch.randint(V, (2, 7), generator=torch.Generator().manual_seed(6)).masked_fill(ids < 3, IGNORE)
    model.zero_grad()
    logits = model(ids)[labels != IGNORE]
    functional.cross_entropy(logits, labels[labels != IGNORE], reduction="sum").backward()
    expected = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    hidden = model.hidden(ids)[labels != IGNORE]
    summed_cross_entropy(features_of(model, hidden), labels[labels != IGNORE], Readout.of(model), at_once=3).backward()
    found = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    assert found.keys() == expected.keys()
    for name, grad in found.items():
        torch.testing.assert_close(grad, expected[name], rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("n", "v"), [(1, 2), (3, 7), (5, 64), (9, 1001)])
@pytest.mark.parametrize("spread", [1.0, 60.0, 3e4])
def test_a_gradient_that_takes_the_place_of_logits_is_the_same(n: int, v: int, spread: float, smoothing: float) -> None:
    """Also where a label's p is 0 in float32."""
    draw = torch.Generator().manual_seed(v)
    logits, labels = spread * torch.randn(n, v, generator=draw), torch.randint(v, (n,), generator=draw)
    wide = logits.double().requires_grad_()
    exact = torch.nn.functional.cross_entropy(wide, labels, reduction="sum", label_smoothing=smoothing)
    (expected,) = torch.autograd.grad(exact, wide)
    apart, own = torch.empty_like(logits), logits.clone()
    losses = [label_loss(logits, labels, smoothing, slope=apart)]
    if in_one_pass(own):
        losses.append(label_loss(own, labels, smoothing, slope=own))
        assert torch.equal(apart, own)
    for loss in losses:
        assert float(loss) == pytest.approx(float(exact), rel=1e-5, abs=1e-5)
    assert float((apart - expected).abs().max()) <= 1e-6
