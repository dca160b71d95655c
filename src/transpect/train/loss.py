"""Token cross-entropy, summed; and its gradient for one micro-batch of an update.

Axes: B batch, T query, D model, N labelled tokens, V vocabulary.

The loss of an update is the sum over all its labels divided by their number, however the labels are spread over
micro-batches. A mean of means would weigh a token in a short micro-batch more than one in a long one.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from transpect.base.errors import ConfigError
from transpect.core.context import NO_MEMORY, NO_SOURCE, Memory
from transpect.core.heads import CausalLM, MaskedLM, TokenClass
from transpect.core.model import Transformer
from transpect.data.batch import IGNORE, Batch
from transpect.train.cross_entropy import Readout, features_of, summed_cross_entropy
from transpect.train.precision import Precision, arithmetic

PER_TOKEN = (CausalLM, MaskedLM, TokenClass)
LOGITS_AT_ONCE = 2**24
"""How many logits exist at a time: 64 MiB in float32, and as much again for what is computed of them."""
IN_CACHE = 2**21
"""The same for training on a CPU: 8 MiB, which lie in the last cache with their slopes, also where two threads have as
many (`transpect.train.readers`)."""


def check_head(model: Transformer) -> None:
    """Refuse a head that has no logits for each token.

    Raises:
        ConfigError: the model gives one vector or one class a sequence.
    """
    if not isinstance(model.config.head, PER_TOKEN):
        raise ConfigError(
            "token cross-entropy needs a head with logits for each token",
            value=model.config.head.kind,
            remedy=f"Choose one of {', '.join(head.kind for head in PER_TOKEN)}.",
        )


def summed_loss(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Σ over labels of (1 − ε) · (−log p(label)) + ε/V · Σ_v (−log p(v)), in nats, at least in float32.

    Args:
        logits: [N, V].
        labels: [N]; IGNORE is left out of both terms, so padding is never smoothed towards.
        smoothing: ε (Szegedy et al. 2016, §7).
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return functional.cross_entropy(wide, labels, ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing)


def accumulate_gradient(
    model: Transformer,
    batch: Batch,
    *,
    n_labels: int,
    smoothing: float = 0.0,
    precision: Precision = "fp32",
    memory: Memory = NO_MEMORY,
) -> Tensor:
    """Add the gradient of (summed loss of ``batch``) / ``n_labels`` to the weights' own.

    Args:
        batch: a micro-batch, on the model's device.
        n_labels: the labels of the whole update.
        smoothing: as in `summed_loss`.
        precision: of the arithmetic.
        memory: of the batches that this one goes on from; no gradient goes into it.

    Returns:
        the summed loss of ``batch``, without a graph.
    """
    with arithmetic(precision, batch.ids.device):
        loss = training_loss(model, batch, smoothing, memory)
    torch.autograd.backward(loss / n_labels)
    return loss.detach()


def training_loss(
    model: Transformer, batch: Batch, smoothing: float = 0.0, memory: Memory = NO_MEMORY, scale: float = 1.0
) -> Tensor:
    """The summed loss of ``batch`` in nats, to be differentiated.

    Only labelled tokens pass through the head, and only as many at a time as `rows_at_once` says have logits. For
    ``scale`` see `summed_over_logits`.
    """
    readout = Readout.of(model)
    hidden, labels = labelled(model, batch, memory)
    at_once = rows_at_once(readout.weight)
    features = features_of(model, hidden)
    return summed_cross_entropy(features, labels, readout, smoothing=smoothing, at_once=at_once, scale=scale)


def evaluation_loss(model: Transformer, batch: Batch, memory: Memory = NO_MEMORY) -> Tensor:
    """The summed loss of ``batch`` in nats, without smoothing; call it under `torch.no_grad`."""
    hidden, labels = labelled(model, batch, memory)
    pieces = pieces_of(hidden, labels, model.config.vocab_size)
    return torch.stack([summed_loss(logits_of(model, piece, batch), answers) for piece, answers in pieces]).sum()


def labelled(model: Transformer, batch: Batch, memory: Memory = NO_MEMORY) -> tuple[Tensor, Tensor]:
    """What the head should read for the tokens that have labels, [N, D], and the labels, [N]."""
    source = NO_SOURCE
    if batch.source_ids is not None:
        source = model.encode(batch.source_ids, tags=batch.source_tags)
    hidden = model.hidden(batch.ids, tags=batch.tags, token_types=batch.token_types, source=source, memory=memory)
    rows, labels = hidden.flatten(0, 1), batch.labels.flatten()  # [B·T, D], [B·T]
    index = (labels != IGNORE).nonzero().squeeze(-1)
    return (rows, labels) if len(index) == len(labels) else (rows.index_select(0, index), labels[index])


def logits_of(model: Transformer, rows: Tensor, batch: Batch) -> Tensor:
    """[N, D] -> [N, V]; a head with logits for each token reads no tags."""
    logits: Tensor = model.head(rows, batch.tags, model.token.weight)
    return logits


def rows_at_once(weight: Tensor) -> int:
    """How many tokens may have logits at a time in training, for a head's weight [V, W]."""
    logits = min(LOGITS_AT_ONCE, IN_CACHE) if weight.device.type == "cpu" else LOGITS_AT_ONCE
    return max(1, logits // len(weight))


def pieces_of(hidden: Tensor, labels: Tensor, vocab_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """What the head should read, and the labels, by so many tokens at a time that their logits may exist together."""
    size = max(1, LOGITS_AT_ONCE // vocab_size)
    return zip(torch.split(hidden, size), torch.split(labels, size), strict=True)
