"""A mixture of experts against its formula, and what must not change it: batches, padding, caches, other devices."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from transpect.base.codec import from_data, to_data
from transpect.base.errors import ConfigError
from transpect.cache import DenseCache
from transpect.core import (
    AttentionConfig,
    CausalLM,
    FeedForward,
    Glu,
    Mlp,
    ModelConfig,
    Moe,
    NormalInit,
    OtherLayers,
    RouterTap,
    StackConfig,
    Tags,
    Transformer,
    balance_loss,
)
from transpect.core.positions import Rope

D, VOCAB = 12, 23
KINDS = [
    Moe(experts, active, normalize, ffn)
    for (experts, active), normalize, ffn in itertools.product(
        ((1, 1), (4, 1), (5, 2), (3, 3)), (True, False), (Glu(d_ff=10), Mlp(d_ff=7))
    )
]


def config(ffn: FeedForward, *others: OtherLayers) -> ModelConfig:
    stack = StackConfig(
        n_layers=3, attention=AttentionConfig(n_heads=3, head_dim=4), ffn=ffn, positions=Rope(), others=others
    )
    return ModelConfig(vocab_size=VOCAB, d_model=D, context_length=64, decoder=stack, head=CausalLM(tied=False))


def model(ffn: FeedForward, *others: OtherLayers) -> Transformer:
    return Transformer(replace(config(ffn, *others), init=NormalInit(std=0.4)), seed=2).eval()


def layers(net: Transformer) -> list[torch.nn.Module]:
    return [layer.steps["ffn"].branches["ffn"].body for layer in net.towers["decoder"].stack.layers]


def ids(rows: int = 3, length: int = 11) -> Tensor:
    return torch.randint(0, VOCAB, (rows, length), generator=torch.Generator().manual_seed(0))


def by_hand(module: torch.nn.Module, options: Moe, x: Tensor) -> Tensor:
    """Token by token, expert by expert."""
    out = torch.zeros_like(x)
    for row, column in itertools.product(range(x.shape[0]), range(x.shape[1])):
        token = x[row, column]
        p = (module.router.weight @ token).softmax(-1)
        best = sorted(range(options.experts), key=lambda e: -p[e].item())[: options.active]
        total = sum(p[e] for e in best) if options.normalize else 1.0
        for e in best:
            out[row, column] = out[row, column] + p[e] / total * module.experts[e](token)
    return out


class Run:
    """As much of a pass as a mixture looks at."""

    layer = 0

    def __init__(self) -> None:
        self.tap = RouterTap()
        self.context = self


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_the_formula_and_its_gradients(options: Moe) -> None:
    module = layers(model(options))[0].double()
    x = torch.randn(2, 7, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    direction = torch.randn(2, 7, D, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    results = []
    for compute in (lambda: module(x, Run()), lambda: by_hand(module, options, x)):
        out = compute()
        inputs = [x, *module.parameters()]
        gradients = torch.autograd.grad((out * direction).sum(), inputs, allow_unused=True)
        results.append(
            [out, *(torch.zeros_like(i) if g is None else g for g, i in zip(gradients, inputs, strict=True))]
        )
    for ours, theirs in zip(*results, strict=True):
        assert (ours - theirs).abs().max() <= 1e-12
    if options.experts > 1 and (options.active > 1 or not options.normalize):
        assert results[0][2].abs().max() > 1e-6  # the router learns


@pytest.mark.parametrize("options", KINDS, ids=str)
@torch.no_grad()
def test_asking_all_is_asking_the_chosen(options: Moe) -> None:
    """Where a graph is recorded, and on the meta device, all experts are asked."""
    module, x = layers(model(options))[0].double(), torch.randn(2, 5, D, dtype=torch.float64)
    weights, chosen = module.router(x).softmax(-1).topk(options.active, -1)
    flat = (x.flatten(0, 1), weights.flatten(0, 1), chosen.flatten(0, 1))
    assert (module.ask_all(*flat) - module.ask_chosen(*flat)).abs().max() <= 1e-12
    assert module.to("meta")(x.to("meta"), Run()).shape == x.shape


@pytest.mark.parametrize("options", KINDS[4:6], ids=str)
@torch.no_grad()
def test_padded_batched_cached_and_chunked_are_equal(options: Moe) -> None:
    net, batch = model(options, OtherLayers(at=(1,), ffn=Mlp(d_ff=9))), ids()
    full = net(batch)
    for row in range(len(batch)):
        assert (net(batch[row : row + 1]) - full[row]).abs().max() <= 1e-5
    for left, right in ((3, 0), (0, 2), (1, 4)):
        padded = torch.nn.functional.pad(batch, (left, right), value=5)
        real = torch.nn.functional.pad(torch.ones_like(batch, dtype=torch.bool), (left, right))
        out = net(padded, tags=Tags.padded(real))
        assert (out[:, left : left + batch.shape[1]] - full).abs().max() <= 1e-5
    for chunks in ((1,) * 11, (4, 1, 6), (10, 1)):
        cache = DenseCache()
        parts = [net(part, cache=cache) for part in batch.split(list(chunks), 1)]
        assert (torch.cat(parts, 1) - full).abs().max() <= 1e-5


def test_an_expert_that_nobody_chose_has_no_gradient() -> None:
    module = layers(model(Moe(experts=4, active=1, ffn=Mlp(d_ff=7))))[0]
    module(torch.randn(1, 1, D), Run()).sum().backward()
    asked = [expert.up.weight.grad is not None for expert in module.experts]
    assert sum(asked) == 1


def test_the_balance_is_that_of_the_tokens() -> None:
    options = Moe(experts=5, active=2, ffn=Mlp(d_ff=7))
    net, batch = model(options, OtherLayers(at=(1,), ffn=Mlp(d_ff=9))), ids()
    tap, tags = RouterTap(), Tags.dense(*batch.shape)
    net(batch, tap=tap)
    assert [tuple(logits.shape) for logits in tap.logits] == [(3, 11, 5)] * 2  # two of three layers are mixtures
    loss = balance_loss(tap.logits, tags, options.active)
    p = torch.cat([logits.flatten(0, 1) for logits in tap.logits]).softmax(-1)
    visits = torch.zeros(5)
    for row in p:
        for expert in row.topk(2).indices:
            visits[expert] += 1 / len(p)
    assert loss.item() == pytest.approx(float(5 * (visits * p.detach().mean(0)).sum()), rel=1e-5)
    loss.backward()
    for at in (0, 2):
        assert layers(net)[at].router.weight.grad.abs().max() > 0

    padded = torch.nn.functional.pad(batch, (4, 0), value=7)
    real = torch.nn.functional.pad(torch.ones_like(batch, dtype=torch.bool), (4, 0))
    again = RouterTap()
    net(padded, tags=Tags.padded(real), tap=again)
    assert balance_loss(again.logits, Tags.padded(real), options.active).item() == pytest.approx(loss.item(), rel=1e-5)


@pytest.mark.parametrize("active", [1, 2, 4])
def test_the_balance_is_least_where_tokens_spread_evenly(active: int) -> None:
    tags = Tags.dense(1, 4)
    turns = torch.stack([torch.arange(4).roll(i) for i in range(4)])  # each expert is each token's favourite once
    even = balance_loss([turns[None] * 1e-3], tags, active)
    assert even.item() == pytest.approx(active, rel=1e-3)
    crowded = balance_loss([turns[:1].expand(4, 4)[None] * 3.0], tags, active)
    assert crowded >= even - 1e-3
    with pytest.raises(ConfigError, match="no router"):
        balance_loss([], tags, active)


def test_what_writes_to_the_residual_stream_starts_small() -> None:
    init = NormalInit(std=0.5)
    net = Transformer(replace(config(Moe(experts=4, ffn=Mlp(d_ff=400))), init=init))
    for expert in layers(net)[0].experts:
        assert expert.up.weight.std().item() == pytest.approx(0.5, rel=0.05)
        assert expert.down.weight.std().item() == pytest.approx(0.5 / 6**0.5, rel=0.05)  # 3 layers of 2 branches


@pytest.mark.parametrize("wrong", [{"active": 0}, {"active": 5}, {"experts": 0}, {"ffn": Moe(experts=3)}])
def test_nonsense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        replace(Moe(experts=4), **wrong)


def test_it_is_data() -> None:
    made = config(Moe(experts=4), OtherLayers(at=(0, 2), ffn=Glu()))
    assert from_data(ModelConfig, to_data(made)) == made
