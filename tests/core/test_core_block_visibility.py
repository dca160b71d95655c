"""Rules in blocks, global tokens, and a first block that counts several times."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from transpect.base.codec import from_data, to_data
from transpect.base.errors import ConfigError
from transpect.cache import DenseCache
from transpect.core import (
    AttentionConfig,
    Blocks,
    Causal,
    EdgeBlocks,
    Full,
    GlobalTokens,
    ModelConfig,
    Naive,
    NormalInit,
    RandomBlocks,
    Sdpa,
    StackConfig,
    Tags,
    Transformer,
    UpTo,
    Visibility,
    Window,
)
from transpect.core.positions import Alibi, Learned, NoPosition, Position, RepeatedBlock, Rope, TransformerXL
from transpect.core.view import View

RULES = [
    UpTo(9),
    Blocks(3),
    Blocks(1, reach=0),
    Blocks(2, reach=2),
    EdgeBlocks(2),
    RandomBlocks(2, n=1, seed=3),
    RandomBlocks(3, n=2, seed=0, reach=0),
    Blocks(2) | EdgeBlocks(2) | RandomBlocks(2, n=2, seed=1),
    UpTo(9) | Blocks(2) | EdgeBlocks(2),
    Causal() & (Blocks(2) | RandomBlocks(2, n=1, seed=0)),
    GlobalTokens(),
    Window(2, both_ways=True) | GlobalTokens(),
    Causal() & (Window(2) | GlobalTokens()),
]


def test_drawings() -> None:
    assert Blocks(2, reach=0).draw(3) == "■ ■ ·\n■ ■ ·\n· · ■"
    assert Blocks(1).draw(4) == "■ ■ · ·\n■ ■ ■ ·\n· ■ ■ ■\n· · ■ ■"
    assert EdgeBlocks(1).draw(4) == "■ ■ ■ ■\n■ · · ■\n■ · · ■\n■ ■ ■ ■"
    assert UpTo(2).draw(2) == "■ ■\n■ ■"
    assert UpTo(1).draw(2) == "· ·\n· ·"
    marked = Tags.of(torch.arange(4)[None], is_global=torch.tensor([[False, True, False, False]]))
    assert GlobalTokens().draw(marked) == "· ■ · ·\n■ ■ ■ ■\n· ■ · ·\n· ■ · ·"
    assert (Window(1) | GlobalTokens()).draw(marked) == "■ ■ · ·\n■ ■ ■ ■\n· ■ ■ ·\n· ■ · ■"


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_rules_survive_a_round_trip(rule: Visibility) -> None:
    assert from_data(Visibility, to_data(rule)) == rule


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("length", [1, 2, 7, 16])
def test_a_mask_is_that_of_its_rows_alone_wherever_padding_stands(rule: Visibility, length: int) -> None:
    longer = 23
    is_global = torch.arange(longer) % 5 == 1
    alone = rule.mask(*2 * [Tags.of(torch.arange(length)[None], is_global=is_global[None, :length])])
    for left in (0, 3, longer - length):
        real = torch.zeros(2, longer, dtype=torch.bool)
        real[0] = True
        real[1, left : left + length] = True
        marks = torch.stack([is_global, torch.roll(is_global, left)])
        mask = rule.mask(*2 * [Tags.padded(real, is_global=marks)])[1]
        assert torch.equal(mask[left : left + length, left : left + length], alone[0])
        assert mask.sum() == alone.sum()


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("chunks", [(5, 1, 7), (1,) * 13])
def test_chunks_of_queries_see_what_all_together_see(rule: Visibility, chunks: tuple[int, ...]) -> None:
    length = sum(chunks)
    tags = Tags.of(torch.arange(length)[None], is_global=torch.arange(length)[None] % 4 == 2)
    done, parts = 0, []
    for size in chunks:
        parts.append(rule.mask(tags.columns(slice(done, done + size)), tags))
        done += size
    assert torch.equal(torch.cat(parts, 1), rule.mask(tags, tags))


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_shortcuts_agree_with_the_mask(rule: Visibility) -> None:
    for length in (1, 4, 9, 12):
        tags = Tags.dense(2, length)
        view = View(rule, tags, tags)
        assert not view.everything or bool(view.mask.all())
        assert not view.triangle or torch.equal(view.mask[0, 0], torch.ones(length, length).tril().bool())


@pytest.mark.parametrize(
    ("rule", "ahead"),
    [
        (Blocks(64), True),
        (Blocks(64, reach=0), True),
        (Blocks(1, reach=0), False),
        (EdgeBlocks(64), True),
        (RandomBlocks(64, n=1, seed=0), True),
        (RandomBlocks(1000, n=3, seed=5, reach=4), True),
        (Window(2) | RandomBlocks(64, n=1, seed=0), True),
        (Causal() & (Blocks(64) | RandomBlocks(64, n=1, seed=0)), False),
        (Causal() & (Window(2) | GlobalTokens()), False),
        (UpTo(1), False),
        (UpTo(2), True),
        (UpTo(100), True),
        (UpTo(3) & Blocks(64), True),
        (UpTo(100) & (Blocks(64) | RandomBlocks(64, n=1, seed=0)), True),
        (UpTo(1) & Blocks(64), False),
    ],
    ids=str,
)
def test_looking_ahead(rule: Visibility, ahead: bool) -> None:
    assert rule.looks_ahead(prefix=False) == ahead


@pytest.mark.parametrize(("size", "n", "reach"), list(itertools.product((1, 3), (1, 2, 4), (0, 1, 2))))
@pytest.mark.parametrize("length", [2, 20, 41])
def test_each_block_draws_n_blocks_that_it_does_not_see_anyway(size: int, n: int, reach: int, length: int) -> None:
    n_blocks = math.ceil(length / size)
    tags = Tags.dense(1, length)
    mask = RandomBlocks(size, n, seed=1, reach=reach).mask(tags, tags)[0]
    assert not (mask & (Blocks(size, reach) | EdgeBlocks(size)).mask(tags, tags)[0])[size : (n_blocks - 1) * size].any()
    for b in range(n_blocks):
        candidates = [c for c in range(1, n_blocks - 1) if abs(b - c) > reach]
        seen = {int(j) // size for j in mask[b * size].nonzero()}
        assert seen <= set(candidates)
        assert len(seen) == min(n, len(candidates))
        rows = mask[b * size : (b + 1) * size]
        assert bool((rows == rows[:1]).all())


def test_a_seed_decides_the_draw_and_blocks_are_drawn_evenly() -> None:
    def mask(seed: int) -> Tensor:
        tags = Tags.dense(1, 64)
        return RandomBlocks(1, 2, seed).mask(tags, tags)[0]

    assert torch.equal(mask(7), mask(7))
    assert len({mask(seed).numpy().tobytes() for seed in range(20)}) == 20
    counts = torch.stack([mask(seed).sum(0) for seed in range(200)]).sum(0)[1:-1].float()
    assert counts.min() > 0.7 * counts.mean() and counts.max() < 1.3 * counts.mean()


def net(positions: Position, rule: Visibility, kernel: Naive | Sdpa) -> Transformer:
    stack = StackConfig(
        n_layers=2,
        attention=AttentionConfig(n_heads=2, kernel=kernel),
        visibility=rule,
        positions=positions,
    )
    config = ModelConfig(vocab_size=11, d_model=16, context_length=64, encoder=stack, init=NormalInit(std=0.5))
    return Transformer(config).eval()


@pytest.mark.parametrize("inner", [NoPosition(), Learned(), Rope()], ids=str)
@pytest.mark.parametrize("kernel", [Naive(), Sdpa()], ids=str)
@torch.no_grad()
def test_a_repeated_block_is_a_softmax_over_copies(inner: Position, kernel: Naive | Sdpa) -> None:
    """Keys of block 0 weigh (1 + times) as much, for queries between the edges of long sequences alone."""
    size, times, above = 3, 2, 9
    plain = net(inner, Full(), Naive())
    repeated = net(RepeatedBlock(size, times, above, inner), Full(), kernel)
    names = {name.replace("positions.inner.", "positions."): value for name, value in repeated.state_dict().items()}
    plain.load_state_dict(names)
    ids = torch.randint(0, 11, (1, 13), generator=torch.Generator().manual_seed(0))
    seen: dict[str, Tensor] = {}

    class Weights:
        def see(self, name: str, value: Tensor) -> None:
            seen[name] = value

    out = repeated(ids, tap=Weights())
    assert (repeated(ids[:, :9]) - plain(ids[:, :9])).abs().max() <= 1e-5
    assert (out - plain(ids)).abs().max() > 1e-3
    if kernel == Naive():
        mine = seen["encoder.0.self.attention_weights"]
        plain(ids, tap=Weights())
        expected = seen["encoder.0.self.attention_weights"].clone()
        expected[:, :, size:12, :size] *= 1 + times
        assert (mine - expected / expected.sum(-1, keepdim=True)).abs().max() <= 1e-6
    real = torch.tensor([[False] * 2 + [True] * 13 + [False] * 3])
    padded = torch.nn.functional.pad(ids, (2, 3))
    assert (repeated(padded, tags=Tags.padded(real))[:, 2:15] - out).abs().max() <= 1e-5


MODELS = {
    "encoder": UpTo(9) | Blocks(2) | EdgeBlocks(2) | RandomBlocks(2, n=2, seed=1),
    "decoder": Causal() & (Blocks(2) | RandomBlocks(2, n=1, seed=0)),
}


@pytest.mark.parametrize("tower", MODELS)
@pytest.mark.parametrize("positions", [Learned(), Rope(), Alibi(), TransformerXL()], ids=str)
@torch.no_grad()
def test_models_padded_batched_cached_and_computed_by_any_kernel(tower: str, positions: Position) -> None:
    length, lengths = 21, (21, 14, 6)
    stack = StackConfig(n_layers=2, attention=AttentionConfig(n_heads=3), visibility=MODELS[tower], positions=positions)
    config = ModelConfig(vocab_size=11, d_model=18, context_length=64, init=NormalInit(std=0.5), **{tower: stack})
    model = Transformer(config).eval().double()
    naive = Transformer(config.with_kernel(Naive())).eval().double()
    ids = torch.randint(0, 11, (3, length), generator=torch.Generator().manual_seed(0))
    alone = [model(ids[row : row + 1, :n])[0] for row, n in enumerate(lengths)]
    for left in (True, False):
        column = torch.arange(length)
        real = torch.stack([column >= length - n if left else column < n for n in lengths])
        padded = torch.zeros_like(ids)
        for row, n in enumerate(lengths):
            padded[row, real[row]] = ids[row, :n]
        together = model(padded, tags=Tags.padded(real))
        assert together.isfinite().all()
        for row, expected in enumerate(alone):
            assert (together[row, real[row]] - expected).abs().max() <= 1e-10
        assert (naive(padded, tags=Tags.padded(real)) - together).abs().max() <= 1e-10
    if tower == "decoder":
        horizon = torch.full((3,), length)  # how many blocks there are to draw from depends on it
        full = model(ids)
        for chunks in ((1, 7, 13), (1,) * length):
            cache, done, outs = DenseCache(), 0, []
            for size in chunks:
                tags = Tags.of(torch.arange(done, done + size).expand(3, -1), horizon=horizon)
                outs.append(model(ids[:, done : done + size], tags=tags, cache=cache))
                done += size
            assert (torch.cat(outs, 1) - full).abs().max() <= 1e-10


def test_what_cannot_be_is_refused() -> None:
    for wrong in (
        lambda: Blocks(0),
        lambda: Blocks(2, reach=-1),
        lambda: EdgeBlocks(0),
        lambda: RandomBlocks(2, n=0, seed=0),
        lambda: UpTo(0),
        lambda: RepeatedBlock(2, times=0, above=4),
        lambda: net(RepeatedBlock(2, 1, 4, TransformerXL()), Full(), Naive()),
    ):
        with pytest.raises(ConfigError):
            wrong()
