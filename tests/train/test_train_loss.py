"""The gradient of an update is that of one large batch, whatever the micro-batches, and what plain torch gives.

Axes: B batch, T query, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from transpect.base.errors import ConfigError, DataError
from transpect.core import ModelConfig, Pooled, Tags, Transformer, override, preset
from transpect.data.batch import IGNORE, Batch
from transpect.train import AdamW, cross_entropy, loss, update
from transpect.train.criteria import TokenCrossEntropy
from transpect.train.loss import accumulate_gradient, check_head, summed_loss
from transpect.train.updates import clip_gradient, draw

V, B, T = 13, 6, 7
SMALL = [("vocab_size", V), ("d_model", 16), ("n_layers", 1), ("n_heads", 2), ("d_ff", 24), ("context_length", 16)]
NO_DROPOUT = [("dropout", 0.0), ("attention.dropout", 0.0), ("embedding.dropout", 0.0)]
KINDS = {"decoder": "gpt2", "untied": "llama", "encoder": "bert-base", "encoder-decoder": "transformer-base"}


def config_of(kind: str, *, dropout: bool = False) -> ModelConfig:
    return override(preset(KINDS[kind]), SMALL + ([] if dropout else NO_DROPOUT))


def batch_of(kind: str, seed: int = 0, rows: int = B) -> Batch:
    """Rows with padding and with labels here and there, in each row another number of them; the second has none."""
    g = torch.Generator().manual_seed(seed)
    ids, labels = torch.randint(V, (2, rows, T), generator=g)
    keep = torch.rand(rows, T, generator=g) < torch.linspace(0.3, 1.0, rows)[:, None]
    keep[:, 0], keep[1 % rows] = True, False
    lengths = torch.randint(2, T + 1, (rows,), generator=g)
    tags = Tags.padded(torch.arange(T) < lengths[:, None])
    labels = labels.masked_fill(~keep | (tags.position < 0), IGNORE)
    batch = Batch(ids, tags, labels)
    if kind != "encoder-decoder":
        return batch
    return replace(batch, source_ids=ids.flip(0), source_tags=tags.rows(torch.arange(rows - 1, -1, -1)))


def cut(batch: Batch, sizes: Sequence[int]) -> list[Batch]:
    """The rows of a batch as micro-batches of some sizes."""
    parts = []
    for index in torch.arange(sum(sizes)).split(list(sizes)):
        part = Batch(batch.ids[index], batch.tags.rows(index), batch.labels[index])
        if batch.source_ids is not None and batch.source_tags is not None:
            part = replace(part, source_ids=batch.source_ids[index], source_tags=batch.source_tags.rows(index))
        parts.append(part)
    return parts


def gradient(model: Transformer, parts: Sequence[Batch], smoothing: float = 0.0) -> Tensor:
    """All gradients of the mean loss in one vector."""
    model.zero_grad()
    n_labels = sum(part.n_labels for part in parts)
    for part in parts:
        if part.n_labels:
            accumulate_gradient(model, part, n_labels=n_labels, smoothing=smoothing)
    return torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])


def plain_gradient(model: Transformer, batch: Batch, smoothing: float = 0.0) -> Tensor:
    """The same as a textbook would: all logits, torch's mean."""
    model.zero_grad()
    options: dict[str, Any] = {"tags": batch.tags}
    if batch.source_ids is not None:
        options["source"] = model.encode(batch.source_ids, tags=batch.source_tags)
    logits = model(batch.ids, **options)
    functional.cross_entropy(
        logits.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORE, label_smoothing=smoothing
    ).backward()
    return torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])


def distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("sizes", [(6,), (3, 3), (1, 5), (1, 1, 4), (1, 1, 1, 1, 1, 1)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_micro_batches_give_the_gradient_of_one_batch(
    kind: str, sizes: tuple[int, ...], smoothing: float, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pieces > 1:
        monkeypatch.setattr(loss, "LOGITS_AT_ONCE", V * 4)
    model, batch = Transformer(config_of(kind)), batch_of(kind)
    parts = cut(batch, sizes)
    if len(sizes) > 2:
        assert parts[1].n_labels == 0
    assert distance(gradient(model, parts, smoothing), plain_gradient(model, batch, smoothing)) <= 1e-6
    exact = model.double()
    assert distance(gradient(exact, parts, smoothing), plain_gradient(exact, batch, smoothing)) <= 1e-14


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_micro_batches_with_ten_labels_and_with_two(smoothing: float) -> None:
    """Each weighs by its labels: what a mean of means gets wrong by the most."""
    model = Transformer(config_of("decoder"))
    ids = torch.randint(V, (4, T), generator=torch.Generator().manual_seed(1))
    labels = torch.full_like(ids, IGNORE)
    labels[0, :], labels[1, :3], labels[2, 5:] = ids[3], ids[3, :3], ids[3, 5:]
    whole = Batch(ids, Tags.dense(4, T), labels)
    parts = cut(whole, (2, 1, 1))
    assert [part.n_labels for part in parts] == [10, 2, 0]
    assert distance(gradient(model, parts, smoothing), plain_gradient(model, whole, smoothing)) <= 1e-6


def test_a_mean_of_means_would_be_something_else() -> None:
    model, batch = Transformer(config_of("decoder")), batch_of("decoder")
    parts = [part for part in cut(batch, (1, 5)) if part.n_labels]
    assert len(parts) == 2
    wrong = torch.stack([plain_gradient(model, part) for part in parts]).mean(0)
    assert distance(wrong, plain_gradient(model, batch)) > 0.01


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_sum_is_its_formula_over_labels_alone(smoothing: float, dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(3)
    logits = torch.randn(9, V, generator=g).to(dtype)
    labels = torch.randint(V, (9,), generator=g)
    labels[[2, 5]] = IGNORE
    expected = 0.0
    for row, label in zip(logits.double(), labels.tolist(), strict=True):
        if label != IGNORE:
            log_p = row - row.logsumexp(0)
            expected -= float((1 - smoothing) * log_p[label] + smoothing * log_p.mean())
    total = summed_loss(logits, labels, smoothing)
    assert total.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert float(total) == pytest.approx(expected, rel=1e-5)


def test_a_label_counts_by_its_place_even_where_it_is_the_padding_id() -> None:
    """Case 21: with pad = EOS the first EOS is a label like any other."""
    model, pad = Transformer(config_of("decoder")), 0
    ids = torch.tensor([[3, 4, 5, pad]])
    labels = torch.tensor([[4, 5, pad, IGNORE]])
    batch = Batch(ids, Tags.padded(torch.tensor([[True, True, True, False]])), labels)
    assert batch.n_labels == 3
    total = accumulate_gradient(model, batch, n_labels=3)
    logits = model(ids[:, :3])
    assert float(total) == pytest.approx(
        functional.cross_entropy(logits[0], labels[0, :3], reduction="sum").item(), rel=1e-6
    )


def test_a_head_without_logits_for_each_token_is_refused() -> None:
    with pytest.raises(ConfigError, match="logits for each token"):
        check_head(Transformer(replace(config_of("encoder"), head=Pooled())))


@pytest.mark.parametrize("clip", [None, 0.05, 0.5, 1e3])
@pytest.mark.parametrize("kind", KINDS)
def test_an_update_is_the_one_of_plain_torch(kind: str, clip: float | None) -> None:
    """Three steps of AdamW with clipping and accumulation, against a loop as everyone writes it.

    In float64: a key's bias has no gradient but rounding, and Adam makes full steps of that where it is above eps.
    """
    ours, theirs = Transformer(config_of(kind)).double(), Transformer(config_of(kind)).double()
    optimizer = AdamW(weight_decay=0.1).build(ours)
    decayed = [p for n, p in theirs.named_parameters() if p.ndim > 1 and "token." not in n and "table" not in n]
    others = [p for p in theirs.parameters() if all(p is not q for q in decayed)]
    reference = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        betas=(0.9, 0.95),
        eps=1e-8,
        foreach=False,
    )
    for step, rate in enumerate((1e-2, 2e-2, 5e-3)):
        batch = batch_of(kind, seed=step)
        done = update(ours, optimizer, cut(batch, (2, 1, 3)), rate=rate, clip=clip, criterion=TokenCrossEntropy(0.1))
        plain_gradient(theirs, batch, 0.1)
        norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), clip or 1e9)
        for group in reference.param_groups:
            group["lr"] = rate
        reference.step()
        assert float(done.grad_norm) == pytest.approx(float(norm), rel=1e-5)
        assert done.n_labels == batch.n_labels
        assert done.n_tokens == batch.n_tokens
        assert all(weight.grad is None for weight in ours.parameters())
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=0.0, atol=1e-8), name


@pytest.mark.parametrize("limit", [1e-3, 0.1, 1.0, 50.0, None])
def test_clipping_is_torchs_and_reports_the_norm_from_before(limit: float | None) -> None:
    ours, theirs = (torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Linear(4, 3)) for _ in range(2))
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        a.grad = torch.randn(a.shape, generator=torch.Generator().manual_seed(a.numel()))
        b.grad = a.grad.clone()
    norm = clip_gradient(ours, limit)
    expected = torch.nn.utils.clip_grad_norm_(theirs.parameters(), limit or float("inf"))
    assert float(norm) == float(expected)
    assert 1.0 < float(norm) < 50.0
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert a.grad is not None and b.grad is not None
        assert torch.allclose(a.grad, b.grad, rtol=2e-6, atol=0.0)


def test_draws_again_where_nothing_is_labelled_and_gives_up_at_last() -> None:
    full = batch_of("decoder")
    empty = replace(full, labels=torch.full_like(full.labels, IGNORE))
    assert draw(iter([empty, empty, empty, full]), 2)[1] is full
    with pytest.raises(DataError, match="at least one label"):
        draw(iter([empty] * 1000), 3)


def test_only_labelled_tokens_pass_through_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = Transformer(config_of("encoder")), batch_of("encoder")
    seen: list[int] = []
    model.head.get_submodule("dense").register_forward_pre_hook(lambda _module, args: seen.append(len(args[0])))
    widths: list[int] = []
    plain = cross_entropy.label_loss
    monkeypatch.setattr(cross_entropy, "label_loss", lambda x, *a, **k: (widths.append(len(x)), plain(x, *a, **k))[1])
    accumulate_gradient(model, batch, n_labels=batch.n_labels)
    assert seen == widths == [batch.n_labels]
    monkeypatch.setattr(loss, "LOGITS_AT_ONCE", V * 4)
    accumulate_gradient(model, batch, n_labels=batch.n_labels)
    assert max(widths[1:]) == 4
    assert sum(widths[1:]) == batch.n_labels


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_head_alone_can_be_trained(pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = Transformer(config_of("encoder")), batch_of("encoder")
    for weight in [*model.token.parameters(), *model.towers.parameters()]:
        weight.requires_grad_(False)
    if pieces > 1:
        monkeypatch.setattr(loss, "LOGITS_AT_ONCE", V * 4)
    accumulate_gradient(model, batch, n_labels=batch.n_labels)
    reached = {name for name, weight in model.named_parameters() if weight.grad is not None}
    assert reached == {name for name, _ in model.named_parameters() if name.startswith("head.")}


def test_pieces_use_the_dropout_of_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = Transformer(config_of("decoder", dropout=True)).train(), batch_of("decoder")
    torch.manual_seed(5)
    whole = gradient(model, [batch])
    monkeypatch.setattr(loss, "LOGITS_AT_ONCE", V * 3)
    torch.manual_seed(5)
    assert distance(gradient(model, [batch]), whole) <= 1e-6
