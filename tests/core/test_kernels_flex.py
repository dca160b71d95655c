"""FlexAttention against the definition: as torch defines it over a grid, compiled on a few cases; its lists of blocks;
and all that it refuses."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from transpect.base.codec import from_data, to_data
from transpect.base.errors import ConfigError
from transpect.core import (
    AttentionConfig,
    Blocks,
    Causal,
    CausalLM,
    EdgeBlocks,
    Flex,
    FromGlobal,
    Full,
    GlobalTokens,
    Kernel,
    ModelConfig,
    Naive,
    PrefixLM,
    RandomBlocks,
    SameSegment,
    StackConfig,
    Summaries,
    Tags,
    Transformer,
    UpTo,
    Visibility,
    Window,
)
from transpect.core.bias import Bias
from transpect.core.kernels import Scoring
from transpect.core.kernels.flex import block_mask
from transpect.core.positions import (
    Alibi,
    NoPosition,
    Position,
    RepeatedBlock,
    Rope,
    T5Buckets,
    TransformerXL,
)
from transpect.core.positions.base import Dims, Geometry
from transpect.core.tags import Columns
from transpect.core.view import View

STEPS = Flex(block=4, compiled=False)
LENGTH, HEADS, KV_HEADS, WIDTH = 21, 6, 2, 8
CAP = 1.5

RULES: list[Visibility] = [
    Full(),
    Causal(),
    Window(5),
    Window(4, both_ways=True),
    Window(3, dilation=3),
    Window(2, both_ways=True, dilation=2),
    PrefixLM(),
    SameSegment(),
    GlobalTokens(),
    FromGlobal(),
    Causal() & SameSegment(),
    Window(3) | GlobalTokens(),
    UpTo(12),
    Blocks(3),
    EdgeBlocks(3),
    RandomBlocks(2, n=2, seed=1),
    UpTo(9) | Blocks(2) | EdgeBlocks(2) | RandomBlocks(2, n=1, seed=4),
    (Window(4) | RandomBlocks(3, n=1, seed=2, reach=0)) & (PrefixLM() & SameSegment()),
]
TIGHT = [
    rule
    for rule in RULES
    if isinstance(rule, Full | Causal | Window | UpTo | Blocks | EdgeBlocks | RandomBlocks | GlobalTokens | FromGlobal)
]
POSITIONS: dict[str, Position] = {
    "none": NoPosition(),
    "rope": Rope(),
    "alibi": Alibi(),
    "t5": T5Buckets(buckets=8, max_distance=12),
}


def padded(*lengths: int, left: bool) -> Tags:
    column, length = torch.arange(LENGTH), torch.tensor(lengths)[:, None]
    real = column >= LENGTH - length if left else column < length
    numbered = real.cumsum(-1)
    return Tags.padded(real, prefix=real & (numbered <= 5), is_global=real & (numbered % 7 == 2))


def packed() -> Tags:
    rows = [[6, 9, 3], [21], [2, 2, 2, 15]]
    position = torch.full((3, LENGTH), -1)
    segment = torch.zeros_like(position)
    for row, lengths in enumerate(rows):
        done = 0
        for document, length in enumerate(lengths):
            position[row, done : done + length] = torch.arange(length)
            segment[row, done : done + length] = document
            done += length
    return Tags.of(position, segment=segment, is_global=position == 0)


def prefixed() -> Tags:
    position = torch.arange(LENGTH).repeat(3, 1)
    return Tags.of(position, prefix=position < torch.tensor([[3], [0], [14]]))


def cached(tags: Tags, done: int) -> tuple[Tags, Tags]:
    return tags.columns(slice(done, None)), tags


STATES = {
    "dense": cached(Tags.dense(3, LENGTH), 0),
    "left": cached(padded(21, 13, 4, left=True), 0),
    "right": cached(padded(21, 0, 8, left=False), 0),
    "packed": cached(packed(), 0),
    "prefixes": cached(prefixed(), 0),
    "cached": cached(Tags.dense(3, LENGTH), 14),
    "cached, one token": cached(Tags.dense(3, LENGTH), LENGTH - 1),
    "cached, left": cached(padded(21, 13, 4, left=True), 15),
    "horizon ahead": cached(replace(Tags.dense(3, LENGTH), horizon=torch.tensor([31, 21, 40])), 3),
}


def tensors(query: Tags, key: Tags, dtype: torch.dtype, width: int = WIDTH, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(HEADS, query.shape[1]), (KV_HEADS, key.shape[1]), (KV_HEADS, key.shape[1])]
    return [torch.randn(query.shape[0], *shape, width, generator=generator).to(dtype) for shape in shapes]


def geometry_of(positions: Position, query: Tags, key: Tags, dtype: torch.dtype, *, ahead: bool) -> Geometry:
    module = positions.build(Dims(HEADS * WIDTH, HEADS * WIDTH, HEADS, WIDTH, 64, ahead)).to(dtype)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module.geometry(query, key, key, dtype)


def difference(
    rule: Visibility, state: tuple[Tags, Tags], positions: Position, dtype: torch.dtype, kernel: Flex, cap: float | None
) -> float:
    """How far the kernel is from the definition, which also says which queries see nothing: those are exactly 0."""
    query, key = state
    q, k, v = tensors(query, key, dtype, 16 if kernel.compiled else WIDTH)
    geometry = geometry_of(positions, query, key, dtype, ahead=rule.looks_ahead(prefix=True))
    if isinstance(positions, Rope):
        q, k = geometry.rotate_query(q), geometry.rotate_key(k)
    scoring = Scoring(0.3, cap, geometry.bias)
    found = kernel.attend(q, k, v, View(rule, query, key), scoring)
    view = View(rule, query, key)
    expected = Naive().attend(q, k, v, view, scoring)
    assert found.shape == expected.shape and found.dtype == dtype
    assert bool((found == 0).all(-1)[view.blind[..., 0].expand(found.shape[:-1])].all())
    return float((found - expected).abs().max())


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("rule", RULES, ids=str)
@torch.no_grad()
def test_every_rule_in_every_state_is_the_definition(rule: Visibility) -> None:
    """Each rule meets each state and each scheme of positions, each state each scheme; dtypes and cap take turns."""
    for number, state in enumerate(STATES, RULES.index(rule)):
        scheme = list(POSITIONS.values())[number % len(POSITIONS)]
        dtype = torch.float32 if number // 2 % 2 else torch.float64
        limit = 1e-5 if dtype == torch.float32 else 1e-12
        assert difference(rule, STATES[state], scheme, dtype, STEPS, None if number % 3 else CAP) <= limit, state


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("positions", POSITIONS)
@torch.no_grad()
def test_every_scheme_in_every_state_is_the_definition(positions: str, state: str) -> None:
    for rule, dtype, cap in ((Causal(), torch.float32, CAP), (Window(4, both_ways=True), torch.float64, None)):
        limit = 1e-5 if dtype == torch.float32 else 1e-12
        assert difference(rule, STATES[state], POSITIONS[positions], dtype, STEPS, cap) <= limit


def seen(mask: BlockMask, *, full: bool) -> Tensor:
    """[B, NQ, NK] bool: the blocks that are seen, or those that are listed as whole."""
    lists = [(mask.full_kv_num_blocks, mask.full_kv_indices)]
    if not full:
        lists.append((mask.kv_num_blocks, mask.kv_indices))
    found = torch.zeros(mask.kv_indices[:, 0].shape, dtype=torch.bool)
    for numbers, indices in lists:
        assert numbers is not None and indices is not None
        for row, i in itertools.product(range(found.shape[0]), range(found.shape[1])):
            listed = indices[row, 0, i, : int(numbers[row, 0, i])].long()
            assert listed.tolist() == sorted(set(listed.tolist()))
            assert not bool(found[row, i, listed].any())  # once at most
            found[row, i, listed] = True
    return found


@pytest.mark.parametrize("size", [1, 3, 4, 8, 32])
@pytest.mark.parametrize("state", STATES)
def test_the_lists_of_blocks_are_those_of_torch(state: str, size: int) -> None:
    """torch finds them by looking at the whole mask: what it lists, ours lists; what ours lists as whole, it does."""
    query, key = STATES[state]
    for rule in RULES:
        view = View(rule, query, key)
        ours = block_mask(view, size)
        theirs = create_block_mask(
            lambda b, h, i, j, view=view: view.mask[b, 0, i, j],
            query.shape[0],
            1,
            query.shape[1],
            key.shape[1],
            device="cpu",
            BLOCK_SIZE=size,
        )
        assert ours.shape[-2:] == theirs.shape[-2:] and ours.BLOCK_SIZE == theirs.BLOCK_SIZE
        assert not (seen(theirs, full=False) & ~seen(ours, full=False)).any(), rule
        assert not (seen(ours, full=True) & ~seen(theirs, full=True)).any(), rule
        if state in ("dense", "cached", "cached, one token") and rule in TIGHT:
            for full in (False, True):
                assert torch.equal(seen(ours, full=full).expand_as(seen(theirs, full=full)), seen(theirs, full=full))


@pytest.mark.parametrize("state", STATES)
def test_the_predicate_of_a_mask_is_the_rule(state: str) -> None:
    query, key = STATES[state]
    for rule in RULES:
        view = View(rule, query, key)
        shows = block_mask(view, 4).mask_mod
        row, i, j = (torch.arange(n) for n in view.mask[:, 0].shape)
        found = shows(row[:, None, None], torch.tensor(0), i[:, None], j)
        assert torch.equal(found.expand(view.mask[:, 0].shape), view.mask[:, 0]), rule


def test_a_mask_is_made_once_a_view_and_never_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = Tags.dense(2, 64)
    view = View(Window(5), tags, tags)
    made: list[object] = []
    monkeypatch.setattr("transpect.core.kernels.flex.flex_attention", lambda *a, **rest: (made.append(a[4]), a[0])[1])
    monkeypatch.setattr(Window, "sees", lambda *_: pytest.fail("a mask was made"))
    for _ in range(2):
        STEPS.attend(*(torch.randn(2, 1, 64, 8) for _ in range(3)), view, Scoring(1.0))
    assert made[0] is made[1]
    mask = block_mask(view, 4)
    assert mask.kv_indices.shape == (1, 1, 16, 16) and mask.kv_num_blocks[0, 0, 5:].unique().tolist() == [2]


@pytest.mark.parametrize("rule", [Window(5), Causal(), RandomBlocks(2, n=2, seed=1)], ids=str)
def test_tables_of_biases_are_the_biases(rule: Visibility) -> None:
    """Each distance at its place, padding and cached keys included; and a learned table gets its gradient."""
    for query, key in STATES.values():
        for name in ("alibi", "t5"):
            bias = geometry_of(POSITIONS[name], query, key, torch.float64, ahead=True).bias
            assert bias is not None
            low, high = bias.distances.reach  # type: ignore[attr-defined]
            table = bias.table  # type: ignore[attr-defined]
            assert table.shape == (high - low + 1, HEADS)
            distance = query.position.clamp(min=0)[:, :, None] - key.position.clamp(min=0)[:, None, :]
            assert low <= int(distance.min()) and int(distance.max()) <= high
            looked_up = table[distance - low].movedim(-1, 1)
            assert torch.equal(looked_up, bias.whole.expand_as(looked_up))
            if bias.inputs:
                through = [torch.autograd.grad(of.square().sum(), bias.inputs)[0] for of in (looked_up, bias.whole)]
                rows = looked_up.shape[0] // bias.whole.shape[0]
                assert (through[0] - rows * through[1]).abs().max() <= 1e-10


class Given(Bias):
    def tile(self, narrow: tuple[Tensor, ...], rows: slice, columns: Columns) -> Tensor:
        raise AssertionError("not asked")


def stack(**changes: object) -> StackConfig:
    attention = AttentionConfig(n_heads=2, **{"kernel": STEPS, **changes.pop("attention", {})})  # type: ignore[dict-item]
    return StackConfig(n_layers=1, attention=attention, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"positions": TransformerXL()}, r"`flex` adds to scores only.*for each query.*block_sparse"),
        ({"positions": RepeatedBlock(inner=Rope())}, r"`flex` adds to scores only.*for each block.*block_sparse"),
        (
            {"positions": T5Buckets(of_blocks=True), "summaries": Summaries(4), "visibility": Full()},
            r"`flex` adds to scores only.*for each block",
        ),
        ({"attention": {"dropout": 0.1}}, r"`flex` can't drop weights.*dropout=0\.1.*block_sparse"),
    ],
)
def test_what_it_can_not_do_is_refused_when_a_model_is_described(changes: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        stack(**changes)


@pytest.mark.parametrize(("rows", "queries", "keys"), [(0, 3, 3), (2, 0, 3), (2, 3, 0), (0, 0, 0)])
def test_batches_without_rows_and_rows_without_tokens(rows: int, queries: int, keys: int) -> None:
    """Compiled or not: there is nothing to compile for."""
    query, key = Tags.dense(rows, queries), Tags.dense(rows, keys)
    q, k = torch.zeros(rows, 4, queries, 8), torch.zeros(rows, 2, keys, 8)
    for kernel in (Flex(), Flex(compiled=False)):
        out = kernel.attend(q, k, k[..., :6], View(Causal(), query, key), Scoring(0.5))
        assert torch.equal(out, torch.zeros(rows, 4, queries, 6))


def test_blocks_of_a_compiled_kernel_are_whole_tiles() -> None:
    for block in (0, -128):
        with pytest.raises(ConfigError, match="block"):
            Flex(block=block)
    for block in (1, 64, 200):
        with pytest.raises(ConfigError, match=f"multiple of 128.*{block}"):
            Flex(block=block)
        assert Flex(block=block, compiled=False).block == block
    assert Flex(block=256).block == 256


@pytest.mark.parametrize("kernel", [Flex(), STEPS], ids=str)
@pytest.mark.parametrize("which", range(3))
def test_gradients_on_a_cpu_are_refused(kernel: Flex, which: int) -> None:
    query, key = STATES["dense"]
    inputs = tensors(query, key, torch.float32)
    inputs[which].requires_grad_()
    with pytest.raises(ConfigError, match=r"backward pass only where it is compiled for CUDA.*on cpu.*block_sparse"):
        kernel.attend(*inputs, View(Causal(), query, key), Scoring(1.0))  # type: ignore[misc]


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@torch.no_grad()
def test_nothing_is_refused_where_no_gradient_is_recorded() -> None:
    query, key = STATES["dense"]
    inputs = [tensor.requires_grad_() for tensor in tensors(query, key, torch.float32)]
    out = STEPS.attend(*inputs, View(Causal(), query, key), Scoring(1.0))  # type: ignore[misc]
    assert bool(out.isfinite().all()) and not out.requires_grad


def test_gradients_of_a_learned_bias_on_a_cpu_are_refused() -> None:
    query, key = STATES["dense"]
    bias = geometry_of(POSITIONS["t5"], query, key, torch.float32, ahead=True).bias
    inputs = tensors(query, key, torch.float32)
    with pytest.raises(ConfigError, match="backward pass only where it is compiled for CUDA"):
        STEPS.attend(*inputs, View(Causal(), query, key), Scoring(1.0, bias=bias))  # type: ignore[misc]


def test_other_calls_are_refused() -> None:
    query, key = STATES["dense"]
    view = View(Causal(), query, key)
    with pytest.raises(ConfigError, match=r"not compiled for float64.*compiled=False"):
        Flex().attend(*tensors(query, key, torch.float64), view, Scoring(1.0))  # type: ignore[misc]
    with FakeTensorMode(), pytest.raises(ConfigError, match=r"at least 16 numbers on CUDA.*8"):
        Flex().attend(*(torch.empty(3, 6, LENGTH, 8, device="cuda") for _ in range(3)), view, Scoring(1.0))
    with pytest.raises(ConfigError, match=r"depends on the distance.*Given"):
        STEPS.attend(*tensors(query, key, torch.float32), view, Scoring(1.0, bias=Given()))  # type: ignore[misc]
    with pytest.raises(ConfigError, match=r"can't drop weights.*dropout=0\.5"):
        STEPS.attend(*tensors(query, key, torch.float32), view, Scoring(1.0, dropout=0.5))  # type: ignore[misc]


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("positions", POSITIONS)
@torch.no_grad()
def test_a_model_that_reads_with_it(positions: str) -> None:
    """Weights require gradients here, which a pass under `no_grad` does not."""
    decoder = stack(positions=POSITIONS[positions], visibility=Window(6), attention={"n_kv_heads": 1, "soft_cap": 5.0})
    config = ModelConfig(vocab_size=11, d_model=16, context_length=32, decoder=decoder, head=CausalLM())
    assert from_data(Kernel, to_data(STEPS)) == STEPS and from_data(Kernel, "flex") == Flex()
    net = Transformer(config).eval()
    twin = Transformer(config.with_kernel("naive")).eval()
    twin.load_state_dict(net.state_dict())
    ids = torch.randint(0, 11, (2, 17), generator=torch.Generator().manual_seed(0))
    tags = Tags.padded(torch.arange(17) >= torch.tensor([[0], [5]]))
    assert (net(ids, tags=tags) - twin(ids, tags=tags)).abs().max() <= 1e-5


LONG = 300
SLOW: list[tuple[Visibility, str, float | None, str]] = [
    (Causal(), "none", None, "dense"),
    (Causal() & SameSegment(), "t5", None, "packed"),
    (Window(40, dilation=3), "alibi", CAP, "left"),
    (Window(60), "rope", 2.5, "cached"),
    (Window(70), "none", 3.5, "cached"),
    (PrefixLM(), "none", None, "prefixes"),
    (Blocks(16) | EdgeBlocks(16) | RandomBlocks(16, n=1, seed=3), "none", None, "left"),
    (FromGlobal(), "alibi", None, "left"),
]


def long_state(name: str) -> tuple[Tags, Tags]:
    position = torch.arange(LONG).repeat(2, 1)
    if name == "packed":
        border = torch.tensor([[130], [0]])
        return cached(Tags.of((position - border) % LONG, segment=(position >= border).long()), 0)
    if name == "prefixes":
        return cached(Tags.of(position, prefix=position < torch.tensor([[30], [200]])), 0)
    if name == "left":
        real = position >= torch.tensor([[20], [LONG]])  # the second row is all padding
        return cached(Tags.padded(real, is_global=real & (position % 50 == 7)), 0)
    return cached(Tags.dense(2, LONG), 290 if name == "cached" else 0)


@pytest.mark.slow
@torch.no_grad()
def test_compiled_it_is_the_definition_and_compiles_once_for_each_rule() -> None:
    for rule, positions, cap, name in SLOW:
        assert difference(rule, long_state(name), POSITIONS[positions], torch.float32, Flex(), cap) <= 1e-5, rule
    with torch.compiler.set_stance("fail_on_recompile"):  # other tags of the same shapes need no other graph
        for rule, positions, cap, name in SLOW:
            assert difference(rule, long_state(name), POSITIONS[positions], torch.float32, Flex(), cap) <= 1e-5, rule
        query, key = cached(
            Tags.of(torch.arange(LONG).repeat(2, 1), prefix=torch.arange(2 * LONG).view(2, LONG) < 90), 0
        )
        assert difference(PrefixLM(), (query, key), POSITIONS["none"], torch.float32, Flex(), None) <= 1e-5
