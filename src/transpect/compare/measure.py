"""The loss of a trained model on rows longer than it was trained on: over all of a row, and over its last part.

Axes: B batch, T query, D model, N labelled tokens, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from transpect.base.errors import DataError
from transpect.compare.rows import Rows
from transpect.core.model import Transformer
from transpect.data.batch import IGNORE
from transpect.train.evaluate import evaluating
from transpect.train.loss import labelled, logits_of, pieces_of
from transpect.train.precision import Precision, arithmetic


@dataclass(frozen=True)
class Measured:
    """What a model lost at one length.

    Attributes:
        loss: mean −ln p over all labels, nats a token.
        last: the same over the labels of the last L places of each row, where L is the training length: what a model
            does with what it has never seen, unmixed with what it has.
        n_rows: how many rows.
        n_tokens: how many labels.
    """

    loss: float
    last: float
    n_rows: int
    n_tokens: int


@torch.no_grad()
def measure(model: Transformer, rows: Rows, *, batch_size: int, precision: Precision = "fp32") -> Measured:
    """Measure a model on full rows; sums are in float64.

    Args:
        batch_size: rows at a time of the training length, fewer of a greater one.

    Raises:
        DataError: nothing to predict in the last parts.
    """
    device = model.device
    total, late = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    n_total = n_late = 0
    with evaluating(model):
        for batch in rows.batches(batch_size // rows.times):
            is_last = torch.arange(batch.ids.shape[1]).expand(batch.ids.shape) >= (rows.times - 1) * rows.part
            is_last = is_last[batch.labels != IGNORE]  # [N], in the order of `labelled`
            moved = batch.to(device)
            with arithmetic(precision, device):
                hidden, labels = labelled(model, moved)
            parts = []
            for piece, answers in pieces_of(hidden, labels, model.config.vocab_size):
                with arithmetic(precision, device):
                    logits = logits_of(model, piece, moved)
                parts.append(functional.cross_entropy(logits.float(), answers, reduction="none"))
            losses = torch.cat(parts).cpu().double()  # [N]
            total += losses.sum()
            late += losses[is_last].sum()
            n_total += len(losses)
            n_late += int(is_last.sum())
    if not n_late:
        raise DataError("the last part of some row must hold something to predict", remedy="Evaluate on more text.")
    return Measured(float(total) / n_total, float(late) / n_late, len(rows.examples), n_total)
