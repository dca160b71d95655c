"""Attention by sums over keys: the engine, the plain feature map, and what it may not do."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from transpect.base.errors import CheckpointError, ConfigError, MaskError
from transpect.cache import DenseCache, SegmentMemory, SlidingCache, SumsCache
from transpect.core import (
    AttentionConfig,
    Causal,
    Full,
    ModelConfig,
    NormalInit,
    PrefixLM,
    SameSegment,
    StackConfig,
    Tags,
    Transformer,
    Visibility,
    Window,
    override,
    preset,
)
from transpect.core.kernels import Kernel, Linear, Linformer, Naive, Performer, Scoring, Sizes
from transpect.core.kernels.sums import CHUNK, Features, Sums, causal, everything
from transpect.core.positions import Alibi, Learned, NoPosition, Position, Rope, Sinusoidal, T5Buckets, TransformerXL
from transpect.core.view import View
from transpect.interop import family_of, load_model, save_model
from transpect.interop.blank import blank
from transpect.interop.onnx.write import check as check_onnx
from transpect.verify.ways import reference_of, with_kernel

SIZES = [(1, 1), (2, 5), (3, 3), (CHUNK - 1, CHUNK - 1), (CHUNK, CHUNK + 1), (CHUNK + 1, CHUNK + 1), (300, 310)]
RULES = {"full": everything, "causal": causal}
VOCAB, LENGTH = 13, 21
ROPE = Rope()


class Given(Features):
    """Features that are given as they are, by their logarithm."""

    def log_query(self, query: Tensor) -> Tensor:
        return query

    def log_key(self, key: Tensor) -> Tensor:
        return key


@dataclass
class Inputs:
    """Queries [2, H, T, E], keys and values [2, 2, S, E], and which keys are padding [2, S]."""

    query: Tensor
    key: Tensor
    value: Tensor
    hidden: Tensor

    @classmethod
    def draw(cls, queries: int, keys: int, *, groups: int = 3, width: int = 7, size: float = 1.0) -> Inputs:
        g = torch.Generator().manual_seed(queries + 1000 * keys)
        query, key, value = (
            torch.randn(2, heads, length, width, generator=g, dtype=torch.float64)
            for heads, length in ((2 * groups, queries), (2, keys), (2, keys))
        )
        return cls(query * size, key * size, value, torch.rand(2, keys, generator=g) < 0.3)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.query, self.key, self.value

    def to(self, dtype: torch.dtype) -> Inputs:
        return Inputs(*(x.detach().to(dtype).requires_grad_() for x in self.tensors), self.hidden)


def by_definition(x: Inputs, rule: str, log_features: Callable[[Tensor], Tensor]) -> Tensor:
    """Every weight is written down, as the logarithm of a sum over features."""
    groups = x.query.shape[1] // x.key.shape[1]
    key, value = x.key.repeat_interleave(groups, 1), x.value.repeat_interleave(groups, 1)
    seen = ~x.hidden[:, None, None, :].expand(-1, -1, x.query.shape[2], -1)
    if rule == "causal":
        seen = seen & torch.ones(seen.shape[2:], dtype=torch.bool).tril(x.key.shape[2] - x.query.shape[2])
    scores = (log_features(x.query)[..., :, None, :] + log_features(key)[..., None, :, :]).logsumexp(-1)
    weights = scores.masked_fill(~seen, -1e300).softmax(-1) * seen
    return weights @ value


def log_elu(x: Tensor) -> Tensor:
    """For moderate numbers."""
    return (torch.nn.functional.elu(x) + 1).log()


def as_it_is(x: Tensor) -> Tensor:
    return x


def gap(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    return float((a.detach().double() - b.detach().double()).abs().max())


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)], ids=str)
def test_equals_the_formula_forward_and_backward(
    rule: str, sizes: tuple[int, int], dtype: torch.dtype, tolerance: float
) -> None:
    for way, log_features in ((Linear().build(Sizes(6, 2, 7, 8)), log_elu), (Given(), as_it_is)):
        exact = Inputs.draw(*sizes).to(torch.float64)
        expected = by_definition(exact, rule, log_features)
        x = exact.to(dtype)
        out, _ = RULES[rule](way, *x.tensors, x.hidden)
        assert out.dtype == dtype
        assert gap(out, expected) <= tolerance
        weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        ours = torch.autograd.grad(out, x.tensors, weight.to(dtype))
        theirs = torch.autograd.grad(expected, exact.tensors, weight)
        assert all(
            gap(a, b) <= 20 * tolerance * max(1.0, float(b.abs().max())) for a, b in zip(ours, theirs, strict=True)
        )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("size", [1e-3, 30.0, 1e3, 1e5])
def test_no_norm_is_too_large(rule: str, size: float) -> None:
    """exp of these features is 0 or infinite in any dtype. The denominator is at least 1 all the same."""
    x = Inputs.draw(150, 150, size=size).to(torch.float64)
    out, sums = RULES[rule](Given(), *x.tensors, x.hidden)
    assert gap(out, by_definition(x, rule, as_it_is)) <= 1e-9
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(out.sum(), x.tensors))
    assert bool((sums.total[..., -1] >= 1).all())
    single = x.to(torch.float32)
    out, _ = RULES[rule](Given(), *single.tensors, single.hidden)
    assert out.isfinite().all()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(out.sum(), single.tensors))
    assert float(out.detach().abs().max()) <= float(x.value.detach().abs().max()) * 1.001, "no mean of values"


@pytest.mark.parametrize("size", [1.0, 100.0, 1e4])
def test_elu_features_of_any_size(size: float) -> None:
    """log(elu(x) + 1) where elu(x) + 1 itself is 0 in float32."""
    way = Linear().build(Sizes(1, 1, 7, 8))
    x = torch.randn(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * size
    expected = torch.where(x < 0, x, x.clamp(min=0).log1p())
    assert gap(way.log_key(x), expected) == 0
    inputs = Inputs.draw(40, 40, size=size).to(torch.float32)
    out, _ = causal(way, *inputs.tensors, None)
    assert all(grad.isfinite().all() for grad in (out, *torch.autograd.grad(out.sum(), inputs.tensors)))


@pytest.mark.parametrize("at", [1, 5, 64, CHUNK - 1, CHUNK, 200])
def test_nothing_of_later_tokens_reaches_earlier_ones(at: int) -> None:
    """Not a bit of the values, and no gradient."""
    x = Inputs.draw(260, 260).to(torch.float32)
    x.hidden[:, 0] = False
    out, _ = causal(Given(), *x.tensors, x.hidden)
    later = torch.arange(260)[:, None] >= at
    changed = [torch.where(later, tensor * 100, tensor) for tensor in x.tensors]
    assert torch.equal(causal(Given(), *changed, x.hidden)[0][:, :, :at], out[:, :, :at])
    grads = torch.autograd.grad(out[:, :, :at].square().sum(), x.tensors)
    assert all(not grad[:, :, at:].any() for grad in grads)
    assert grads[2][:, :, :at].any()


@pytest.mark.parametrize("rule", RULES)
def test_what_sees_nothing_gives_nothing(rule: str) -> None:
    x = Inputs.draw(9, 9).to(torch.float32)
    x.hidden[0], x.hidden[1, :4] = True, True
    out, _ = RULES[rule](Given(), *x.tensors, x.hidden)
    assert not out[0].any()
    assert out[1, :, :4].any() == (rule == "full")
    grads = torch.autograd.grad(out.sum(), x.tensors)
    assert all(grad.isfinite().all() and not grad[0].any() for grad in grads)


@pytest.mark.parametrize("parts", [(1,) * 9, (2, 3, 4), (0, 9), (9,), (CHUNK + 2, 5, 40, 1)], ids=str)
def test_sums_go_on(parts: tuple[int, ...]) -> None:
    """In pieces with carried sums, and with earlier keys given again as a dense cache does."""
    x = Inputs.draw(sum(parts), sum(parts)).to(torch.float64)
    expected, whole = causal(Given(), *x.tensors, x.hidden)
    sums: Sums | None = None
    outs, done = [], 0
    for size in parts:
        part = slice(done, done + size)
        if size:
            again, _ = causal(Given(), x.query[:, :, part], x.key[:, :, : done + size], x.value[:, :, : done + size],
                              x.hidden[:, : done + size])  # fmt: skip
            out, sums = causal(Given(), *(y[:, :, part] for y in x.tensors), x.hidden[:, part], sums)
            assert gap(again, out) <= 1e-12
            outs.append(out)
        done += size
    assert gap(torch.cat(outs, 2), expected) <= 1e-12
    assert sums is not None
    kept = [part.detach() for part in whole]
    assert all(gap(a, b) <= 1e-12 * max(1, float(b.abs().max())) for a, b in zip(sums, kept, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kernel", [Linear(), Performer(features=64)], ids=lambda k: k.kind)
@pytest.mark.parametrize("rule", [Full(), Causal()], ids=lambda r: r.kind)
def test_half_precision_sums_in_float32(dtype: torch.dtype, kernel: Kernel, rule: Visibility) -> None:
    """2,000 keys, whose sum half precision can't hold: the error is that of the inputs and of the output."""
    way = kernel.build(Sizes(6, 2, 16, 8))
    if isinstance(kernel, Performer):
        way.draw(0, 0)
    x = Inputs.draw(2000, 2000, groups=1, width=16)
    rounded = [tensor.to(dtype) for tensor in x.tensors]
    tags = Tags.dense(2, 2000)
    expected = way.attend(*(tensor.double() for tensor in rounded), View(rule, tags, tags), Scoring(0.25))
    out = way.attend(*rounded, View(rule, tags, tags), Scoring(0.25))
    assert out.dtype == dtype
    assert gap(out, expected) <= torch.finfo(dtype).eps * float(expected.abs().max())
    with torch.autocast("cpu", torch.bfloat16):
        out = way.attend(*(tensor.float() for tensor in rounded), View(rule, tags, tags), Scoring(0.25))
    assert gap(out, expected) <= 1e-4


# in a model


def config_of(
    kernel: Kernel,
    tower: str = "decoder",
    positions: Position = ROPE,
    rule: Visibility | None = None,
    **attention: object,
) -> ModelConfig:
    stack = StackConfig(
        n_layers=2,
        attention=AttentionConfig(n_heads=4, n_kv_heads=2, kernel=kernel, **attention),
        positions=positions,
        visibility=rule or (Full() if tower == "encoder" else Causal()),
    )
    return ModelConfig(vocab_size=VOCAB, d_model=24, context_length=64, init=NormalInit(std=0.3), **{tower: stack})


def ids(rows: int = 2, length: int = LENGTH) -> Tensor:
    return torch.randint(0, VOCAB, (rows, length), generator=torch.Generator().manual_seed(0))


PASTS: dict[str, tuple[str, Callable[[], object]]] = {
    "dense": ("cache", DenseCache),
    "sums": ("cache", SumsCache),
    "sliding": ("cache", lambda: SlidingCache(LENGTH)),
    "memory": ("memory", lambda: SegmentMemory(LENGTH)),
}
MODELS = list(itertools.product((Linear(), Performer(features=20)), ("encoder", "decoder"), (Rope(), Learned())))


@pytest.mark.parametrize(("kernel", "tower", "positions"), MODELS, ids=lambda x: getattr(x, "kind", x))
@torch.no_grad()
def test_padding_and_neighbours_change_nothing(kernel: Kernel, tower: str, positions: Position) -> None:
    model = Transformer(config_of(kernel, tower, positions)).eval()
    lengths = (LENGTH, 9)
    alone = [model(ids()[row : row + 1, :length]) for row, length in enumerate(lengths)]
    for left in (True, False):
        column = torch.arange(LENGTH + 4)
        count = torch.tensor(lengths)[:, None]
        real = column >= LENGTH + 4 - count if left else column < count
        filled = torch.full(real.shape, VOCAB - 1)
        for row, length in enumerate(lengths):
            filled[row, real[row]] = ids()[row, :length]
        out = model(filled, tags=Tags.padded(real))
        assert out.isfinite().all()
        assert all(gap(out[row][real[row]], alone[row][0]) <= 1e-5 for row in range(2))


@pytest.mark.parametrize("kernel", [Linear(), Performer(features=20)], ids=lambda k: k.kind)
@pytest.mark.parametrize("chunks", [(1, 3, 5, 12), (20, 1), (1,) * 21], ids=str)
@pytest.mark.parametrize("past", PASTS)
@torch.no_grad()
def test_whatever_holds_the_past_the_rest_is_the_same(kernel: Kernel, chunks: tuple[int, ...], past: str) -> None:
    model = Transformer(config_of(kernel)).eval()
    column = torch.arange(LENGTH)
    for tags in (Tags.dense(2, LENGTH), Tags.padded(column >= torch.tensor([[4], [0]]))):
        name, hold = PASTS[past]
        held, outs, done = hold(), [], 0
        for size in chunks:
            part = slice(done, done + size)
            outs.append(model(ids()[:, part], tags=tags.columns(part), **{name: held}))
            done += size
        real = tags.position >= 0
        assert gap(torch.cat(outs, 1)[real], model(ids(), tags=tags)[real]) <= 1e-5


def test_a_padded_query_gives_exactly_nothing() -> None:
    tags = Tags.padded(torch.tensor([[False, True, False, True, True]]))
    for kernel, rule in itertools.product((Linear(), Performer(features=8)), (Full(), Causal())):
        way = kernel.build(Sizes(2, 2, 7, 8))
        if isinstance(kernel, Performer):
            way.draw(0, 0)
        x = [torch.randn(1, 2, 5, 7, requires_grad=True) for _ in range(3)]
        out = way.attend(*x, View(rule, tags, tags), Scoring(1.0))
        assert not out[:, :, [0, 2]].any()
        assert out[:, :, [1, 3, 4]].all()
        assert all(grad.isfinite().all() and not grad[:, :, [0, 2]].any() for grad in torch.autograd.grad(out.sum(), x))


def test_packed_documents_are_refused() -> None:
    model = Transformer(config_of(Linear()))
    packed = Tags.of(torch.tensor([[0, 1, 2, 0, 1]]), segment=torch.tensor([[0, 0, 0, 1, 1]]))
    with pytest.raises(MaskError, match="packed documents"):
        model(ids(1, 5), tags=packed)
    with pytest.raises(MaskError, match="must increase"):
        model(ids(1, 3), tags=Tags.of(torch.tensor([[2, -1, 1]])))
    model(ids(1, 4), tags=Tags.of(torch.tensor([[-1, 3, -1, 7]])))  # gaps are no disorder
    encoder = Transformer(config_of(Linear(), "encoder"))
    encoder(ids(1, 3), tags=Tags.of(torch.tensor([[2, 0, 1]])))  # where everything is seen, order is nothing


REFUSED = {
    "soft_cap": ({"soft_cap": 5.0}, {}, "no scores to cap"),
    "dropout": ({"dropout": 0.1}, {}, "no weights to drop"),
    "window": ({}, {"rule": Window(4)}, "adds keys up|mixes all keys"),
    "prefix": ({}, {"rule": PrefixLM()}, "adds keys up|mixes all keys"),
    "segments": ({}, {"rule": Causal() & SameSegment()}, "adds keys up|mixes all keys"),
    "alibi": ({}, {"positions": Alibi()}, "no scores that positions could add to"),
    "t5": ({}, {"positions": T5Buckets()}, "no scores that positions could add to"),
    "transformer-xl": ({}, {"positions": TransformerXL()}, "no scores that positions could add to"),
    "global": ({"global_projections": True}, {}, "global_projections"),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("kernel", [Linear(), Performer(), Linformer(rank=4)], ids=lambda k: k.kind)
def test_refusals_name_the_kernel_and_the_reason(what: str, kernel: Kernel) -> None:
    attention, stack, reason = REFUSED[what]
    with pytest.raises(ConfigError, match=reason) as caught:
        config_of(kernel, "encoder", **{**attention, **stack})
    assert kernel.kind in str(caught.value)
    if what in ("soft_cap", "alibi"):  # a tower behind it, and a layer of its own, are asked too
        plain = config_of(Naive(), "encoder", **{**attention, **stack})
        with pytest.raises(ConfigError, match=reason):
            plain.with_kernel(kernel)


def test_a_scale_is_refused_where_nothing_is_scaled() -> None:
    with pytest.raises(ConfigError, match="`linear` has no q·k to scale"):
        config_of(Linear(), scale=0.5)
    small, plain, large = (
        Transformer(config_of(Performer(features=8), "encoder", scale=scale))(ids()) for scale in (0.1, None, 2.0)
    )
    assert gap(small, plain) > 1e-4
    assert gap(plain, large) > 1e-4


@pytest.mark.parametrize("positions", [NoPosition(), Sinusoidal(), Learned(), Rope()], ids=lambda p: p.kind)
def test_other_positions_are_accepted(positions: Position) -> None:
    for kernel in (Linear(), Performer(features=8), Linformer(rank=4)):
        out = Transformer(config_of(kernel, "encoder", positions))(ids())
        assert out.isfinite().all()


def test_only_another_kernel_of_softmax_attention_computes_the_same() -> None:
    config = config_of(Naive())
    assert config.computed_by("sdpa").last.attention.kernel.kind == "sdpa"
    with pytest.raises(ConfigError, match="another one"):
        config.computed_by("linear")
    mixed = replace(config_of(Linear()), encoder=config_of(Naive(), "encoder").encoder)
    computed = mixed.computed_by("sdpa")
    assert [stack.attention.kernel.kind for stack in computed.towers.values()] == ["sdpa", "linear"]


@pytest.mark.parametrize("kernel", [Linear(), Performer(features=8), Linformer(rank=4)], ids=lambda k: k.kind)
def test_no_family_of_others_has_a_word_for_it(kernel: Kernel, tmp_path: Path) -> None:
    """It is saved as ours: whoever opened it as BERT or GPT-2 would compute softmax attention."""
    name, rule = ("gpt2", "causal") if not isinstance(kernel, Linformer) else ("bert-base", "full")
    sizes = {"n_layers": 2, "d_model": 24, "n_heads": 2, "vocab_size": VOCAB, "context_length": 32, "d_ff": 32}
    plain = override(preset(name), {**sizes, "attention.dropout": 0.0}.items())
    config = replace(plain.with_kernel(kernel), family=None)
    assert config.last.visibility.kind == rule
    assert (family_of(plain), family_of(config)) == (name.removesuffix("-base"), "transpect")
    model = Transformer(config).eval()
    save_model(model, tmp_path / "saved")
    again = load_model(tmp_path / "saved")
    assert again.config == config
    assert torch.equal(again(ids()), model(ids()))
    with pytest.raises(CheckpointError, match="has no ONNX form"):
        check_onnx(model, "float32")


@torch.no_grad()
def test_a_certificate_measures_it_against_itself_in_float64() -> None:
    for kernel in (Linear(), Performer(features=8)):
        model = Transformer(config_of(kernel)).eval()
        reference = reference_of(model)
        assert gap(reference(ids()), model(ids())) <= 1e-5
        assert gap(reference(ids()), Transformer(config_of(Naive())).double()(ids())) > 1e-3
        with pytest.raises(ConfigError, match="no layer of this model computes softmax attention"):
            with_kernel(model, "sdpa")
    crossing = replace(config_of(Linear()).last, steps=(("self",), ("cross",), ("ffn",)), cross=AttentionConfig(2))
    both = replace(config_of(Linear(), "encoder"), decoder=crossing)
    assert both.has_softmax
    assert not replace(both, decoder=replace(crossing, cross=None)).has_softmax
    assert with_kernel(Transformer(both), "naive").config.last.cross == AttentionConfig(2, kernel=Naive())


def test_shapes_are_known_where_no_numbers_are() -> None:
    for kernel in (Linear(), Performer(), Linformer(rank=4)):
        model = blank(config_of(kernel, "encoder"))
        assert model(ids().to("meta")).shape == (2, LENGTH, VOCAB)
    assert blank(config_of(Linear()))(ids().to("meta")).shape == (2, LENGTH, VOCAB)


def test_every_weight_learns() -> None:
    for kernel, tower in itertools.product((Linear(), Performer(features=20)), ("encoder", "decoder")):
        model = Transformer(config_of(kernel, tower, Learned()))
        model(ids()).square().sum().backward()
        assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_work_and_memory_do_not_grow_with_the_past() -> None:
    sums = [causal(Given(), *Inputs.draw(length, length).tensors, None)[1] for length in (3, 700)]
    assert [part.shape for part in sums[0]] == [part.shape for part in sums[1]]
    assert math.prod(sums[0].total.shape) == 2 * 2 * 7 * 8
