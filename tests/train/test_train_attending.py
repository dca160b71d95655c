"""Causal attention of training is the definition, forward and backward, and torch's where it is asked for more."""

from collections.abc import Iterator
from itertools import product

import pytest
import torch
from torch import Tensor

from transpect.core import Tags, Transformer, override, preset
from transpect.core.attention import Attention
from transpect.core.kernels import Flash, Naive, Scoring, Sdpa
from transpect.core.view import View
from transpect.core.visibility import Causal, Full, Window
from transpect.runtime.borrowed import can_borrow
from transpect.train import attending
from transpect.train.attending import OnTorchsThreads
from transpect.train.recompute import recompute_activations

pytestmark = pytest.mark.skipif(not can_borrow(), reason="torch has no threads of GNU's OpenMP here")

LENGTHS = (1, 2, 5, 47, 48, 49, 97, 255, 256, 257, 300, 520)
"""Around the sizes of tiles, segments and panels."""
HEADS = ((1, 1), (4, 4), (4, 2), (3, 1))
WIDTHS = (1, 8, 15, 16, 17, 33, 64)
GRID = list(product(LENGTHS, HEADS, WIDTHS))


@pytest.fixture
def alone() -> Iterator[None]:
    """One thread, so that a single head is enough."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def drawn(length: int, heads: tuple[int, int], width: int, *, batch: int = 2, factor: float = 1.0) -> list[Tensor]:
    """Queries, keys, values and a gradient, as a projection gives them."""
    draw = torch.Generator().manual_seed(length * 1000 + width)
    shapes = [(batch, length, n, width) for n in (heads[0], heads[1], heads[1], heads[0])]
    return [factor * torch.randn(shape, generator=draw).transpose(1, 2) for shape in shapes]


def passed(kernel: Sdpa | Naive, given: list[Tensor], view: View, scoring: Scoring) -> list[Tensor]:
    """What comes out, and the gradients by queries, keys and values."""
    leaves = [x.detach().clone().requires_grad_() for x in given[:3]]
    out = kernel.attend(*leaves, view, scoring)
    return [out.detach(), *torch.autograd.grad(out, leaves, given[3])]


def triangle(length: int, batch: int = 2) -> View:
    tags = Tags.dense(batch, length, device="cpu")
    return View(Causal(), tags, tags)


def own_passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each pass of ours has, from now on."""
    passes, apply = list[int](), attending._Causal.apply
    monkeypatch.setattr(
        attending._Causal, "apply", lambda query, *rest: (passes.append(len(query)), apply(query, *rest))[1]
    )
    return passes


@pytest.mark.parametrize(("length", "heads", "width"), GRID)
def test_every_shape(length: int, heads: tuple[int, int], width: int, alone: None) -> None:
    given, scoring = drawn(length, heads, width), Scoring(width**-0.5)
    found = passed(OnTorchsThreads(), given, triangle(length), scoring)
    right = passed(Naive(), [x.double() for x in given], triangle(length), scoring)
    for name, own, expected in zip(("out", "query", "key", "value"), found, right, strict=True):
        largest = max(1.0, float(expected.abs().max()))  # what cancels is as far off as what it is made of
        assert float((own.double() - expected).abs().max()) <= 3e-6 * largest, name


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_threads_change_no_bit(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given, before, passes = drawn(100, (4, 2), 24, batch=4), torch.get_num_threads(), own_passes(monkeypatch)
    found = []
    try:
        for number in (1, threads):
            torch.set_num_threads(number)
            found.append(passed(OnTorchsThreads(), given, triangle(100, 4), Scoring(0.2)))
    finally:
        torch.set_num_threads(before)
    assert passes == [4, 4]
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("layout", ["projection", "heads first", "a part of a wider one"])
def test_any_layout(layout: str, alone: None) -> None:
    given = drawn(50, (2, 2), 16)
    if layout == "heads first":
        given = [x.contiguous() for x in given]
    elif layout == "a part of a wider one":
        given = [torch.cat([x, x], -1)[..., 16:] for x in given]
    found, same = (passed(OnTorchsThreads(), x, triangle(50), Scoring(0.25)) for x in (given, drawn(50, (2, 2), 16)))
    assert all(torch.equal(a, b) for a, b in zip(found, same, strict=True))


@pytest.mark.parametrize("factor", [1e-4, 30.0, 300.0])
def test_scores_of_any_size(factor: float, alone: None) -> None:
    """Softmax is even, or all in one place: nothing overflows, and nothing is lost that float32 holds."""
    given = [x if n > 1 else factor * x for n, x in enumerate(drawn(300, (2, 1), 16))]
    found = passed(OnTorchsThreads(), given, triangle(300), Scoring(0.25))
    right = passed(Sdpa(), given, triangle(300), Scoring(0.25))
    for own, expected in zip(found, right, strict=True):
        assert own.isfinite().all()
        assert float((own - expected).abs().max()) <= 1e-3 * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_is_no_number_shows_and_stays_where_it_is_seen(place: int, alone: None) -> None:
    """A query's affects its own output; a key's, or a value's, those of itself and what follows."""
    given = drawn(60, (2, 2), 8)
    given[place] = given[place].clone()
    given[place][0, 0, 20] = torch.nan
    out = OnTorchsThreads().attend(*given[:3], triangle(60), Scoring(0.3))
    broken = out.isnan().any(-1)
    assert broken[0, 0, 20 : 21 if place == 0 else None].all()
    assert not broken[1].any() and not broken[0, 1].any()
    if place < 2:  # a share of nothing of a value that is no number is none either
        assert broken.sum() == (1 if place == 0 else 40)


def test_more_than_a_triangle_is_torchs(monkeypatch: pytest.MonkeyPatch, alone: None) -> None:
    passes, given = own_passes(monkeypatch), drawn(20, (2, 2), 8)
    tags = Tags.dense(2, 20, device="cpu")
    for rule in (Full(), Window(4)):
        view = View(rule, tags, tags)
        found, right = (passed(kernel, given, view, Scoring(0.3)) for kernel in (OnTorchsThreads(), Sdpa()))
        assert all(torch.equal(a, b) for a, b in zip(found, right, strict=True))
    for dtype in (torch.float64, torch.bfloat16):
        other = [x.to(dtype) for x in given]
        found, right = (passed(kernel, other, triangle(20), Scoring(0.3)) for kernel in (OnTorchsThreads(), Sdpa()))
        assert all(torch.equal(a, b) for a, b in zip(found, right, strict=True))
    with torch.autocast("cpu", torch.bfloat16):
        assert OnTorchsThreads().attend(*given[:3], triangle(20), Scoring(0.3)).dtype == torch.bfloat16
    OnTorchsThreads().attend(*given[:3], triangle(20), Scoring(0.3, dropout=0.5))
    assert not passes
    OnTorchsThreads().attend(*given[:3], triangle(20), Scoring(0.3))
    assert passes == [2]


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_model_learns_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain rows by ours, padded ones by torch's; the same gradients either way."""
    sizes = [("vocab_size", 13), ("d_model", 32), ("n_layers", 2), ("n_heads", 4), ("context_length", 64)]
    config, passes = override(preset(name), sizes), own_passes(monkeypatch)
    ids = torch.randint(13, (8, 60), generator=torch.Generator().manual_seed(0))
    for padded in (False, True):
        tags = Tags.padded(torch.arange(60) < torch.tensor([60, 30] * 4)[:, None]) if padded else None
        slopes = []
        for model in (Transformer(config, seed=1).eval(), recompute_activations(Transformer(config, seed=1)).eval()):
            model(ids, **({} if tags is None else {"tags": tags})).logsumexp(-1).sum().backward()
            slopes.append([weight.grad for weight in model.parameters()])
        assert bool(passes) is not padded
        passes.clear()
        for own, expected in zip(*slopes, strict=True):
            assert own is not None and expected is not None
            assert float((own - expected).norm()) <= 1e-5 * float(expected.norm()) + 1e-6


def test_a_kernel_that_was_chosen_stays() -> None:
    """`sdpa` is the default; who names another one wants that."""
    for kernel in (Naive(), Flash()):
        config = override(preset("gpt2"), [("n_layers", 1), ("attention.kernel", {"kind": kernel.kind})])
        model = recompute_activations(Transformer(config))
        assert {type(own.kernel) for own in model.modules() if isinstance(own, Attention)} == {type(kernel)}
