"""Threads that read pieces side by side give the update that one gives, and the same bits every time."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from transpect.core import Tags, Transformer, override, preset
from transpect.data.batch import IGNORE, Batch
from transpect.train import pieces
from transpect.train.accumulating import Linear, Table
from transpect.train.criteria import CROSS_ENTROPY
from transpect.train.optimizers import Sgd
from transpect.train.products import onto_gradients
from transpect.train.readers import LARGEST, Readers, how_many, over_the_same_weights, readers_of
from transpect.train.recompute import recompute_activations
from transpect.train.updates import Update, update

V, B, T = 13, 5, 6
SMALL = {"vocab_size": V, "d_model": 16, "n_layers": 2, "n_heads": 2, "context_length": 8}
STILL = {"dropout": 0.0, "attention.dropout": 0.0, "embedding.dropout": 0.0}
PAIRS = ("t5-small", "transformer-base")
NAMES = ("gpt2", "llama", "bert-base", *PAIRS)


def batch_of(seed: int, *, source: bool = False) -> Batch:
    """Padded rows, one of which has nothing to predict."""
    draw = torch.Generator().manual_seed(seed)
    ids, labels = (torch.randint(V, (B, T), generator=draw) for _ in range(2))
    real = torch.arange(T) < torch.tensor([T, 3, 5, 1, 4])[:, None]
    labels[~real] = IGNORE
    labels[3] = IGNORE
    more: dict[str, Any] = {"source_ids": ids.flip(1), "source_tags": Tags.padded(real.flip(0))} if source else {}
    return Batch(ids, Tags.padded(real), labels, **more)


def model_of(name: str, **settings: Any) -> Transformer:
    still = STILL | ({"ffn.dropout": 0.0} if name == "t5-small" else {})
    config = override(preset(name), [*{**SMALL, **still}.items(), *settings.items()])
    return recompute_activations(Transformer(config, seed=0).train())


def updated(model: Transformer, readers: Readers | None, name: str, smoothing: float = 0.0) -> tuple[Tensor, Update]:
    """The weights after two updates, and the second one."""
    criterion = type(CROSS_ENTROPY)(smoothing)
    optimizer = Sgd().build(model)
    for seed in (1, 3):
        batches = [batch_of(seed + n, source=name in PAIRS) for n in range(2)]
        done = update(model, optimizer, batches, rate=0.1, clip=0.5, criterion=criterion, readers=readers)
    return torch.cat([weight.detach().flatten() for weight in model.parameters()]), done


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "BESIDE", 2 * T)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_readers_make_the_update_of_one(name: str, count: int, smoothing: float) -> None:
    whole, one = updated(model_of(name), None, name, smoothing)
    found = []
    for _ in range(2):
        model = model_of(name)
        found.append(updated(model, Readers(model, count), name, smoothing))
    (weights, done), (again, _) = found
    assert torch.equal(weights, again)
    assert float((weights - whole).norm()) <= 1e-6 * float(whole.norm())
    assert float(done.loss) == pytest.approx(float(one.loss), rel=1e-6)
    assert float(done.grad_norm) == pytest.approx(float(one.grad_norm), rel=1e-5)
    assert all(weight.grad is None for weight in model.parameters())


def test_frozen_weights_stay_and_exchanged_ones_are_followed() -> None:
    found = []
    for count in (1, 2):
        model = model_of("gpt2")
        model.token.weight.requires_grad_(False)
        readers = Readers(model, count)
        with torch.no_grad():
            for weight in model.parameters():  # as an average that is evaluated does
                weight.data = weight.detach() * 1.5
        before = model.token.weight.detach().clone()
        found.append(updated(model, readers, "gpt2")[0])
        assert torch.equal(model.token.weight, before)
    assert float((found[0] - found[1]).norm()) <= 1e-6 * float(found[0].norm())


def test_another_model_over_the_same_weights_has_its_own_gradient() -> None:
    model = model_of("gpt2")
    other = over_the_same_weights(model)
    for own, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert own is not theirs
        assert own.data_ptr() == theirs.data_ptr()
        assert own.requires_grad == theirs.requires_grad
    assert other.token.weight.data_ptr() == model.token.weight.data_ptr()
    assert len([*other.parameters()]) == len([*model.parameters()])  # what is tied stays so


def test_who_draws_numbers_reads_alone() -> None:
    torch.set_num_threads(max(2, torch.get_num_threads()))
    assert how_many(model_of("gpt2")) == readers_of(model_of("gpt2")).count == 2
    assert how_many(model_of("gpt2"), compiled=True) == 1
    for setting in STILL:
        assert how_many(model_of("gpt2", **{setting: 0.1})) == 1
    with torch.device("meta"):
        assert how_many(Transformer(override(preset("gpt2"), STILL.items()))) == 1
    assert sum(weight.numel() for weight in Transformer(preset("gpt2")).parameters()) > LARGEST


def test_what_a_reader_raises_is_raised_and_threads_are_given_back() -> None:
    model, threads = model_of("gpt2"), torch.get_num_threads()
    readers = Readers(model, 2)
    batches = [batch_of(1), batch_of(2)]

    def mean(reader: Transformer, batch: Batch) -> Tensor:
        if batch is batches[1]:
            raise ZeroDivisionError
        return CROSS_ENTROPY.training(reader, batch).losses[0]

    with pytest.raises(ZeroDivisionError):
        readers.accumulate(batches, mean, 1.0)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("name", NAMES)
def test_only_backward_adds_to_gradients_that_are_there(name: str) -> None:
    model = model_of(name)
    batch = batch_of(1, source=name in PAIRS)
    weights = [*model.parameters()]

    def loss() -> Tensor:
        return CROSS_ENTROPY.training(model, batch).losses[0]

    def flat(gradients: Any) -> Tensor:
        return torch.cat([gradient.detach().flatten() for gradient in gradients])

    torch.autograd.backward(loss())
    first = flat(weight.grad for weight in weights)
    assert float((flat(torch.autograd.grad(loss(), weights)) - first).norm()) <= 1e-5 * float(first.norm())
    with onto_gradients():
        torch.autograd.backward(3.0 * loss())
    assert float((flat(weight.grad for weight in weights) - 4.0 * first).norm()) <= 1e-5 * float(first.norm())


@pytest.mark.parametrize("shape", [(0,), (2, 0), (3,), (2, 3)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer_of_any_number_of_rows_is_torchs(shape: tuple[int, ...], bias: bool) -> None:
    plain = torch.nn.Linear(5, 4, bias=bias)
    x = torch.arange(1.0, 1 + 5 * math.prod(shape)).view(*shape, 5).requires_grad_()
    found, expected = (
        torch.autograd.grad(layer(x).square().sum(), [x, *plain.parameters()]) for layer in (Linear.over(plain), plain)
    )
    assert all(torch.allclose(own, theirs) for own, theirs in zip(found, expected, strict=True))


@pytest.mark.parametrize("shape", [(0,), (2, 0), (3,), (2, 3)])
def test_a_table_of_any_number_of_rows_is_torchs(shape: tuple[int, ...]) -> None:
    plain = torch.nn.Embedding(7, 4)
    ids = torch.arange(math.prod(shape)).view(shape) % 2
    found = [torch.autograd.grad(layer(ids).square().sum(), plain.weight)[0] for layer in (plain, Table.over(plain))]
    assert torch.allclose(found[0], found[1])
