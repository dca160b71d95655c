"""Properties that every model must have, over position schemes × visibility × heads × placement × blocks × towers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from transpect.cache import DenseCache
from transpect.core import (
    AttentionConfig,
    BlockSparse,
    BranchEnd,
    Causal,
    CausalLM,
    Context,
    EmbeddingConfig,
    Enter,
    Factor,
    Flash,
    Full,
    Glu,
    Kernel,
    LayerNorm,
    Mlp,
    ModelConfig,
    Naive,
    OtherLayers,
    Post,
    Pre,
    PrefixLM,
    QkNorm,
    RMSNorm,
    SameSegment,
    Sandwich,
    Sdpa,
    StackConfig,
    Tags,
    Transformer,
    Window,
)
from transpect.core.positions import (
    Alibi,
    DynamicNTK,
    Kerple,
    Learned,
    LinearScaling,
    Llama3Scaling,
    LongRope,
    NoPosition,
    Position,
    RepeatedBlock,
    Rope,
    Sinusoidal,
    T5Buckets,
    TransformerXL,
    Yarn,
)

Change = Callable[[StackConfig], StackConfig]

TOLERANCE = 1e-5
VOCAB = 23
LENGTH = 11

POSITIONS: dict[str, Position] = {
    "none": NoPosition(),
    "sinusoidal": Sinusoidal(),
    "sinusoidal-halves": Sinusoidal(halves=True),
    "sinusoidal-spread": Sinusoidal(halves=True, spread=True, offset=2),
    "learned": Learned(),
    "rope": Rope(),
    "rope-interleaved": Rope(interleaved=True),
    "rope-partial": Rope(fraction=0.5),
    "rope-linear": Rope(scaling=LinearScaling(factor=2.0)),
    "rope-dynamic": Rope(scaling=DynamicNTK(factor=2.0, original_length=6)),
    "rope-yarn": Rope(scaling=Yarn(factor=4.0, original_length=8)),
    "rope-llama3": Rope(scaling=Llama3Scaling(original_length=16)),
    "rope-longrope": Rope(
        scaling=LongRope(short=(1.0, 1.1, 1.5, 2.0), long=(1.0, 3.0, 4.0, 9.0), original_length=6, factor=2.0)
    ),
    "alibi": Alibi(),
    "alibi-far": Alibi(bias_max=16.0),
    "kerple": Kerple(),
    "t5": T5Buckets(buckets=8, max_distance=6),
    "transformer-xl": TransformerXL(),
    "repeated-block": RepeatedBlock(size=2, times=2, above=4, inner=Learned()),
}
PLACEMENTS = {"post": Post(), "pre": Pre(), "sandwich": Sandwich(), "branch-end": BranchEnd(), "enter": Enter()}
HEADS = {"mha": (6, 6), "gqa": (6, 2), "mqa": (6, 1)}
# the kernel of a case goes with its heads, so that each meets every scheme and every rule
KERNELS: dict[str, Kernel] = {"mha": Sdpa(), "gqa": BlockSparse(block=4), "mqa": Flash(block=3, fused=False)}
BLOCKS = ("sequential", "parallel", "shared")
VISIBILITY = {
    "causal": Causal(),
    "window": Window(4),
    "packed": Causal() & SameSegment(),
    "union": Window(3) | Causal(),
    "prefix": PrefixLM(),
    "encoder": Full(),
    "encoder-window": Window(3, both_ways=True),
    "encoder-decoder": Causal(),
}


def others(**changes: object) -> Change:
    """Every second layer is another one."""
    return lambda stack: replace(stack, others=(OtherLayers(at=(1,), **changes),))


def attention(**changes: object) -> Change:
    return lambda stack: replace(stack, attention=replace(stack.attention, **changes))


# what a stack can be besides the axes of the grid
EXTRAS: dict[str, Change] = {
    "plain": lambda stack: stack,
    "other-window": lambda stack: replace(
        stack, others=(OtherLayers(at=(1,), visibility=stack.visibility & Window(3, both_ways=True)),)
    ),
    "other-theta": others(positions=Rope(theta=100.0)),
    "other-none": others(positions=NoPosition()),
    "other-ffn": others(ffn=Mlp(d_ff=12, act="relu")),
    "other-heads": others(attention=AttentionConfig(n_heads=3, n_kv_heads=1, head_dim=4), positions=Alibi()),
    "shared-weights": lambda stack: replace(stack, n_layers=4, n_unique=2),
    "no-first-norm": lambda stack: replace(stack, first_norm=not (stack.placement.before or stack.placement.enter)),
    "norm-of-all-heads": attention(qk_norm=QkNorm(RMSNorm(), over="all_heads")),
    "norm-of-each-head": attention(qk_norm=QkNorm(LayerNorm(bias=False), over="each_head")),
    "clipped": attention(clip=0.4),
}
FACTORS = {"plain": None, "early": Factor(10, bias=False, early=True), "late": Factor(10)}


@dataclass(frozen=True)
class Case:
    positions: str
    visibility: str
    heads: str
    placement: str
    blocks: str
    extra: str = "plain"
    factor: str = "plain"

    def __str__(self) -> str:
        return "_".join(
            (self.positions, self.visibility, self.heads, self.placement, self.blocks, self.extra, self.factor)
        )

    @property
    def ahead(self) -> bool:
        return self.visibility.startswith("encoder") and self.visibility != "encoder-decoder"


def grid() -> list[Case]:
    """Every scheme with every rule and head layout, and with every placement and block; the other axes take turns."""
    placements, blocks, heads = itertools.cycle(PLACEMENTS), itertools.cycle(BLOCKS), itertools.cycle(HEADS)
    rules = itertools.cycle(VISIBILITY)
    first = [
        Case(p, v, h, next(placements), next(blocks)) for p, v, h in itertools.product(POSITIONS, VISIBILITY, HEADS)
    ]
    second = [
        Case(p, next(rules), next(heads), place, block)
        for p, place, block in itertools.product(POSITIONS, PLACEMENTS, BLOCKS)
    ]
    turns = zip(itertools.cycle(POSITIONS), itertools.cycle(FACTORS), rules, strict=False)
    third = [
        Case(positions, rule, next(heads), next(placements), next(blocks), extra, factor)
        for extra, (positions, factor, rule) in zip(
            [name for name in EXTRAS for _ in range(len(VISIBILITY))], turns, strict=False
        )
    ]
    return list(dict.fromkeys(first + second + third))


def config(case: Case) -> ModelConfig:
    n_heads, kv_heads = HEADS[case.heads]
    placement = PLACEMENTS[case.placement]
    glu = case.heads == "gqa"
    first = "self", "ffn"
    steps = (first,) if case.blocks != "sequential" else (("self",), ("ffn",))
    stack = StackConfig(
        n_layers=2,
        attention=AttentionConfig(
            n_heads=n_heads,
            n_kv_heads=kv_heads,
            head_dim=8,
            qk_norm=QkNorm(RMSNorm()) if case.heads == "mqa" else None,
            dropout=0.3,
        ),
        ffn=Glu(d_ff=20) if glu else Mlp(d_ff=20),
        steps=steps,
        shared_norm=case.blocks == "shared" and case.placement != "post" and placement.before,
        placement=placement,
        norm=RMSNorm(unit_offset=True) if glu else LayerNorm(),
        positions=POSITIONS[case.positions],
        visibility=VISIBILITY[case.visibility],
        dropout=0.3,
    )
    stack = EXTRAS[case.extra](stack)
    base = ModelConfig(
        vocab_size=VOCAB,
        d_model=18,
        context_length=64,
        embedding=EmbeddingConfig(scaled=glu, dropout=0.3, factor=FACTORS[case.factor]),
        decoder=stack,
        head=CausalLM(tied=case.heads != "mqa"),
    )
    if case.visibility == "encoder-decoder":
        encoder = stack.map_visibility(lambda rule: Full())
        return replace(
            base, encoder=encoder, decoder=replace(stack, steps=(("self",), ("cross",), ("ffn",)), shared_norm=False)
        )
    if case.ahead:
        return replace(base, encoder=stack, decoder=None)
    return base


class Model:
    """A model with every parameter drawn at random, and what it needs besides ids."""

    def __init__(self, case: Case, kernel: Kernel | None = None, dtype: torch.dtype = torch.float32) -> None:
        self.case = case
        self.net = Transformer(config(case).with_kernel(kernel or KERNELS[case.heads])).eval().to(dtype)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in self.net.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
        self.encodes = case.visibility == "encoder-decoder"

    def tags(self, position: Tensor, horizon: Tensor | None = None) -> Tags:
        segment = (position >= 5).long() if self.case.visibility == "packed" else None
        prefix = (position >= 0) & (position < 4) if self.case.visibility == "prefix" else None
        return Tags.of(position, segment=segment, prefix=prefix, horizon=horizon)

    def __call__(self, ids: Tensor, position: Tensor, horizon: int | None = None, **kwargs: object) -> Tensor:
        if self.encodes:
            kwargs.setdefault("source", self.net.encode(source_ids(ids.shape[0])))
        stated = None if horizon is None else torch.full((ids.shape[0],), horizon)
        return self.net(ids, tags=self.tags(position, stated), **kwargs)


def source_ids(rows: int, length: int = 7) -> Tensor:
    return (torch.arange(length) * 5 % VOCAB).expand(rows, length)


def tokens(rows: int, seed: int = 0, length: int = LENGTH) -> Tensor:
    return torch.randint(0, VOCAB, (rows, length), generator=torch.Generator().manual_seed(seed))


def count(rows: int, length: int = LENGTH) -> Tensor:
    return torch.arange(length).expand(rows, length)


def gap(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


GRID = grid()


@pytest.mark.parametrize("case", GRID, ids=str)
@torch.no_grad()
def test_properties(case: Case) -> None:
    model = Model(case)
    ids, position = tokens(2), count(2)
    full = model(ids, position)
    assert full.isfinite().all()

    padding_is_invisible(model, ids, position, full)
    batched_equals_single(model, ids, position, full)
    kernels_agree(case, ids, position, full)
    if not case.ahead:
        nothing_leaks_back(model, ids, position, full)
        cached_equals_full(model, ids, position, full)


def test_every_scheme_has_a_row() -> None:
    assert {positions.kind for positions in POSITIONS.values()} == set(Position.kinds())


def padding_is_invisible(model: Model, ids: Tensor, position: Tensor, full: Tensor) -> None:
    for left, right in ((1, 0), (3, 2), (0, 8)):
        padded = torch.nn.functional.pad(ids, (left, right), value=1)
        where = torch.nn.functional.pad(position, (left, right), value=-1)
        out = model(padded, where)
        assert out.isfinite().all()
        assert gap(out[:, left : left + LENGTH], full) <= TOLERANCE


def batched_equals_single(model: Model, ids: Tensor, position: Tensor, full: Tensor) -> None:
    short = 6
    alone = model(ids[1:, :short], position[1:, :short])
    ragged_ids, ragged = ids.clone(), position.clone()
    ragged_ids[1, short:], ragged[1, short:] = 1, -1
    together = model(ragged_ids, ragged)
    assert gap(together[:1], full[:1]) <= TOLERANCE
    assert gap(together[1:, :short], alone) <= TOLERANCE
    packed = model(ragged_ids, ragged, packed=True)
    assert gap(packed[:1], full[:1]) <= TOLERANCE
    assert gap(packed[1:, :short], alone) <= TOLERANCE


def kernels_agree(case: Case, ids: Tensor, position: Tensor, full: Tensor) -> None:
    exact = Model(case, Naive(), torch.float64)(ids, position)
    assert gap(exact, full.double()) <= TOLERANCE * max(1.0, float(exact.abs().max()))
    assert gap(exact, Model(case, KERNELS[case.heads], torch.float64)(ids, position)) <= 1e-12


def nothing_leaks_back(model: Model, ids: Tensor, position: Tensor, full: Tensor) -> None:
    start = 4 if model.case.visibility == "prefix" else 0
    for j in range(start + 1, LENGTH):
        changed = ids.clone()
        changed[:, j] = (changed[:, j] + 1) % VOCAB
        out = model(changed, position)
        assert gap(out[:, :j], full[:, :j]) <= 1e-6
        assert gap(out[:, j], full[:, j]) > 1e-5


def cached_equals_full(model: Model, ids: Tensor, position: Tensor, full: Tensor) -> None:
    # a prefix that sees itself both ways must be whole before anything is computed from it
    first = (4,) if model.case.visibility == "prefix" else (1, 3)
    for chunks in ((*first, 5), (*first, *(1,) * 7), (LENGTH - 1, 1)):
        cache, done, outs = DenseCache(), 0, []
        source = {"source": model.net.encode(source_ids(2))} if model.encodes else {}
        for size in (*chunks, LENGTH - sum(chunks)):
            if size:
                part = slice(done, done + size)
                outs.append(model(ids[:, part], position[:, part], LENGTH, cache=cache, **source))
                done += size
        assert gap(torch.cat(outs, 1), full) <= TOLERANCE


@pytest.mark.parametrize("pads", [(0, 3), (2, 0), (1, 4)])
@pytest.mark.parametrize("positions", POSITIONS)
@torch.no_grad()
def test_cached_ragged_rows_equal_single(positions: str, pads: tuple[int, int]) -> None:
    """Rows of different lengths, padded on either side, share a cache and go on; each equals itself alone."""
    model = Model(Case(positions, "causal", "gqa", "pre", "sequential"))
    ids, more = tokens(2), 3
    lengths = [LENGTH - more - pad for pad in pads]
    width = LENGTH - more
    for left in (True, False):
        prompt, where = torch.ones(2, width, dtype=torch.long), torch.full((2, width), -1)
        for row, length in enumerate(lengths):
            place = slice(width - length, width) if left else slice(0, length)
            prompt[row, place], where[row, place] = ids[row, :length], torch.arange(length)
        horizon = torch.tensor(lengths) + more
        cache = DenseCache()
        model.net(prompt, tags=Tags.of(where, horizon=horizon), cache=cache)
        for step in range(more):
            at = torch.tensor(lengths)[:, None] + step
            out = model.net(ids.gather(1, at), tags=Tags.of(at, horizon=horizon), cache=cache)
            for row, length in enumerate(lengths):
                end = length + step + 1
                tags = Tags.of(count(1, end), horizon=horizon[row : row + 1])
                alone = model.net(ids[row : row + 1, :end], tags=tags)
                assert gap(out[row, -1], alone[0, -1]) <= TOLERANCE


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("blocks", BLOCKS)
def test_gradient_to_the_future_is_exactly_zero(positions: str, placement: str, blocks: str) -> None:
    """Trap 1: heads split by a wrong reshape keep their shapes and leak; ∂out[i]/∂x[j] must be 0 for j > i."""
    model = Model(Case(positions, "causal", "mha", placement, blocks))
    ids = tokens(1, length=6)
    for i in range(6):
        model.net.zero_grad()
        embedded = model.net.token(ids).detach().requires_grad_()
        hidden = model.net.towers["decoder"](embedded, Context(Tags.dense(1, 6)), None)
        hidden[0, i].square().sum().backward()
        assert embedded.grad is not None
        reach = embedded.grad[0].abs().sum(-1)
        assert (reach[i + 1 :] == 0).all()
        # a single token under a final norm of two equal numbers could be flat, but not all of the past
        assert reach[: i + 1].sum() > 0


@pytest.mark.parametrize("positions", POSITIONS)
@torch.no_grad()
def test_dropout_is_off_in_eval(positions: str) -> None:
    """Case 4: two eval runs equal a dropout-free twin bit for bit, and the random state does not advance."""
    case = Case(positions, "causal", "gqa", "pre", "sequential")
    model = Model(case)
    ids, position = tokens(2), count(2)
    before = torch.get_rng_state()
    first, second = model(ids, position), model(ids, position)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, second)

    cfg = model.net.config
    dry = replace(
        cfg,
        embedding=replace(cfg.embedding, dropout=0.0),
        decoder=replace(cfg.decoder, dropout=0.0, attention=replace(cfg.decoder.attention, dropout=0.0)),
    )
    twin = Transformer(dry).eval()
    twin.load_state_dict(model.net.state_dict())
    assert torch.equal(twin(ids, tags=model.tags(position)), first)
    model.net.train()
    assert gap(model(ids, position), first) > 1e-3
