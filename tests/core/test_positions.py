"""Position schemes against their formulas, published values, and what a checkpoint may hold of them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from transpect.base.errors import ConfigError, ContextLengthError, MaskError
from transpect.cache import DenseCache, SegmentMemory
from transpect.core import (
    AttentionConfig,
    Causal,
    CausalLM,
    Full,
    Mlp,
    ModelConfig,
    NormalInit,
    StackConfig,
    Tags,
    Transformer,
)
from transpect.core.positions import (
    Alibi,
    Dims,
    DynamicNTK,
    Kerple,
    Learned,
    LinearScaling,
    Llama3Scaling,
    NoPosition,
    Position,
    RepeatedBlock,
    Rope,
    Sinusoidal,
    T5Buckets,
    TransformerXL,
    Yarn,
)
from transpect.core.positions.alibi import slopes
from transpect.core.positions.kerple import kerple
from transpect.core.positions.rope import inverse_frequencies
from transpect.core.positions.sinusoidal import encoding
from transpect.core.positions.t5 import bucket


def model(positions: Position, *, d_model: int = 32, heads: int = 4, layers: int = 2, length: int = 64) -> Transformer:
    stack = StackConfig(
        n_layers=layers, attention=AttentionConfig(n_heads=heads), ffn=Mlp(d_ff=48), positions=positions
    )
    config = ModelConfig(
        vocab_size=31,
        d_model=d_model,
        context_length=length,
        decoder=stack,
        head=CausalLM(tied=False),
        init=NormalInit(std=0.3),
    )
    return Transformer(config, seed=3).eval()


def test_sinusoidal_values() -> None:
    row = encoding(torch.tensor([1]), 512, Sinusoidal())[0]
    assert row[:4].tolist() == pytest.approx([0.841471, 0.540302, 0.821856, 0.569695], abs=1e-6)
    assert encoding(torch.tensor([0]), 6, Sinusoidal())[0].tolist() == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize("d_model", [1, 2, 5, 8, 33])
@pytest.mark.parametrize("position", [0, 1, 17, 100_000])
def test_sinusoidal_formula(d_model: int, position: int) -> None:
    row = encoding(torch.tensor([position]), d_model, Sinusoidal())[0]
    for i in range(d_model):
        angle = position / 10000 ** (2 * (i // 2) / d_model)
        assert float(row[i]) == pytest.approx(math.cos(angle) if i % 2 else math.sin(angle), abs=1e-9)


@pytest.mark.parametrize("positions", [NoPosition(), Sinusoidal(), Rope(), Alibi()], ids=lambda p: p.kind)
@torch.no_grad()
def test_schemes_without_parameters_leave_nothing_in_a_checkpoint(positions: Position) -> None:
    """Trap 8: no table ties a checkpoint to a length."""
    short, long = model(positions, length=8), model(positions, length=512)
    long.load_state_dict(short.state_dict())
    ids = torch.arange(31)[None]
    assert torch.equal(long(ids), short(ids))


def test_learned_positions_end() -> None:
    net = model(Learned(), length=5)
    net(torch.zeros(1, 5, dtype=torch.long))
    with pytest.raises(ContextLengthError, match="end at 5"):
        net(torch.zeros(1, 6, dtype=torch.long))
    with pytest.raises(ContextLengthError):
        net(torch.zeros(1, 1, dtype=torch.long), tags=Tags.of(torch.tensor([[5]])))


@torch.no_grad()
def test_learned_positions_do_not_shift_when_the_context_is_cropped() -> None:
    """Trap 8: a later window of the text keeps its own positions when they are stated."""
    net = model(Learned())
    ids = torch.arange(10)[None]
    whole = net.token(ids)
    tags = Tags.of(torch.arange(10)[None])
    scheme = net.towers["decoder"].stack.positions
    cropped = scheme.embed(whole[:, 4:], tags.columns(slice(4, None)))
    assert torch.equal(cropped, scheme.embed(whole, tags)[:, 4:])


@pytest.mark.parametrize("offset", [0, 2, 5])
@torch.no_grad()
def test_learned_offset(offset: int) -> None:
    scheme = model(Learned(offset=offset), length=7).towers["decoder"].stack.positions
    assert scheme.table.weight.shape[0] == 7 + offset
    out = scheme.embed(torch.zeros(1, 7, 32), Tags.dense(1, 7))
    assert torch.equal(out[0], scheme.table.weight[offset:])


def test_alibi_values() -> None:
    assert slopes(6).tolist() == [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
    assert slopes(8)[0] == 0.5
    assert slopes(12)[8:].tolist() == pytest.approx([0.70711, 0.35355, 0.17678, 0.08839], abs=1e-5)


@pytest.mark.parametrize("bias_max", [4.0, 8.0, 16.0])
@pytest.mark.parametrize("heads", range(1, 40))
def test_alibi_slopes_as_mpt_counts_them(heads: int, bias_max: float) -> None:
    """2^(−bias_max·i/P) for the power of two P at or above H; where P ≠ H the even i first, then the odd ones."""
    above = 2 ** math.ceil(math.log2(heads))
    numbers = [*range(1, above + 1)] if above == heads else [*range(2, above + 1, 2), *range(1, above + 1, 2)]
    expected = [2 ** (-bias_max * i / above) for i in numbers[:heads]]
    assert slopes(heads, bias_max).tolist() == pytest.approx(expected, rel=1e-12)
    assert float(slopes(heads, bias_max).min()) == pytest.approx(2**-bias_max)


def test_alibi_bias_max_reaches_the_scores() -> None:
    near, far = (model(Alibi(bias_max=most), heads=4) for most in (8.0, 16.0))
    far.load_state_dict(near.state_dict())
    ids = torch.arange(12)[None]
    assert not torch.allclose(near(ids), far(ids), atol=1e-3)
    with pytest.raises(ConfigError, match="bias_max"):
        Alibi(bias_max=0)


@pytest.mark.parametrize("distance", [-5, 0, 1, 7, 100_000])
def test_kerple_formula(distance: int) -> None:
    r1, r2 = [0.01, 0.5, 2.0], [0.3, 1.0, 0.01]
    logs = tuple(torch.tensor(r, dtype=torch.float64).log() for r in (r1, r2))
    bias = kerple(logs, torch.tensor(distance))
    expected = [-a * math.log(1 + b * abs(distance)) for a, b in zip(r1, r2, strict=True)]
    assert bias.tolist() == pytest.approx(expected, rel=1e-12)
    narrow = kerple(tuple(log.bfloat16() for log in logs), torch.tensor(distance))
    assert narrow.dtype == torch.bfloat16
    assert narrow.tolist() == pytest.approx(expected, rel=0.03)


def test_kerple_starts_as_the_authors_do_and_learns() -> None:
    net = model(Kerple(), heads=16)
    module = net.towers["decoder"].stack.positions
    for log, most in ((module.log_r1, 2.0), (module.log_r2, 1.0)):
        values = log.detach().exp()
        assert bool((values >= 0.0099).all()) and bool((values <= most).all())
        assert float(values.max()) > most / 2 and len(values.unique()) == 16
    assert torch.equal(module.log_r1, model(Kerple(), heads=16).towers["decoder"].stack.positions.log_r1)
    net(torch.arange(9)[None]).square().sum().backward()
    assert all(bool((log.grad != 0).all()) for log in (module.log_r1, module.log_r2))


@pytest.mark.parametrize("heads", range(1, 40))
def test_alibi_slopes_are_distinct_and_fall_in_each_part(heads: int) -> None:
    below = 2 ** (heads.bit_length() - 1)
    values = slopes(heads)
    assert len(values) == heads
    assert len(set(values.tolist())) == heads
    assert bool((values > 0).all()) and bool((values <= 1).all())
    assert bool((values[:below].diff() < 0).all()) and bool((values[below:].diff() < 0).all())


def test_alibi_bias() -> None:
    tags = Tags.of(torch.tensor([[0, 1, 2], [-1, 0, 1]]))
    bias = model(Alibi()).towers["decoder"].stack.positions.geometry(tags, tags, tags, torch.float64).bias
    assert bias is not None
    for h, slope in enumerate(slopes(4).tolist()):
        assert bias.whole[0, h].tolist() == [[-slope * abs(i - j) for j in range(3)] for i in range(3)]
        assert bias.whole[1, h, 2, 1] == -slope


def test_t5_buckets_values() -> None:
    def of(relative: int, both_ways: bool) -> int:
        return int(bucket(torch.tensor(relative), 32, 128, both_ways=both_ways))

    assert [of(r, True) for r in (-20, -1, 1, 20, 200)] == [10, 1, 17, 26, 31]
    assert [of(r, False) for r in (-20, -16, -200, 1, 99)] == [17, 16, 31, 0, 0]


@pytest.mark.parametrize("both_ways", [True, False])
@pytest.mark.parametrize(("buckets", "far"), [(32, 128), (8, 20), (16, 64)])
def test_t5_buckets_are_monotone_and_complete(both_ways: bool, buckets: int, far: int) -> None:
    past = bucket(-torch.arange(4 * far), buckets, far, both_ways=both_ways)
    assert bool((past.diff() >= 0).all())
    half = buckets // 2 if both_ways else buckets
    assert sorted(set(past.tolist())) == list(range(half))
    assert int(past[far]) == half - 1
    ahead = bucket(torch.arange(1, 4 * far), buckets, far, both_ways=both_ways)
    assert bool((ahead >= half).all()) if both_ways else bool((ahead == 0).all())


def test_llama3_frequencies() -> None:
    plain = inverse_frequencies(5e5, 128)
    scaled = Llama3Scaling(8.0, 1.0, 4.0, 8192).frequencies(5e5, 128, torch.tensor([0]))
    assert torch.equal(scaled[:29], plain[:29])
    assert scaled[29].item() == pytest.approx(2.16657e-3, rel=1e-5)
    assert scaled[34].item() == pytest.approx(1.78508e-4, rel=1e-5)
    assert scaled[35].item() == pytest.approx(9.55621e-5, rel=1e-5)
    assert torch.allclose(scaled[36:], plain[36:] / 8)


def test_linear_and_yarn_frequencies() -> None:
    plain = inverse_frequencies(1e4, 64)
    none = torch.tensor([0])
    assert torch.equal(LinearScaling(4.0).frequencies(1e4, 64, none), plain / 4)
    yarn = Yarn(factor=8.0, original_length=4096)
    scaled = yarn.frequencies(1e4, 64, none)
    turns = 4096 * plain / (2 * math.pi)
    assert torch.allclose(scaled[turns > 40], plain[turns > 40])
    assert torch.allclose(scaled[turns < 0.8], plain[turns < 0.8] / 8)
    assert bool((scaled <= plain).all()) and bool((scaled >= plain / 8 * (1 - 1e-12)).all())
    assert yarn.attention == pytest.approx(0.1 * math.log(8) + 1)
    assert Yarn(factor=8.0, original_length=4096, attention_factor=0.5).attention == 0.5


def test_dynamic_ntk_frequencies() -> None:
    scaling = DynamicNTK(factor=2.0, original_length=16)
    inside, beyond = scaling.frequencies(1e4, 8, torch.tensor([5, 40]))
    assert torch.equal(inside, inverse_frequencies(1e4, 8))
    base = 1e4 * (2.0 * 40 / 16 - 1.0) ** (8 / 6)
    assert torch.allclose(beyond, inverse_frequencies(base, 8))


@torch.no_grad()
def test_dynamic_ntk_refuses_a_cache_whose_length_was_not_stated() -> None:
    net = model(Rope(scaling=DynamicNTK(factor=2.0, original_length=8)))
    ids = torch.arange(12)[None]
    cache = DenseCache()
    net(ids[:, :6], cache=cache)
    with pytest.raises(ConfigError, match="final length"):
        net(ids[:, 6:], cache=cache)
    # within the original length nothing is scaled, so nothing has to be stated
    cache = DenseCache()
    net(ids[:, :3], cache=cache)
    net(ids[:, 3:8], cache=cache)


@pytest.mark.parametrize("fraction", [1.0, 0.5])
@torch.no_grad()
def test_rope_layouts_are_a_permutation_apart(fraction: float) -> None:
    """Case 7: the same weights with rows permuted (biases too) agree; the wrong layout does not."""
    halves, pairs = model(Rope(fraction=fraction)), model(Rope(fraction=fraction, interleaved=True))
    for parameter in halves.parameters():
        parameter.normal_(0.0, 0.3)
    rotated = int(8 * fraction)
    within = [i // 2 + (i % 2) * (rotated // 2) for i in range(rotated)] + list(range(rotated, 8))
    rows = torch.tensor([head * 8 + i for head in range(4) for i in within])
    state = halves.state_dict()
    ids = torch.arange(20)[None]
    pairs.load_state_dict(state)
    assert (pairs(ids) - halves(ids)).abs().max() > 1e-2
    for name in state:
        if ".query." in name or ".key." in name:
            state[name] = state[name][rows]
    pairs.load_state_dict(state)
    assert (pairs(ids) - halves(ids)).abs().max() <= 1e-5


@pytest.mark.parametrize(
    "positions",
    [Rope(), Rope(interleaved=True), Rope(scaling=LinearScaling(2.0)), Alibi(), T5Buckets(), TransformerXL()],
    ids=str,
)
@torch.no_grad()
def test_relative_schemes_do_not_change_under_a_shift(positions: Position) -> None:
    net = model(positions).double()
    ids = torch.arange(15)[None]
    here, there = net(ids), net(ids, tags=Tags.of(torch.arange(1000, 1015)[None]))
    assert (here - there).abs().max() <= 1e-9


def test_rope_keeps_its_precision_in_bfloat16_models() -> None:
    scheme = model(Rope()).bfloat16().towers["decoder"].stack.positions
    tags = Tags.dense(1, 1, start=5000)
    cos, _ = scheme.geometry(tags, tags, tags, torch.float64).of_query
    exact = torch.cos(5000 * inverse_frequencies(1e4, 8))
    assert (cos[0, 0, 0, :4] - exact).abs().max() < 1e-12


def test_rope_refuses_what_it_cannot_turn() -> None:
    with pytest.raises(ConfigError, match="even"):
        model(Rope(), d_model=20, heads=4)
    with pytest.raises(ConfigError, match="fraction"):
        Rope(fraction=0.0)


@torch.no_grad()
def test_transformer_xl_score_formula() -> None:
    """(q+u)·k + (q+v)·W r_{i−j}, written out with loops."""
    torch.manual_seed(0)
    net = model(TransformerXL(), d_model=12, heads=3).double()
    relation = net.towers["decoder"].stack.layers[0].steps["self"].branches["self"].body.relation
    relation.u.normal_()
    relation.v.normal_()
    tags = Tags.dense(1, 5)
    geometry = net.towers["decoder"].stack.positions.geometry(tags, tags, tags, torch.float64)
    query, key = torch.randn(1, 3, 5, 4).double(), torch.randn(1, 3, 5, 4).double()
    shifted, bias = relation(query, geometry, 0.5)
    scores = shifted @ key.transpose(-1, -2) * 0.5 + bias.whole
    for h in range(3):
        for i in range(5):
            for j in range(5):
                inv = [1 / 10000 ** (2 * t / 12) for t in range(6)]
                waves = [math.sin((i - j) * f) for f in inv] + [math.cos((i - j) * f) for f in inv]
                r = torch.tensor(waves, dtype=torch.float64)
                relative = (relation.project.weight @ r).view(3, 4)[h]
                q = query[0, h, i]
                expected = ((q + relation.u[h]) @ key[0, h, j] + (q + relation.v[h]) @ relative) * 0.5
                assert float(scores[0, h, i, j]) == pytest.approx(float(expected), abs=1e-9)


@pytest.mark.parametrize("positions", [TransformerXL(), Alibi(), Rope(), T5Buckets(), NoPosition()], ids=str)
@pytest.mark.parametrize("segments", [(7, 7, 6), (1, 3, 16), (10, 10)])
@torch.no_grad()
def test_a_memory_as_long_as_the_past_equals_one_pass(positions: Position, segments: tuple[int, ...]) -> None:
    net = model(positions)
    ids = torch.arange(20)[None].repeat(2, 1)
    whole = net(ids)
    memory, outs, done = SegmentMemory(limit=20), [], 0
    for size in segments:
        outs.append(net(ids[:, done : done + size], memory=memory))
        done += size
    assert (torch.cat(outs, 1) - whole).abs().max() <= 1e-5


def test_a_shorter_memory_reaches_as_far_as_layers_times_memory() -> None:
    """Dai et al. 2019, §3.2: dependency grows with layers; gradients stop at the segment's border."""
    net = model(TransformerXL(), layers=2)
    ids = torch.arange(12)[None]

    def run(tokens: torch.Tensor) -> torch.Tensor:
        memory = SegmentMemory(limit=2)
        for start in range(0, 12, 2):
            out = net(tokens[:, start : start + 2], memory=memory)
        return out

    with torch.no_grad():
        base = run(ids)
        for j in range(10):
            changed = ids.clone()
            changed[0, j] = 30
            moved = float((run(changed) - base).abs().max())
            assert (moved > 1e-6) == (j >= 6), f"token {j} moved the output by {moved}"
    net.zero_grad()
    run(ids)[0, -1].sum().backward()
    assert net.token.weight.grad is not None
    reached = net.token.weight.grad.abs().sum(-1) > 0
    assert reached.nonzero().flatten().tolist() == [10, 11]


@torch.no_grad()
def test_a_memory_goes_on_after_padding_and_forgotten_tokens() -> None:
    """Positions follow the last real token of each row, also where it is no longer, or never was, remembered."""
    net = model(Rope())
    first = Tags.padded(torch.tensor([[True, True, True, False, False], [True] * 5]))
    for limit in (0, 2, 5):
        memory = SegmentMemory(limit)
        net(torch.zeros(2, 5, dtype=torch.long), tags=first, memory=memory)
        assert memory.next_position.tolist() == [[3], [5]]
        net(torch.zeros(2, 1, dtype=torch.long), tags=Tags.padded(torch.zeros(2, 1, dtype=torch.bool)), memory=memory)
        assert memory.next_position.tolist() == [[3], [5]]
    with pytest.raises(ConfigError, match="at least 0"):
        SegmentMemory(-1)


@torch.no_grad()
def test_packed_rows_say_themselves_how_they_go_on() -> None:
    net, cache = model(Rope()), DenseCache()
    tags = Tags.of(torch.tensor([[0, 1, 2, 0, 1]]), segment=torch.tensor([[0, 0, 0, 1, 1]]))
    net(torch.zeros(1, 5, dtype=torch.long), tags=tags, cache=cache)
    with pytest.raises(MaskError, match="no single next position"):
        net(torch.zeros(1, 1, dtype=torch.long), cache=cache)
    net(
        torch.zeros(1, 1, dtype=torch.long),
        tags=Tags.of(torch.tensor([[2]]), segment=torch.tensor([[1]])),
        cache=cache,
    )


def test_encoder_and_decoder_use_their_own_bucket_directions() -> None:
    decoder = model(T5Buckets())
    config = decoder.config
    assert config.decoder is not None
    encoder = Transformer(replace(config, encoder=replace(config.decoder, visibility=Full()), decoder=None))
    assert encoder.towers["encoder"].stack.positions.both_ways
    assert not decoder.towers["decoder"].stack.positions.both_ways
    assert isinstance(config.decoder.visibility, Causal)


@torch.no_grad()
def test_a_repeated_block_adds_to_what_its_inner_scheme_adds() -> None:
    tags = Tags.dense(1, 9)
    scheme = RepeatedBlock(size=2, times=3, above=4, inner=Alibi())
    repeated, inner = (
        one.build(Dims(8, 8, 2, 4, 16, looks_ahead=True)).geometry(tags, tags, tags, torch.float64).bias
        for one in (scheme, Alibi())
    )
    assert repeated is not None and inner is not None
    more = torch.zeros(9, 9, dtype=torch.float64)
    more[2:8, :2] = math.log(4)  # the first and the last block draw no others
    assert torch.allclose(repeated.whole, inner.whole + more)
