"""Layers that differ from the rest of their stack."""

import pytest
import torch

from transpect.base.errors import ConfigError
from transpect.cache import DenseCache
from transpect.core import (
    AttentionConfig,
    BranchEnd,
    Causal,
    Context,
    Enter,
    LayerNorm,
    Mlp,
    ModelConfig,
    OtherLayers,
    Placement,
    Post,
    Pre,
    StackConfig,
    Tags,
    Transformer,
    Window,
)
from transpect.core.positions import Alibi, Learned, Position, RepeatedBlock, Rope, Sinusoidal, T5Buckets

HEADS = AttentionConfig(n_heads=4)
SHARED = {
    "visibility": (OtherLayers(at=(1, 3), visibility=Window(3)),),
    "scale": (OtherLayers(at=(1,), attention=AttentionConfig(n_heads=4, scale=0.1)),),
    "ffn": (OtherLayers(at=(0,), ffn=Mlp(d_ff=24)), OtherLayers(at=(2,), ffn=Mlp(d_ff=40))),
}
SCHEMES = (Learned(), Sinusoidal(), Rope(), Alibi(), T5Buckets(buckets=8, max_distance=6))


def build(positions: Position, others: tuple[OtherLayers, ...]) -> Transformer:
    stack = StackConfig(n_layers=4, attention=HEADS, ffn=Mlp(d_ff=32), positions=positions, others=others)
    return Transformer(ModelConfig(vocab_size=31, d_model=16, context_length=32, decoder=stack)).eval()


@pytest.mark.parametrize("positions", SCHEMES, ids=lambda scheme: scheme.kind)
@pytest.mark.parametrize("others", SHARED.values(), ids=list(SHARED))
def test_layers_with_the_same_positions_share_them(positions: Position, others: tuple[OtherLayers, ...]) -> None:
    """A table of positions that no layer reads would be a silent parameter, and none of a checkpoint's."""
    net = build(positions, others)
    net(torch.arange(12)[None]).square().sum().backward()
    assert [name for name, parameter in net.named_parameters() if parameter.grad is None] == []
    assert len(net.towers["decoder"].stack.other_positions) == 0


@pytest.mark.parametrize("positions", [Learned(), Sinusoidal(), RepeatedBlock(size=2, above=2)], ids=str)
def test_what_adds_to_the_embeddings_is_one_for_all_layers(positions: Position) -> None:
    fewer = (OtherLayers(at=(1,), attention=AttentionConfig(n_heads=2)),)
    assert len(build(positions, fewer).towers["decoder"].stack.other_positions) == 0
    with pytest.raises(ConfigError, match="whole stack's"):
        build(Rope(), (OtherLayers(at=(1,), positions=positions),))


VOID = {
    "first_norm": {"first_norm": False, "placement": Post()},
    "first_is_global": {"first_is_global": True, "visibility": Window(3) & Causal()},
    "cross-attention": {
        "steps": (("self",), ("cross",), ("ffn",)),
        "cross": AttentionConfig(n_heads=4, global_projections=True),
    },
}


@pytest.mark.parametrize("named", VOID)
def test_an_option_that_would_do_nothing_is_refused(named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        ModelConfig(9, d_model=16, context_length=8, decoder=StackConfig(n_layers=2, attention=HEADS, **VOID[named]))


def test_layers_with_other_positions_have_their_own() -> None:
    theta = (OtherLayers(at=(1,), positions=Rope(theta=10.0)), OtherLayers(at=(2,), positions=Rope(theta=10.0)))
    assert len(build(Rope(), theta).towers["decoder"].stack.other_positions) == 1
    wider = (OtherLayers(at=(1,), attention=AttentionConfig(n_heads=2)),)
    assert len(build(Alibi(), wider).towers["decoder"].stack.other_positions) == 1


@pytest.mark.parametrize("positions", SCHEMES, ids=lambda scheme: scheme.kind)
@pytest.mark.parametrize("others", SHARED.values(), ids=list(SHARED))
@torch.no_grad()
def test_cached_equals_full(positions: Position, others: tuple[OtherLayers, ...]) -> None:
    net, ids, cache = build(positions, others), torch.arange(12)[None], DenseCache()
    pieces = [net(part, cache=cache) for part in ids.split([5, 1, 1, 5], 1)]
    assert torch.allclose(torch.cat(pieces, 1), net(ids), atol=1e-5)


@torch.no_grad()
def test_every_other_layer_counts() -> None:
    """The same weights without the difference compute something else."""
    for others in (SHARED["visibility"], SHARED["scale"]):
        net, plain = build(Rope(), others), build(Rope(), ())
        plain.load_state_dict(net.state_dict())
        assert not torch.allclose(net(torch.arange(12)[None]), plain(torch.arange(12)[None]), atol=1e-5)


@torch.no_grad()
def test_a_norm_at_the_entrance_is_what_branches_add_to() -> None:
    """n + self(n), then m + ffn(m), with n and m the normed streams: written out by hand."""
    stack = StackConfig(n_layers=2, attention=HEADS, ffn=Mlp(d_ff=32), placement=Enter(), norm=LayerNorm(eps=1e-3))
    net = Transformer(ModelConfig(vocab_size=31, d_model=16, context_length=32, decoder=stack)).eval()
    ids, built = torch.arange(12)[None], net.towers["decoder"].stack
    x = net.token(ids)
    for run in built.prepare(Context(Tags.dense(1, 12)), x):
        steps = built.layers[run.layer].steps
        for name in ("self", "ffn"):
            n = torch.nn.functional.layer_norm(x, (16,), steps[name].enter.weight, steps[name].enter.bias, 1e-3)
            x = n + steps[name].branches[name].body(n, run)
    assert torch.allclose(net.hidden(ids), built.final_norm(x), atol=1e-5)


@pytest.mark.parametrize("placement", [Enter(), BranchEnd()], ids=lambda placement: placement.kind)
def test_a_norm_before_branches_is_shared_only_where_it_stands(placement: Placement) -> None:
    parallel = {"n_layers": 2, "attention": HEADS, "steps": (("self", "ffn"),), "shared_norm": True}
    StackConfig(**parallel, placement=Pre())
    with pytest.raises(ConfigError, match="shared_norm"):
        StackConfig(**parallel, placement=placement)
