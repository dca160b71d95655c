"""Rules of visibility: drawn, composed, aligned, refused; and what a query that sees nothing leaves behind."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Literal

import pytest
import torch

from transpect.base.codec import from_data, to_data
from transpect.base.errors import ConfigError, MaskError
from transpect.cache import DenseCache
from transpect.core import (
    AttentionConfig,
    Causal,
    Context,
    Full,
    GlobalTokens,
    ModelConfig,
    Naive,
    NormalInit,
    PrefixLM,
    SameSegment,
    Sdpa,
    StackConfig,
    Tags,
    Transformer,
    Visibility,
    Window,
    preset,
)
from transpect.core.bias import Bias
from transpect.core.kernels import BlockSparse, Exact, Flash, Scoring
from transpect.core.tags import Columns
from transpect.core.view import View

RULES = [
    Full(),
    Causal(),
    Window(1),
    Window(3),
    Window(2, both_ways=True),
    Window(2, dilation=3),
    Window(2, both_ways=True, dilation=2),
    PrefixLM(),
    SameSegment(),
    Causal() & SameSegment(),
    Causal() & Window(2) & SameSegment(),
    Window(2) | PrefixLM(),
]


def test_drawings() -> None:
    assert Causal().draw(3) == "■ · ·\n■ ■ ·\n■ ■ ■"
    assert Window(2).draw(4) == "■ · · ·\n■ ■ · ·\n· ■ ■ ·\n· · ■ ■"
    assert Window(2, dilation=2).draw(5) == "■ · · · ·\n· ■ · · ·\n■ · ■ · ·\n· ■ · ■ ·\n· · ■ · ■"
    prefix = Tags.of(torch.arange(4)[None], prefix=torch.tensor([[True, True, False, False]]))
    assert PrefixLM().draw(prefix) == "■ ■ · ·\n■ ■ · ·\n■ ■ ■ ·\n■ ■ ■ ■"
    packed = Tags.of(torch.tensor([[0, 1, 0, 1]]), segment=torch.tensor([[0, 0, 1, 1]]))
    assert (Causal() & SameSegment()).draw(packed) == "■ · · ·\n■ ■ · ·\n· · ■ ·\n· · ■ ■"
    padded = Tags.padded(torch.tensor([[False, True, True]]))
    assert Full().draw(padded) == "· · ·\n· ■ ■\n· ■ ■"


def test_causal_alignment_when_lengths_differ() -> None:
    """Case 3: for 2 queries over 5 keys the rows are 11110 and 11111."""
    tags = Tags.dense(1, 5)
    mask = Causal().mask(tags.columns(slice(3, 5)), tags)
    assert mask[0].long().tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_rules_survive_a_round_trip(rule: Visibility) -> None:
    assert from_data(Visibility, to_data(rule)) == rule


@pytest.mark.parametrize(("first", "second"), list(itertools.product(RULES, RULES)), ids=str)
def test_composition_is_elementwise(first: Visibility, second: Visibility) -> None:
    generator = torch.Generator().manual_seed(0)
    tags = Tags.of(
        torch.randint(-1, 6, (3, 7), generator=generator),
        segment=torch.randint(0, 2, (3, 7), generator=generator),
        prefix=torch.randint(0, 2, (3, 7), generator=generator).bool(),
    )
    a, b = first.mask(tags, tags), second.mask(tags, tags)
    assert torch.equal((first & second).mask(tags, tags), a & b)
    assert torch.equal((first | second).mask(tags, tags), a | b)
    assert not a[(tags.position < 0)].any()


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize(("start", "keys"), [(0, 6), (5, 6), (3, 6)])
def test_shortcuts_agree_with_the_mask(rule: Visibility, start: int, keys: int) -> None:
    """What a view claims to know without looking (everything, triangle) is what its mask says."""
    key = Tags.dense(2, keys)
    query = key.columns(slice(start, keys))
    view = View(rule, query, key)
    if view.everything:
        assert bool(view.mask.all())
    if view.triangle:
        assert torch.equal(view.mask[0, 0], torch.ones(keys, keys).tril().bool())
    simple = rule.plain().mask(query, key)
    assert torch.equal(simple, rule.mask(query, key))


@pytest.mark.parametrize(
    ("rule", "plain"),
    [
        (Causal() & SameSegment(), Causal()),
        (PrefixLM() & SameSegment(), Causal()),
        ((Causal() & SameSegment()) & SameSegment(), Causal()),
        (Full() & SameSegment(), Full()),
        (Window(2) & SameSegment(), Window(2)),
        (Window(2) & Causal(), Window(2) & Causal()),
        (Window(2, dilation=3) & SameSegment(), Window(2, dilation=3)),
    ],
    ids=str,
)
def test_one_document_without_padding_needs_the_simple_rule_alone(rule: Visibility, plain: Visibility) -> None:
    """A model trained on packed documents still takes the fused causal path on a single one."""
    assert rule.plain() == plain
    assert View(rule, Tags.dense(1, 4), Tags.dense(1, 4)).triangle == (plain == Causal())


@pytest.mark.parametrize(
    ("rule", "ahead", "in_prefix"),
    [
        (Full(), True, True),
        (Causal(), False, False),
        (Window(3), False, False),
        (Window(3, both_ways=True), True, True),
        (Window(1, both_ways=True), False, False),
        (Window(1, both_ways=True, dilation=2), False, False),
        (Window(2, both_ways=True, dilation=1000), True, True),
        (Window(2, dilation=1000), False, False),
        (PrefixLM(), False, True),
        (SameSegment(), True, True),
        (Causal() & SameSegment(), False, False),
        (PrefixLM() & SameSegment(), False, True),
        (PrefixLM() & Causal(), False, False),
        (PrefixLM() | Window(2), False, True),
    ],
    ids=str,
)
def test_looking_ahead(rule: Visibility, ahead: bool, in_prefix: bool) -> None:
    assert rule.looks_ahead(prefix=False) == ahead
    assert rule.looks_ahead(prefix=True) == in_prefix


@pytest.mark.parametrize("width", [2, 5, 300, 5000])
@pytest.mark.parametrize("rule", [GlobalTokens(), PrefixLM()], ids=str)
def test_a_tag_is_read_however_wide_the_rule_beside_it(rule: Visibility, width: int) -> None:
    tag: Literal["prefix", "is_global"] = "is_global" if rule == GlobalTokens() else "prefix"
    for whole in (rule, rule & SameSegment(), Window(width, both_ways=True) | rule, (Window(width) | rule) & Full()):
        assert whole.reads(tag)
        assert not whole.reads("prefix" if tag == "is_global" else "is_global")


@pytest.mark.parametrize("width", [1, 2, 4, 9])
def test_window_reaches_exactly_as_far_as_it_says(width: int) -> None:
    """Case 5: ∂out[i]/∂x[j] ≠ 0 exactly for 0 ≤ i−j < W; W ≥ L is full."""
    net = small(Window(width))
    x = torch.randn(1, 7, 16, generator=torch.Generator().manual_seed(0)).requires_grad_()
    reach = jacobian(net, x)
    i, j = torch.arange(7)[:, None], torch.arange(7)[None]
    assert torch.equal(reach, (i - j >= 0) & (i - j < width))


@pytest.mark.parametrize("dilation", [2, 3])
@pytest.mark.parametrize("width", [1, 2, 4])
@torch.no_grad()
def test_a_dilated_window_is_the_same_from_a_cache(width: int, dilation: int) -> None:
    net, length = small(Window(width, dilation=dilation)).double(), 13
    ids = torch.randint(0, 5, (2, length), generator=torch.Generator().manual_seed(0))
    full = net(ids)
    for chunks in ((1,) * length, (5, 1, 7)):
        cache, outs = DenseCache(), []
        for part in ids.split(chunks, 1):
            outs.append(net(part, cache=cache))
        assert (torch.cat(outs, 1) - full).abs().max() <= 1e-10


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_layer_reaches_exactly_what_is_visible(rule: Visibility) -> None:
    net = small(rule)
    tags = Tags.of(
        torch.tensor([[0, 1, 2, 0, 1, 2, -1]]),
        segment=torch.tensor([[0, 0, 0, 1, 1, 1, 1]]),
        prefix=torch.tensor([[True, True, False, True, False, False, False]]),
    )
    x = torch.randn(1, 7, 16, generator=torch.Generator().manual_seed(0)).requires_grad_()
    expected = rule.mask(tags, tags)[0] | torch.eye(7).bool()  # the residual stream always reaches itself
    assert torch.equal(jacobian(net, x, tags), expected)


def small(rule: Visibility) -> Transformer:
    stack = StackConfig(n_layers=1, attention=AttentionConfig(n_heads=2), visibility=rule)
    return Transformer(
        ModelConfig(vocab_size=5, d_model=16, context_length=16, decoder=stack, init=NormalInit(std=0.5))
    ).eval()


def jacobian(net: Transformer, x: torch.Tensor, tags: Tags | None = None) -> torch.Tensor:
    """[T, T] bool: whether out[i] depends on x[j]."""
    context = Context(Tags.dense(1, x.shape[1]) if tags is None else tags)
    rows = []
    for i in range(x.shape[1]):
        out = net.towers["decoder"].stack(x, context)
        (grad,) = torch.autograd.grad(out[0, i].pow(3).sum(), x)
        rows.append(grad[0].abs().sum(-1) > 0)
    return torch.stack(rows)


class Given(Bias):
    """A bias that is there as a whole."""

    def __init__(self, values: torch.Tensor) -> None:
        self.inputs = (values,)

    def tile(self, narrow: tuple[torch.Tensor, ...], rows: slice, columns: Columns) -> torch.Tensor:
        return narrow[0][:, :, rows][..., columns]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "kernel",
    [Naive(), Sdpa(), Sdpa(largest_bias=0, block=2), Flash(block=2, fused=False), BlockSparse(block=2)],
    ids=str,
)
@pytest.mark.parametrize("biased", [False, True])
def test_a_row_that_sees_nothing_is_zero_and_harmless(kernel: Exact, dtype: torch.dtype, biased: bool) -> None:
    """Case 2, trap 3: output exactly 0, finite gradients, other rows as if it were not there."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 4, 5, 8, generator=generator).to(dtype).requires_grad_() for _ in range(3))
    bias = torch.randn(1, 4, 5, 5, generator=generator).to(dtype) if biased else None

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, view: View) -> torch.Tensor:
        return kernel.attend(q, k, v, view, Scoring(0.3, bias=None if bias is None else Given(bias)))

    position = torch.tensor([[0, 1, 2, 3, 4], [-1, -1, -1, -1, -1]])
    tags = Tags.of(position)
    out = attend(query, key, value, View(Causal(), tags, tags))
    assert bool((out[1] == 0).all())
    out.float().square().sum().backward()
    for tensor in (query, key, value):
        assert tensor.grad is not None
        assert bool(tensor.grad.isfinite().all())
        assert bool((tensor.grad[1] == 0).all())
    alone = Tags.of(position[:1])
    expected = attend(query[:1], key[:1], value[:1], View(Causal(), alone, alone))
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 2e-2)
    assert (out[:1] - expected).abs().max() <= tolerance


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@torch.no_grad()
def test_half_precision_models_stay_finite_under_padding(dtype: torch.dtype) -> None:
    """Trap 3: −1e9 overflows fp16; hidden keys are −inf only where another key is visible."""
    net = small(Causal()).to(dtype)
    padded = Tags.padded(torch.tensor([[False, False, True, True], [True, True, True, True]]))
    assert bool(net(torch.zeros(2, 4, dtype=torch.long), tags=padded).isfinite().all())


@pytest.mark.parametrize(
    "mask",
    [torch.ones(1, 3), torch.tensor([[0.0, float("-inf"), 0.0]]), torch.tensor([[0, 1, 1]])],
    ids=["float ones", "additive", "0/1"],
)
def test_a_mask_of_unclear_polarity_is_refused(mask: torch.Tensor) -> None:
    """Trap 2: a float −inf mask handed to code that tests `mask == 0` inverts causality without an error."""
    with pytest.raises(MaskError, match=r"not guessed.*Pass `mask == 1`"):
        Tags.padded(mask)
    with pytest.raises(MaskError, match=r"Tags\.padded"):
        small(Causal())(torch.zeros(1, 3, dtype=torch.long), tags=mask)


@pytest.mark.parametrize("lengths", [(3, 3), (1, 4), (2, 4)])
@torch.no_grad()
def test_padding_in_every_row_of_a_batch(lengths: tuple[int, int]) -> None:
    """Trap 5: masks must work beyond batch 1, and a source mask must not be reused for another length."""
    config = preset("transformer-base")
    tiny = {"n_layers": 1, "attention": AttentionConfig(n_heads=2)}
    assert config.encoder is not None and config.decoder is not None
    config = replace(
        config,
        vocab_size=11,
        d_model=8,
        encoder=replace(config.encoder, **tiny),
        decoder=replace(config.decoder, **tiny),
    )
    net = Transformer(config).eval()
    width = max(lengths)
    source = torch.arange(2 * width).view(2, width) % 11
    target = torch.arange(2 * 6).view(2, 6) % 11
    real = torch.arange(width) < torch.tensor(lengths)[:, None]
    together = net(target, source=net.encode(source, tags=Tags.padded(real)))
    for row, length in enumerate(lengths):
        alone = net(target[row : row + 1], source=net.encode(source[row : row + 1, :length]))
        assert (together[row] - alone[0]).abs().max() <= 1e-5


def test_bad_rules_and_missing_sources_are_refused() -> None:
    with pytest.raises(ConfigError, match="width"):
        Window(0)
    for dilation in (0, 1001):
        with pytest.raises(ConfigError, match="dilation"):
            Window(2, dilation=dilation)
    net = Transformer(
        replace(
            preset("transformer-base"),
            vocab_size=11,
            d_model=8,
        )
    )
    with pytest.raises(ConfigError, match=r"source=model\.encode"):
        net(torch.zeros(1, 2, dtype=torch.long))
    with pytest.raises(MaskError, match="shape of ids"):
        small(Causal())(torch.zeros(1, 3, dtype=torch.long), tags=Tags.dense(1, 4))
