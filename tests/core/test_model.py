"""Configs, presets, attention, heads, initialisation, tying: what a model is made of."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional

from transpect.base.codec import from_data, to_data
from transpect.base.errors import ConfigError
from transpect.cache import DenseCache, SegmentMemory
from transpect.core import (
    PRESETS,
    AttentionConfig,
    CausalLM,
    Context,
    EmbeddingConfig,
    Full,
    Glu,
    KaimingInit,
    LayerNorm,
    MaskedLM,
    Mlp,
    ModelConfig,
    Naive,
    NormalInit,
    PlainLayerNorm,
    Pooled,
    Post,
    Pre,
    RMSNorm,
    Sdpa,
    SequenceClass,
    StackConfig,
    Tags,
    TokenClass,
    Transform,
    Transformer,
    XavierInit,
    override,
    preset,
)
from transpect.core.feedforward import ACTIVATIONS
from transpect.core.kernels import BlockSparse, Exact, Flash, Scoring
from transpect.core.positions import Alibi, Learned, Rope
from transpect.core.view import View


def tiny(**changes: object) -> ModelConfig:
    stack = StackConfig(n_layers=2, attention=AttentionConfig(n_heads=2))
    config = ModelConfig(vocab_size=19, d_model=16, context_length=32, decoder=stack, init=NormalInit(std=0.3))
    return replace(config, **changes)


def n_parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def on_meta(config: ModelConfig) -> Transformer:
    with torch.device("meta"):
        return Transformer(config, seed=None)


# --- textbook numbers ---------------------------------------------------------------------------------------------


def test_softmax_of_the_tutorial() -> None:
    assert torch.tensor([5.0, 3.0, 2.0]).softmax(-1).tolist() == pytest.approx([0.8438, 0.1142, 0.0420], abs=5e-5)


def test_parameter_counts_of_published_models() -> None:
    base = on_meta(preset("transformer-base"))
    assert sum(n_parameters(tower.stack) for tower in base.towers.values()) == 44_138_496
    assert n_parameters(on_meta(preset("gpt2"))) == 124_439_808
    bert = replace(preset("bert-base"), head=Pooled(pool="first", transform=Transform()))
    assert n_parameters(on_meta(bert)) == 109_482_240
    assert n_parameters(on_meta(preset("t5-small"))) == 60_506_624
    assert n_parameters(on_meta(preset("gpt1"))) == 116_534_784
    # 139,420,416 and the bias over 50,265 words that published checkpoints carry as a buffer
    assert n_parameters(on_meta(preset("bart-base"))) == 139_420_416 + 50_265
    assert n_parameters(on_meta(preset("llama"))) == 6_738_415_616


# --- configs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_presets_round_trip_and_run_small(name: str) -> None:
    config = preset(name)
    assert from_data(ModelConfig, to_data(config)) == config
    small = override(
        config,
        [
            ("vocab_size", "13"),
            ("d_model", "24"),
            ("n_layers", "2"),
            ("n_heads", "3"),
            ("d_ff", "32"),
            ("context_length", "16"),
        ],
    )
    net = Transformer(small).eval()
    ids = torch.arange(10)[None]
    source = {"source": net.encode(ids[:, :7])} if small.kind == "encoder-decoder" else {}
    out = net(ids, **source)
    assert out.shape == (1, 10, 13)
    assert bool(out.isfinite().all())


def test_short_names_reach_every_tower() -> None:
    config = override(preset("transformer-base"), [("n_heads", 4), ("decoder.n_layers", "3"), ("positions", "rope")])
    assert config.encoder is not None and config.decoder is not None
    assert (config.encoder.attention.n_heads, config.decoder.attention.n_heads) == (4, 4)
    assert (config.encoder.n_layers, config.decoder.n_layers) == (6, 3)
    assert config.encoder.positions == config.decoder.positions == Rope()
    theta = override(config, [("positions.theta", "5e5")])
    assert theta.decoder is not None and theta.decoder.positions == Rope(theta=5e5)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([("d_modle", 3)], "d_modle"),
        ([("n_heads", 5)], "multiple of n_heads"),
        ([("n_kv_heads", 5)], "multiple of n_kv_heads"),
        ([("n_heads", "four")], "whole number"),
        ([("n_heads", 0)], "at least 1"),
        ([("n_layers", 0)], "at least 1"),
        ([("vocab_size", 0)], "at least 1"),
        ([("positions", "rop")], "Did you mean 'rope'"),
        ([("positions.thta", 3)], "has no key 'thta'"),
        ([("attention.soft_cap", 30.0)], "kernel `sdpa` can't cap"),
        ([("steps", "[[self, cross], [ffn]]")], "only a decoder behind an encoder"),
        ([("steps", "[[moe]]")], "one of self, cross, ffn"),
        ([("steps", "[[self], [self]]")], "may stand once"),
        ([("decoder.shared_norm", "true")], "several branches"),
        ([("dropout", 1.0)], "below 1"),
        ([("ffn.dropout", 1.5)], "below 1"),
        ([("attention.dropout", -0.1)], "below 1"),
        ([("embedding.dropout", 2)], "below 1"),
        ([("d_ff", 0)], "d_ff must be at least 1"),
        ([("d_ff", -1)], "d_ff must be at least 1"),
        ([("head_dim", 0)], "head_dim must be at least 1"),
        ([("attention.soft_cap", 0.0), ("kernel", "naive")], "soft_cap must be above 0"),
        ([("attention.scale", -1.0)], "scale must be above 0"),
        ([("attention.scale", 0)], "scale must be above 0"),
        ([("head.soft_cap", 0.0)], "soft_cap must be above 0"),
        ([("norm.eps", -1.0)], "eps must be above 0"),
        ([("init.std", -1.0)], "std must be at least 0"),
        ([("embedding.token_types", -1)], "token_types must be at least 0"),
        ([("positions", "{kind: learned, offset: -3}")], "offset must be at least 0"),
        ([("positions", "{kind: rope, theta: 1.0}")], "theta must be above 1"),
        ([("positions", "{kind: rope, scaling: {kind: linear, factor: 0}}")], "factor must be above 0"),
        ([("positions", "{kind: rope, scaling: {kind: yarn, factor: 0.5, original_length: 8}}")], "at least 1"),
        ([("positions", "{kind: rope, scaling: {kind: dynamic, factor: 2, original_length: 0}}")], "at least 1"),
        ([("positions", "{kind: t5, buckets: 1}")], "buckets must be at least 2"),
        ([("positions", "{kind: t5, buckets: 32, max_distance: 16}")], "max_distance must be above 16"),
        ([("visibility", "{kind: all, rules: []}")], "at least one rule"),
        ([("visibility", "{kind: any, rules: []}")], "at least one rule"),
        ([("head", "{kind: sequence_class, n_classes: 0}")], "n_classes must be at least 1"),
        ([("head", "{kind: token_class, n_classes: 2, dropout: 1}")], "below 1"),
        ([("decoder", None)], "an encoder, a decoder, or both"),
    ],
)
def test_what_cannot_be_built_is_refused_by_name(overrides: list[tuple[str, object]], message: str) -> None:
    small = override(preset("gpt2"), [("vocab_size", 9), ("d_model", 24), ("n_layers", 1), ("n_heads", 3)])
    with pytest.raises(ConfigError, match=message):
        Transformer(override(small, overrides), seed=None)


def test_unknown_presets_get_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'gpt2'"):
        preset("gtp2")


# --- placement ----------------------------------------------------------------------------------------------------


def test_placement_is_what_it_is_called() -> None:
    """Trap 4: code commented Post-LN that is Pre-LN, and a Pre-LN stack without its final norm."""
    post, pre = (Transformer(override(tiny(), [("placement", kind)])) for kind in ("post", "pre"))
    x = torch.randn(1, 5, 16, generator=torch.Generator().manual_seed(0)) * 7 + 3
    for net, normalised in ((post, True), (pre, True)):
        out = net.towers["decoder"].stack(x, context(5))
        assert bool((out.mean(-1).abs() < 1e-5).all()) == normalised
        assert bool(((out.var(-1, unbiased=False) - 1).abs() < 1e-3).all()) == normalised
    assert not any("final_norm" in name for name, _ in post.named_parameters())
    assert any("final_norm" in name for name, _ in pre.named_parameters())
    step = pre.towers["decoder"].stack.layers[0].steps["ffn"]
    branch = step.branches["ffn"]
    assert torch.allclose(step(x, None), x + branch.body(branch.before(x)))
    step = post.towers["decoder"].stack.layers[0].steps["ffn"]
    assert torch.allclose(step(x, None), step.after(x + step.branches["ffn"].body(x)))


def test_final_norm_can_be_chosen() -> None:
    config = override(tiny(), [("placement", "post"), ("decoder.final_norm", True)])
    assert any("final_norm" in name for name, _ in Transformer(config).named_parameters())


def context(length: int) -> Context:
    return Context(Tags.dense(1, length))


# --- attention ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (4, 1), (6, 3)])
@torch.no_grad()
def test_grouped_heads_equal_repeated_key_value_heads(heads: int, kv_heads: int) -> None:
    """GQA is MHA whose key and value weights are repeated in groups of neighbouring heads."""
    attention = AttentionConfig(n_heads=heads, n_kv_heads=kv_heads, head_dim=4)
    grouped = Transformer(tiny(decoder=StackConfig(n_layers=1, attention=attention))).eval()
    full = Transformer(tiny(decoder=StackConfig(n_layers=1, attention=replace(attention, n_kv_heads=None)))).eval()
    state = grouped.state_dict()
    for name in state:
        if ".key." in name or ".value." in name:
            split = state[name].view(kv_heads, 4, -1)
            state[name] = split.repeat_interleave(heads // kv_heads, 0).reshape(heads * 4, *state[name].shape[1:])
    full.load_state_dict(state)
    ids = torch.arange(9)[None]
    assert (full(ids) - grouped(ids)).abs().max() <= 1e-5


@pytest.mark.parametrize("scale", [None, 1.0, 0.125])
@torch.no_grad()
def test_scale_is_per_head(scale: float | None) -> None:
    """Trap 7: 1/√d_k, not 1/√d_model."""
    config = override(tiny(), [("attention.scale", scale), ("kernel", "naive")])
    body = Transformer(config).towers["decoder"].stack.layers[0].steps["self"].branches["self"].body
    x = torch.randn(1, 6, 16, generator=torch.Generator().manual_seed(0))
    q, k, v = (body.split(layer(x)) for layer in (body.query, body.key, body.value))
    scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(8) if scale is None else scale)
    weights = scores.masked_fill(~torch.ones(6, 6).tril().bool(), float("-inf")).softmax(-1)
    expected = body.out((weights @ v).transpose(1, 2).reshape(1, 6, 16))
    run = Transformer(config).towers["decoder"].stack.prepare(context(6), x)[0]
    assert (body(x, run) - expected).abs().max() <= 1e-6


@torch.no_grad()
def test_soft_cap_bounds_the_scores() -> None:
    cap, plain = (
        Transformer(override(tiny(init=NormalInit(std=2.0)), [("attention", a)])).eval()
        for a in (
            {"n_heads": 2, "soft_cap": 0.5, "kernel": "naive"},
            {"n_heads": 2, "kernel": "naive"},
        )
    )
    seen: dict[str, torch.Tensor] = {}

    class Watch:
        def see(self, name: str, value: torch.Tensor) -> None:
            seen[name] = value

    ids = torch.arange(9)[None]
    cap(ids, tap=Watch())
    weights = seen["decoder.0.self.attention_weights"][0, :, -1]
    # scores in [−c, c] cannot make one of nine weights more than e^{2c} times another
    assert float((weights.max(-1).values / weights.min(-1).values).max()) <= math.exp(1.0) + 1e-4
    plain(ids, tap=Watch())
    weights = seen["decoder.0.self.attention_weights"][0, :, -1]
    assert float((weights.max(-1).values / weights.min(-1).values).max()) > math.exp(1.0)


@pytest.mark.parametrize("kernel", [Naive(), Sdpa(), Flash(block=3, fused=False), BlockSparse(block=3)], ids=str)
def test_attention_dropout_is_applied_once(kernel: Exact) -> None:
    """Trap 7: declared but never applied, or applied twice. Over many draws the mean is the dropout-free output."""
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 2, 8, 4, generator=generator) for _ in range(2))
    eye = torch.eye(8).expand(1, 2, 8, 8)  # the output is the weights themselves
    tags = Tags.dense(1, 8)

    def attend(dropout: float) -> torch.Tensor:
        view = View(Full(), tags, tags)
        return kernel.attend(q, k, eye, view, Scoring(0.5, dropout=dropout))

    torch.manual_seed(0)
    draws = torch.stack([attend(0.25) for _ in range(600)])
    dropped = float((draws == 0).float().mean())
    assert dropped == pytest.approx(0.25, abs=0.01)
    kept = draws[draws != 0]
    assert float((draws.mean(0) - attend(0.0)).abs().max()) < 0.05
    assert len(kept) < draws.numel()


# --- feed-forward and norms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ACTIVATIONS)
@torch.no_grad()
def test_feed_forward_formulas(act: str) -> None:
    x = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))
    mlp, glu = Mlp(d_ff=12, act=act).build(8), Glu(d_ff=12, act=act).build(8)
    assert torch.allclose(mlp(x), mlp.down(ACTIVATIONS[act](mlp.up(x))))
    assert torch.allclose(glu(x), glu.down(ACTIVATIONS[act](glu.gate(x)) * glu.up(x)))


def test_activation_values() -> None:
    x = torch.tensor([-1.0, 0.5])
    expected = {
        "relu": [0.0, 0.5],
        "gelu": [-0.1586553, 0.3457312],
        "gelu_tanh": [-0.1588080, 0.3457140],
        "silu": [-0.2689414, 0.3112297],
        "relu2": [0.0, 0.25],
        "tanh": [-0.7615942, 0.4621172],
    }
    assert expected.keys() == ACTIVATIONS.keys()
    for name, values in expected.items():
        assert ACTIVATIONS[name](x).tolist() == pytest.approx(values, abs=1e-6)


def test_default_widths() -> None:
    assert Mlp().width(512) == 2048
    assert Glu().width(4096) == 10944
    mlp, glu = Mlp(bias=False).build(384), Glu().build(384)
    assert n_parameters(glu) == pytest.approx(n_parameters(mlp), rel=0.05)


@torch.no_grad()
def test_norm_formulas() -> None:
    x = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0)) * 3 + 1
    layer, rms, offset = LayerNorm(eps=1e-3).build(8), RMSNorm(eps=1e-3).build(8), RMSNorm(1e-3, True).build(8)
    for module in (layer, rms, offset):
        module.weight.uniform_(0.5, 2.0)
    layer.bias.uniform_()
    mean, var = x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True)
    assert torch.allclose(layer(x), (x - mean) / (var + 1e-3).sqrt() * layer.weight + layer.bias, atol=1e-5)
    scaled = x / (x.square().mean(-1, keepdim=True) + 1e-3).sqrt()
    assert torch.allclose(rms(x), scaled * rms.weight, atol=1e-5)
    assert torch.allclose(offset(x), scaled * (1 + offset.weight), atol=1e-5)
    assert bool((RMSNorm(unit_offset=True).build(4).weight == 0).all())
    plain = PlainLayerNorm(eps=1e-3).build(8)
    assert not list(plain.parameters())
    centred = x - x.mean(-1, keepdim=True)
    assert torch.allclose(plain(x), centred / (centred.square().mean(-1, keepdim=True) + 1e-3).sqrt(), atol=1e-6)


# --- embeddings, tying, heads -------------------------------------------------------------------------------------


@torch.no_grad()
def test_embedding_order_and_scale() -> None:
    """token·√D + segment + position, then norm."""
    config = tiny(embedding=EmbeddingConfig(scaled=True, token_types=2, norm=LayerNorm()))
    config = replace(config, decoder=replace(config.decoder, positions=Learned()))
    tower = Transformer(config).eval().towers["decoder"]
    net = Transformer(config).eval()
    ids, types = torch.arange(5)[None], torch.tensor([[0, 0, 1, 1, 1]])
    tower = net.towers["decoder"]
    got = tower.embeddings(net.token(ids), Tags.dense(1, 5), tower.stack.positions, types)
    table = tower.stack.positions.table.weight
    summed = net.token.weight[:5] * 4 + tower.embeddings.segment.table.weight[types[0]] + table[:5]
    assert torch.allclose(got[0], functional.layer_norm(summed, (16,)), atol=1e-5)
    assert torch.equal(net(ids), net(ids, token_types=torch.zeros_like(ids)))
    with pytest.raises(ConfigError, match="no segment embeddings"):
        Transformer(tiny())(ids, token_types=types)


@pytest.mark.parametrize("move", ["double", "bfloat16", "state", "file"])
def test_a_tied_head_stays_one_storage(move: str, tmp_path: Path) -> None:
    net = Transformer(tiny())
    if move == "double":
        net = net.double()
    elif move == "bfloat16":
        net = net.to(torch.bfloat16)
    elif move == "state":
        net.load_state_dict({name: value.clone() for name, value in net.state_dict().items()}, assign=True)
    else:
        save_file(net.state_dict(), tmp_path / "m.safetensors")
        net.load_state_dict(load_file(tmp_path / "m.safetensors"))
    ids = torch.arange(4)[None]
    before = net(ids)
    assert sum(value.numel() for value in net.state_dict().values()) == n_parameters(net)
    with torch.no_grad():
        net.token.weight[7] *= 3.0
    assert (net(ids) - before)[..., 7].abs().max() > 0.1
    net(ids).sum().backward()
    assert net.token.weight.grad is not None


@pytest.mark.parametrize("pad", [(0, 0), (2, 0), (0, 3), (1, 2)])
@pytest.mark.parametrize(
    "head",
    [
        SequenceClass(3, pool="first"),
        SequenceClass(3, pool="last", transform=None, bias=False),
        SequenceClass(3, pool="mean"),
        Pooled("mean", normalize=True),
        Pooled("first", transform=Transform()),
        Pooled("last"),
    ],
    ids=str,
)
@torch.no_grad()
def test_pooling_heads_see_real_tokens_only(head: SequenceClass | Pooled, pad: tuple[int, int]) -> None:
    net = Transformer(replace(tiny(head=head), decoder=None, encoder=replace(tiny().decoder, visibility=Full()))).eval()
    ids = torch.arange(6)[None]
    hidden = net.hidden(ids)
    vector = {"first": hidden[0, 0], "last": hidden[0, -1], "mean": hidden[0].mean(0)}[head.pool]
    if head.transform:
        vector = torch.tanh(net.head.transform.dense(vector))
    expected = net.head.project(vector) if isinstance(head, SequenceClass) else vector
    if isinstance(head, Pooled) and head.normalize:
        expected = expected / expected.norm()
    padded = functional.pad(ids, pad, value=3)
    real = functional.pad(torch.ones(1, 6, dtype=torch.bool), pad, value=False)
    assert (net(padded, tags=Tags.padded(real))[0] - expected).abs().max() <= 1e-5


@torch.no_grad()
def test_language_model_heads() -> None:
    ids = torch.arange(6)[None]
    for tied in (True, False):
        config = tiny(head=CausalLM(tied=tied, bias=True, rescaled=True, soft_cap=2.0))
        net = Transformer(config).eval()
        net.head.project.bias.uniform_()
        weight = net.token.weight if tied else net.head.project.weight
        plain = net.hidden(ids) * 0.25 @ weight.T + net.head.project.bias
        assert torch.allclose(net(ids), 2 * torch.tanh(plain / 2), atol=1e-5)
        net = Transformer(tiny(head=MaskedLM(tied=tied))).eval()
        weight = net.token.weight if tied else net.head.project.weight
        inner = net.head.norm(functional.gelu(net.head.dense(net.hidden(ids))))
        assert torch.allclose(net(ids), inner @ weight.T + net.head.project.bias, atol=1e-5)
    net = Transformer(tiny(head=TokenClass(4))).eval()
    assert torch.allclose(net(ids), net.head.project(net.hidden(ids)))


def test_pooling_nothing_is_refused() -> None:
    net = Transformer(tiny(head=Pooled()))
    with pytest.raises(ConfigError, match="at least one token"):
        net(torch.zeros(1, 3, dtype=torch.long), tags=Tags.padded(torch.zeros(1, 3, dtype=torch.bool)))


# --- initialisation -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "init", [NormalInit(), NormalInit(residual_scaling=False), XavierInit(), KaimingInit()], ids=str
)
@pytest.mark.parametrize("head", [CausalLM(), CausalLM(tied=False, bias=True), MaskedLM()], ids=str)
@torch.no_grad()
def test_initial_weights(init: NormalInit | XavierInit | KaimingInit, head: CausalLM | MaskedLM) -> None:
    big = replace(
        tiny(init=init, head=head, d_model=64, vocab_size=101),
        decoder=StackConfig(n_layers=3, attention=AttentionConfig(n_heads=4), positions=Learned()),
    )
    net = Transformer(big, seed=5)
    twin, other = Transformer(big, seed=5), Transformer(big, seed=6)
    for (name, a), b in zip(net.state_dict().items(), twin.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
        assert bool(a.isfinite().all())
    assert not torch.equal(net.token.weight, other.token.weight)
    for name, weight in net.named_parameters():
        if name.endswith("bias"):
            assert bool((weight == 0).all())
        elif weight.ndim == 1:
            assert bool((weight == 1).all())
        else:
            fan_out, fan_in = weight.shape
            table = "token" in name or "table" in name
            if isinstance(init, NormalInit):
                ends = name.endswith(("out.weight", "down.weight"))
                std = 0.02 / math.sqrt(6) if init.residual_scaling and ends else 0.02
            elif table:
                std = 64**-0.5
            elif isinstance(init, XavierInit):
                std = math.sqrt(2 / (fan_in + fan_out))
            else:
                std = math.sqrt(2 / fan_in)
            assert float(weight.std()) == pytest.approx(std, rel=0.06), name


def test_a_model_without_memory_is_not_filled() -> None:
    """llama's 6.7 billion numbers are neither allocated nor drawn."""
    with torch.device("meta"):
        net = Transformer(preset("llama"))
    assert all(parameter.is_meta for parameter in net.parameters())


def test_global_random_state_is_left_alone() -> None:
    torch.manual_seed(0)
    Transformer(tiny(), seed=1)
    first = torch.rand(1)
    torch.manual_seed(0)
    Transformer(tiny(), seed=2)
    assert torch.equal(torch.rand(1), first)


# --- input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.zeros(3, dtype=torch.long), r"\[B, T\]"),
        (torch.zeros(1, 3), r"\[B, T\]"),
        (torch.tensor([[0, 19]]), "below 19"),
        (torch.tensor([[-100, 3]]), "-100"),
    ],
)
def test_bad_ids_are_refused(ids: torch.Tensor, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Transformer(tiny())(ids)


@torch.no_grad()
def test_a_model_keeps_no_state() -> None:
    net = Transformer(tiny(decoder=replace(tiny().decoder, positions=Alibi(), placement=Pre()))).eval()
    ids = torch.arange(8)[None]
    first = net(ids)
    net(ids[:, :3])
    assert torch.equal(net(ids), first)
    assert not list(net.buffers())


def test_a_pass_has_a_cache_or_a_memory() -> None:
    with pytest.raises(ConfigError, match="not both"):
        Transformer(tiny())(torch.zeros(1, 2, dtype=torch.long), cache=DenseCache(), memory=SegmentMemory(4))


def test_token_types_are_checked() -> None:
    net = Transformer(tiny(embedding=EmbeddingConfig(token_types=2)))
    with pytest.raises(ConfigError, match="token_types must be at least 0 and below 2"):
        net(torch.zeros(1, 2, dtype=torch.long), token_types=torch.tensor([[0, 2]]))


@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("length", [0, 1])
@torch.no_grad()
def test_empty_batches_and_rows_pass_through(batch: int, length: int) -> None:
    net = Transformer(tiny(decoder=replace(tiny().decoder, positions=Learned()))).eval()
    ids = torch.zeros(batch, length, dtype=torch.long)
    assert net(ids).shape == (batch, length, 19)
    assert net(ids, tags=Tags.padded(torch.ones(batch, length, dtype=torch.bool))).shape == (batch, length, 19)


@torch.no_grad()
def test_large_scores_fit_float16() -> None:
    """q·k of 64 · 40 · 40 exceeds 65,504; scaled by 1/8 it does not."""
    query = torch.full((1, 1, 1, 64), 40.0, dtype=torch.float16)
    tags = Tags.dense(1, 1)
    for kernel in (Naive(), Sdpa(), Flash(fused=False), BlockSparse()):
        out = kernel.attend(query, query, query, View(Full(), tags, tags), Scoring(0.125))
        assert torch.equal(out, query)


@torch.no_grad()
def test_offset_norm_adds_one_in_float32() -> None:
    norm = RMSNorm(unit_offset=True).build(64).bfloat16()
    norm.weight.normal_(0.0, 0.3)
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    exact = functional.rms_norm(x.double(), (64,), 1 + norm.weight.double(), 1e-6)
    assert torch.equal(norm(x), exact.bfloat16())


def test_an_encoderless_model_says_so() -> None:
    with pytest.raises(ConfigError, match="one tower"):
        Transformer(tiny()).encode(torch.zeros(1, 2, dtype=torch.long))


def test_post_norm_is_a_kind_not_a_flag() -> None:
    assert (
        from_data(ModelConfig, to_data(tiny(decoder=replace(tiny().decoder, placement=Post())))).decoder.placement
        == Post()
    )
