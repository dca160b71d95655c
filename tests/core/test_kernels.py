"""Every kernel against `naive`, the definition: kernels × rules × positions × batches, forward and backward; and what a
kernel's memory grows with, by the sizes of all tensors that it makes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from transpect.base.errors import ConfigError
from transpect.core import (
    AttentionConfig,
    Blocks,
    BlockSparse,
    Causal,
    EdgeBlocks,
    Flash,
    Full,
    GlobalTokens,
    ModelConfig,
    Naive,
    OtherLayers,
    PrefixLM,
    RandomBlocks,
    SameSegment,
    Sdpa,
    StackConfig,
    Summaries,
    Tags,
    Transformer,
    Visibility,
    Window,
)
from transpect.core.bias import Bias
from transpect.core.kernels import Kernel, Scoring
from transpect.core.positions import (
    Alibi,
    Dims,
    Kerple,
    Learned,
    NoPosition,
    Position,
    RepeatedBlock,
    Rope,
    Sinusoidal,
    T5Buckets,
    TransformerXL,
)
from transpect.core.tags import Columns
from transpect.core.view import View

# small tiles, so that each case has many of them, whole, cut and empty ones
ROWS: dict[str, Kernel] = {
    "sdpa": Sdpa(),
    "sdpa in tiles": Sdpa(largest_bias=0, block=4, widest=7),
    "flash": Flash(),
    "flash in tiles": Flash(block=3, fused=False),
    "block_sparse": BlockSparse(block=4),
    "block_sparse, narrow": BlockSparse(block=2, widest=5),
}
ELSEWHERE: dict[str, str] = {
    "naive": "the definition",
    "flex": "torch's: forward alone on a CPU",
    **dict.fromkeys(("linear", "linformer", "performer"), "another function"),
}
"""Kernels with tests of their own."""

RULES: dict[str, Visibility] = {
    "full": Full(),
    "causal": Causal(),
    "window": Window(4),
    "dilated": Window(3, dilation=3),
    "both ways": Window(3, both_ways=True),
    "longformer": Window(3, both_ways=True) | GlobalTokens(),
    "bigbird": Blocks(2) | EdgeBlocks(2) | RandomBlocks(2, n=1, seed=3),
    "prefix": PrefixLM(),
    "packed": Causal() & SameSegment(),
    "packed windows": Window(4) & SameSegment() | GlobalTokens(),
}
POSITIONS: dict[str, Position] = {
    "none": NoPosition(),
    "sinusoidal": Sinusoidal(),
    "learned": Learned(),
    "rope": Rope(),
    "alibi": Alibi(),
    "kerple": Kerple(),
    "t5": T5Buckets(buckets=8, max_distance=6),
    "t5 a layer": T5Buckets(buckets=8, max_distance=6, per_layer=True),
    "transformer-xl": TransformerXL(),
    "repeated block": RepeatedBlock(size=2, times=2, above=4, inner=Learned()),
    "repeated block, alibi": RepeatedBlock(size=2, times=2, above=4, inner=Alibi()),
}
LENGTH, VOCAB = 13, 17


def dense() -> Tags:
    return Tags.dense(2, LENGTH)


def padded() -> Tags:
    position = torch.arange(LENGTH).repeat(2, 1)
    position[0] = torch.cat([torch.full((5,), -1), torch.arange(LENGTH - 5)])
    position[1, 9:] = -1
    return Tags.of(position, prefix=(position >= 0) & (position < 3), is_global=(position == 0) | (position == 6))


def packed() -> Tags:
    segment = (torch.arange(LENGTH).repeat(2, 1) >= torch.tensor([[4], [8]])).long()
    position = torch.arange(LENGTH) - segment * torch.tensor([[4], [8]])
    return Tags.of(position, segment=segment, prefix=position < 2, is_global=position == 1)


def blank() -> Tags:
    """The second row is nothing but padding."""
    tags = padded()
    return Tags.of(torch.stack([tags.position[0], torch.full((LENGTH,), -1)]), is_global=tags.is_global)


BATCHES: dict[str, Callable[[], Tags]] = {"dense": dense, "padded": padded, "packed": packed, "blank": blank}


def test_every_kernel_has_a_row() -> None:
    assert {row.kind for row in ROWS.values()} | ELSEWHERE.keys() == set(Kernel.kinds())


def test_every_scheme_has_a_row() -> None:
    assert {positions.kind for positions in POSITIONS.values()} == set(Position.kinds())


def takes(kernel: Kernel, rule: Visibility, positions: Position, **attention: float) -> bool:
    """Whether a kernel does not refuse; docs/attention.md says what each refuses, and a test holds it to that."""
    config = AttentionConfig(n_heads=1, kernel=kernel, **attention)  # type: ignore[arg-type]
    try:
        config.check_kernel(rule, positions.scores)
    except ConfigError:
        return False
    return True


def model(rule: Visibility, positions: Position, kernel: Kernel, **attention: object) -> Transformer:
    stack = StackConfig(
        n_layers=2,
        attention=AttentionConfig(n_heads=4, n_kv_heads=2, head_dim=6, kernel=kernel, **attention),  # type: ignore[arg-type]
        positions=positions,
        visibility=rule,
    )
    ahead = rule.looks_ahead(prefix=False)
    sizes = {"vocab_size": VOCAB, "d_model": 12, "context_length": 32}
    net = Transformer(ModelConfig(**sizes, **{"encoder" if ahead else "decoder": stack}))  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(0.0, 0.4, generator=generator)
    return net


IDS = torch.randint(0, VOCAB, (2, LENGTH), generator=torch.Generator().manual_seed(0))


def outcome(net: Transformer, tags: Tags) -> dict[str, Tensor]:
    """Logits of real tokens, and the gradient of each parameter."""
    net.zero_grad()
    logits = net(IDS, tags=tags)[tags.position >= 0]
    logits.sin().sum().backward()
    grads = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
    return {"logits": logits.detach(), **grads}


def agree(ours: dict[str, Tensor], exact: dict[str, Tensor], tolerance: float, what: str = "") -> None:
    assert ours.keys() == exact.keys(), what
    for name, value in exact.items():
        assert ours[name].isfinite().all(), (what, name)
        scale = max(1.0, float(value.abs().max()))
        assert float((ours[name].double() - value).abs().max()) <= tolerance * scale, (what, name)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("rule", RULES)
def test_kernels_equal_naive(rule: str, positions: str) -> None:
    for (batch, tags), (precise, tolerance) in zip(
        BATCHES.items(), itertools.cycle([(torch.float64, 1e-10), (torch.float32, 1e-5)]), strict=False
    ):
        made = tags()
        exact = outcome(model(RULES[rule], POSITIONS[positions], Naive()).double(), made)
        able = {name: kernel for name, kernel in ROWS.items() if takes(kernel, RULES[rule], POSITIONS[positions])}
        for name, kernel in able.items():
            ours = outcome(model(RULES[rule], POSITIONS[positions], kernel).to(precise), made)
            agree(ours, exact, tolerance, f"{name}, {batch}")


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if takes(row, Full(), NoPosition(), soft_cap=0.7)])
@pytest.mark.parametrize("positions", ["none", "t5", "transformer-xl"])
@pytest.mark.parametrize("rule", RULES)
def test_capped_scores(rule: str, positions: str, name: str) -> None:
    made = padded()
    if not takes(ROWS[name], RULES[rule], POSITIONS[positions]):
        pytest.skip("it refuses this rule, or these positions")
    exact, ours = (
        outcome(model(RULES[rule], POSITIONS[positions], kernel, soft_cap=0.7, scale=1.5).double(), made)
        for kernel in (Naive(), ROWS[name])
    )
    agree(ours, exact, 1e-10)


@pytest.mark.parametrize("name", ROWS)
def test_summaries_and_tables_for_them(name: str) -> None:
    """LongT5: keys that stand for blocks, with distances in blocks."""

    def longt5(kernel: Kernel) -> Transformer:
        net = model(Window(3, both_ways=True) | GlobalTokens(), NoPosition(), kernel)
        stack = net.config.encoder
        assert stack is not None
        positions = T5Buckets(buckets=8, max_distance=6, of_blocks=True)
        changed = replace(stack, positions=positions, summaries=Summaries(size=3))
        made = Transformer(replace(net.config, encoder=changed)).double()
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.normal_(0.0, 0.4, generator=generator)
        return made

    made = padded()
    tags = Tags.of(made.position)
    agree(outcome(longt5(ROWS[name]), tags), outcome(longt5(Naive()), tags), 1e-10)


@pytest.mark.parametrize("name", ROWS)
def test_layers_of_several_kinds_and_projections_for_global_tokens(name: str) -> None:
    def longformer(kernel: Kernel) -> Transformer:
        net = model(Window(3, both_ways=True) | GlobalTokens(), Learned(), kernel, global_projections=True)
        stack = net.config.encoder
        assert stack is not None
        other = OtherLayers(at=(1,), visibility=Window(2, both_ways=True) | GlobalTokens())
        made = Transformer(replace(net.config, encoder=replace(stack, others=(other,)))).double()
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.normal_(0.0, 0.4, generator=generator)
        return made

    for tags in (padded(), packed(), dense()):
        agree(outcome(longformer(ROWS[name]), tags), outcome(longformer(Naive()), tags), 1e-10)


DROPPING = [
    name
    for name, row in ROWS.items()
    if takes(row, Causal(), NoPosition(), dropout=0.4) and name not in ("sdpa", "flash")  # torch's own draws
]


@pytest.mark.parametrize("name", DROPPING)
def test_dropped_weights_are_the_same_backward(name: str) -> None:
    """The gradient of one draw, against the difference quotient of the same draw."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, heads, 6, 3, generator=generator, dtype=torch.float64) for heads in (2, 1, 1))
    tags = Tags.dense(1, 6)
    kernel = ROWS[name].build(sizes=None)  # type: ignore[arg-type]

    def attend(*tensors: Tensor) -> Tensor:
        torch.manual_seed(5)
        zero = Given(torch.zeros(1, 2, 6, 6, dtype=torch.float64))
        return kernel.attend(*tensors, View(Causal(), tags, tags), Scoring(0.5, bias=zero, dropout=0.4))

    tensors = tuple(tensor.requires_grad_() for tensor in (query, key, value))
    dropped, full = attend(*tensors), Naive().attend(*tensors, View(Causal(), tags, tags), Scoring(0.5))
    assert float((dropped - full).detach().abs().max()) > 0.1
    assert torch.autograd.gradcheck(attend, tensors)


@pytest.mark.parametrize("name", DROPPING)
def test_tiles_drop_weights_of_their_own(name: str) -> None:
    """A draw that is the same in each tile would pass every test of means."""
    length = 24
    query = torch.zeros(1, 1, length, 4)  # all weights are equal
    eye = torch.eye(length)[None, None]
    tags = Tags.dense(1, length)
    kernel = ROWS[name].build(sizes=None)  # type: ignore[arg-type]
    zero = Given(torch.zeros(1, 1, length, length))
    kept = kernel.attend(query, query, eye, View(Full(), tags, tags), Scoring(1.0, bias=zero, dropout=0.5))[0, 0] > 0
    corners = {
        tuple(kept[i : i + 3, j : j + 2].flatten().tolist())
        for i, j in itertools.product(range(0, length, 12), repeat=2)
    }
    assert len(corners) > 1


@pytest.mark.parametrize("inside", [False, True], ids=["backward outside", "backward inside"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_under_autocast(positions: str, inside: bool) -> None:
    """What autocast turns to bfloat16 meets what it leaves in float32, such as queries that positions have turned."""

    def gradients(kernel: Kernel, autocast: bool) -> Tensor:
        net = model(Window(4), POSITIONS[positions], kernel)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = net(IDS).float().sin().sum()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])

    exact = gradients(Naive(), autocast=False)
    bound = 2.0 * float((gradients(Naive(), autocast=True) - exact).norm())
    for name, kernel in ROWS.items():
        ours = gradients(kernel, autocast=True)
        assert 0.0 < float((ours - exact).norm()) <= bound, name


@pytest.mark.parametrize("precise", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("positions", ["t5", "transformer-xl"])
def test_sums_over_tiles_are_not_in_half_precision(positions: str, precise: torch.dtype) -> None:
    """A learned bias gets its gradient from every tile; summed in half precision, the more tiles the worse it is."""
    length, tags = 256, Tags.dense(1, 256)

    def gradient(kernel: Kernel, dtype: torch.dtype) -> Tensor:
        generator = torch.Generator().manual_seed(0)

        def drawn(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64).to(precise).to(dtype)

        query, key, value, upward = (drawn(1, 2, length, 8) for _ in range(4))
        module = POSITIONS[positions].build(Dims(16, 16, 2, 8, length, looks_ahead=False))
        relation = module.relation()
        weights = [*module.parameters(), *relation.parameters()]
        for parameter in weights:
            parameter.data = 0.3 * drawn(*parameter.shape)
        turned, bias = relation(query, module.geometry(tags, tags, tags, dtype), 0.3)
        way = kernel.build(sizes=None)  # type: ignore[arg-type]
        way.attend(turned, key, value, View(Causal(), tags, tags), Scoring(0.3, bias=bias)).backward(upward)
        return torch.cat([p.grad.double().flatten() for p in weights if p.grad is not None])

    exact = gradient(Naive(), torch.float64)
    ours = gradient(Flash(block=4, fused=False), precise)
    assert float((ours - exact).norm()) <= 1.5 * torch.finfo(precise).eps * float(exact.norm())


@pytest.mark.parametrize(
    "sizes", [(0, 3, 3), (2, 0, 0), (2, 0, 4), (2, 3, 0), (0, 0, 0), (2, 5, 3), (1, 1, 1)], ids=str
)
@pytest.mark.parametrize("positions", ["none", "alibi", "t5", "transformer-xl"])
def test_batches_without_rows_and_rows_without_tokens(positions: str, sizes: tuple[int, int, int]) -> None:
    rows, queries, keys = sizes
    start = max(0, keys - queries)
    known = Tags.dense(rows, queries, start=start), Tags.dense(rows, keys)
    for (query, key), (name, rule) in itertools.product(
        (known, tuple(Tags.of(tags.position.clone()) for tags in known)), RULES.items()
    ):
        outcomes = []
        for kernel in (Naive(), *ROWS.values()):
            generator = torch.Generator().manual_seed(0)
            q, k, v = (
                torch.randn(rows, heads, n, 6, generator=generator, dtype=torch.float64).requires_grad_()
                for heads, n in ((4, queries), (2, keys), (2, keys))
            )
            module = POSITIONS[positions].build(Dims(24, 24, 4, 6, 32, looks_ahead=True))
            relation = module.relation().double()
            for parameter in (*module.parameters(), *relation.parameters()):
                torch.nn.init.constant_(parameter, 0.1)
            turned, bias = relation(q, module.double().geometry(query, key, key, torch.float64), 0.5)
            way = kernel.build(sizes=None)  # type: ignore[arg-type]
            out = way.attend(turned, k, v, View(rule, query, key), Scoring(0.5, bias=bias))
            out.sin().sum().backward()
            outcomes.append((out.detach(), q.grad, k.grad, v.grad))
        for ours in outcomes[1:]:
            for mine, exact in zip(ours, outcomes[0], strict=True):
                assert mine is not None and exact is not None
                torch.testing.assert_close(mine, exact, rtol=0, atol=1e-10, msg=name)


@pytest.mark.parametrize("kernel", [Naive(), Sdpa()], ids=lambda kernel: kernel.kind)
def test_a_bias_that_was_made_without_gradients_is_made_again(kernel: Kernel) -> None:
    """Layers share it; one that is computed first without gradients and then with them must train it."""
    tags = Tags.dense(1, 6)
    module = POSITIONS["t5"].build(Dims(8, 8, 2, 4, 8, looks_ahead=False))
    query, view = torch.randn(1, 2, 6, 4), View(Causal(), tags, tags)
    way, bias = kernel.build(sizes=None), module.geometry(tags, tags, tags, torch.float32).bias  # type: ignore[arg-type]
    with torch.no_grad():
        way.attend(query, query, query, view, Scoring(0.5, bias=bias))
    way.attend(query, query, query, view, Scoring(0.5, bias=bias)).sin().sum().backward()
    (table,) = module.parameters()
    assert table.grad is not None and float(table.grad.abs().max()) > 0


class Given(Bias):
    """A bias that is there as a whole."""

    def __init__(self, values: Tensor) -> None:
        self.inputs = (values,)

    def tile(self, narrow: tuple[Tensor, ...], rows: slice, columns: Columns) -> Tensor:
        return narrow[0][:, :, rows][..., columns]


@pytest.mark.parametrize("positions", ["alibi", "kerple", "t5", "transformer-xl", "repeated block, alibi"])
@pytest.mark.parametrize("tags", [dense, padded])
def test_any_part_of_a_bias_is_that_part_of_the_whole(positions: str, tags: Callable[[], Tags]) -> None:
    made = tags()
    dims = Dims(24, 24, 4, 6, 32, looks_ahead=True)
    module = POSITIONS[positions].build(dims)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    query = torch.randn(2, 4, LENGTH, 6, generator=torch.Generator().manual_seed(0))
    _, bias = module.relation()(query, module.geometry(made, made, made, torch.float32), 0.5)
    assert bias is not None
    whole = bias.whole.expand(2, -1, -1, -1)
    for rows in (slice(0, 13), slice(3, 4), slice(5, 9)):
        for columns in (slice(0, 13), slice(2, 11), slice(12, 13), torch.tensor([0, 1, 5, 12])):
            part = bias.tile(bias.narrow(bias.inputs, rows, columns), rows, columns)
            assert torch.allclose(part.expand(2, -1, -1, -1), whole[:, :, rows][..., columns], atol=1e-6)


class Made(TorchDispatchMode):
    """Notes how many numbers the tensors hold that are made within it; views make none."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = self.total = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self.largest = max(self.largest, tensor.untyped_storage().nbytes() // tensor.element_size())
                self.total += tensor.numel()
        return out


def made_by(kernel: Kernel, length: int, rule: Visibility, positions: Position | None = None) -> Made:
    """What one layer makes forward and backward; two heads of four."""
    dims = Dims(8, 8, 2, 4, length, looks_ahead=rule.looks_ahead(prefix=False))
    module = (positions or NoPosition()).build(dims)
    relation, tags = module.relation(), Tags.dense(1, length)
    query, key, value = (torch.randn(1, 2, length, 4).requires_grad_() for _ in range(3))
    # plans of dense rows are kept from pass to pass, and are not what is measured
    block = getattr(kernel, "block", 1)
    View(rule, tags, tags).plan(block, block)
    with Made() as made:
        turned, bias = relation(query, module.geometry(tags, tags, tags, torch.float32), 0.5)
        way = kernel.build(sizes=None)  # type: ignore[arg-type]
        out = way.attend(turned, key, value, View(rule, tags, tags), Scoring(0.5, bias=bias))
        out.sum().backward()
    return made


TILED = [Flash(block=16, fused=False), BlockSparse(block=16, widest=16), Sdpa(largest_bias=0, block=16, widest=16)]


@pytest.mark.parametrize("positions", [Alibi(), T5Buckets(), TransformerXL()], ids=lambda scheme: scheme.kind)
@pytest.mark.parametrize("kernel", TILED, ids=str)
def test_no_tensor_grows_with_the_square_of_the_length(kernel: Kernel, positions: Position) -> None:
    """Also with a learned bias that has a gradient, for which torch keeps all scores of all heads."""
    short, long = (made_by(kernel, length, Causal(), positions).largest for length in (64, 256))
    assert long <= 4.5 * short and long < 256 * 64
    assert made_by(Naive(), 256, Causal(), positions).largest >= 2 * 256 * 256


@pytest.mark.parametrize(
    "rule",
    [
        Window(40),
        Window(30, both_ways=True),
        Window(8, dilation=4),
        Blocks(8, reach=2),
        Window(9) | Window(5, dilation=3),
    ],
    ids=str,
)
@pytest.mark.parametrize("positions", [NoPosition(), Alibi(), T5Buckets()], ids=lambda scheme: scheme.kind)
def test_what_is_hidden_costs_nothing(rule: Visibility, positions: Position) -> None:
    """All numbers made, forward and backward, are linear in the length."""
    short, middle, long = (made_by(BlockSparse(block=8), length, rule, positions) for length in (128, 256, 512))
    assert long.total - middle.total <= 2.15 * (middle.total - short.total)
    assert long.total < made_by(Naive(), 512, rule, positions).total / 2


def test_projections_for_global_tokens_cost_what_these_see() -> None:
    """Those of other tokens are not attended with."""

    def total(global_projections: bool) -> int:
        rule = Window(9, both_ways=True) | GlobalTokens()
        net = model(rule, NoPosition(), BlockSparse(block=8), global_projections=global_projections)
        position = torch.arange(512).expand(2, -1)
        with Made() as made:
            net(IDS[:, :1].expand(-1, 512), tags=Tags.of(position, is_global=position < 2)).sum().backward()
        return made.total

    assert total(True) < 1.4 * total(False)


@pytest.mark.parametrize("name", ["sdpa", "sdpa in tiles"])
def test_a_kernel_refuses_at_build_time(name: str) -> None:
    with pytest.raises(ConfigError, match="`sdpa` can't cap logits"):
        model(Causal(), Rope(), ROWS[name], soft_cap=3.0)


@pytest.mark.parametrize("options", [{"block": 0}, {"block": -3}, {"widest": 0}])
@pytest.mark.parametrize("kind", [BlockSparse, Flash, Sdpa])
def test_tiles_have_a_size(kind: type[Kernel], options: dict[str, int]) -> None:
    if kind is Flash and "widest" in options:
        return
    with pytest.raises(ConfigError, match="at least 1"):
        kind(**options)
