"""An update whose micro-batches are read piece by piece is the update of whole ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from transpect.core import Tags, Transformer, override, preset
from transpect.data.batch import IGNORE, Batch
from transpect.train import pieces
from transpect.train.criteria import CROSS_ENTROPY
from transpect.train.criteria.contrastive import Contrast
from transpect.train.optimizers import Sgd
from transpect.train.parallel.world import ALONE
from transpect.train.updates import update

V, B, T = 13, 5, 6
SMALL = {"vocab_size": V, "d_model": 16, "n_layers": 1, "n_heads": 2, "context_length": 8}
STILL = {"dropout": 0.0, "attention.dropout": 0.0, "embedding.dropout": 0.0}


def batch_of(seed: int, *, source: bool = False) -> Batch:
    """Padded rows, one of which has nothing to predict."""
    draw = torch.Generator().manual_seed(seed)
    ids, labels = (torch.randint(V, (B, T), generator=draw) for _ in range(2))
    lengths = torch.tensor([T, 3, 5, 1, 4])[:, None]
    real = torch.arange(T) < lengths
    labels[~real] = IGNORE
    labels[3] = IGNORE
    more: dict[str, Any] = {"source_ids": ids.flip(1), "source_tags": Tags.padded(real.flip(0))} if source else {}
    return Batch(ids, Tags.padded(real), labels, **more)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", ["gpt2", "bert-base", "transformer-base"])
def test_pieces_of_any_size_give_the_same_update(name: str, smoothing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    config = override(preset(name), [*SMALL.items(), *STILL.items()])
    criterion = type(CROSS_ENTROPY)(smoothing)
    batches = [batch_of(seed, source=name == "transformer-base") for seed in (1, 2)]
    found = []
    for at_once in (10**6, 30, 13, 1):
        monkeypatch.setattr(pieces, "AT_ONCE", at_once)
        model = Transformer(config, seed=0)
        done = update(model, Sgd().build(model), batches, rate=0.1, clip=0.5, criterion=criterion)
        weights = torch.cat([weight.detach().flatten() for weight in model.parameters()])
        found.append((weights, done))
    weights, whole = found[0]
    for others, done in found[1:]:
        assert float((others - weights).norm()) <= 1e-6 * float(weights.norm())
        assert float(done.loss) == pytest.approx(float(whole.loss), rel=1e-6)
        assert float(done.grad_norm) == pytest.approx(float(whole.grad_norm), rel=1e-5)
        assert (done.n_labels, done.n_tokens) == (whole.n_labels, whole.n_tokens)


@pytest.mark.parametrize(
    ("rows", "tokens", "each"), [(16, 256, 8), (16, 128, 16), (1, 9000, 1), (3, 4096, 1), (10, 1024, 2), (32, 100, 16)]
)
def test_rows_are_shared_out_evenly(rows: int, tokens: int, each: int) -> None:
    assert pieces.rows_at_once(rows, tokens) == each


def test_every_row_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "AT_ONCE", 2 * T)
    batch = batch_of(0)
    read = list(pieces.pieces([batch], CROSS_ENTROPY))
    assert [len(piece.ids) for piece in read] == [2, 2, 1]
    assert torch.equal(torch.cat([piece.labels for piece in read]), batch.labels)


def test_rows_that_readers_share_are_read_by_smaller_pieces() -> None:
    assert [pieces.rows_at_once(16, 256, readers) for readers in (1, 2, 4)] == [8, 2, 2]
    assert [pieces.rows_at_once(4, 1025, readers) for readers in (1, 2)] == [2, 2]  # too long to be read side by side
    assert pieces.rows_at_once(4, 1024, 2) == 1


def test_what_looks_at_rows_beside_each_other_reads_them_whole() -> None:
    batch = batch_of(0)
    assert pieces.can_be_cut([batch], CROSS_ENTROPY, torch.device("cpu"), ALONE)
    for criterion, device in ((Contrast(), "cpu"), (CROSS_ENTROPY, "meta")):
        assert not pieces.can_be_cut([batch], criterion, torch.device(device), ALONE)
