"""The table of filters: who asks for each, what it goes by, and in which order they are applied.

A new filter is a function in this package, a field in `FilterParams`, and a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from transpect.decode.filters import bans, endings, penalties, truncation
from transpect.decode.filters.dry import Dry, dry
from transpect.decode.trace import Trace

if TYPE_CHECKING:
    from transpect.decode.params import GenerationParams

Rows = Sequence["GenerationParams"]


@dataclass(frozen=True)
class Filter:
    """A row of the table.

    Attributes:
        name: of the field that it belongs to.
        asks: whether a row wants it. It is applied to the rows that do, and to no others.
        values: what it goes by, for rows, V and a device. Made once for a batch.
        apply: logits [B, V] and values of the rows that ask, and their past, to logits [B, V].
    """

    name: str
    asks: Callable[[GenerationParams], bool]
    values: Callable[[Rows, int, torch.device], Any]
    apply: Callable[[Tensor, Any, Sequence[Trace]], Tensor]


def _rules(rows: Rows, size: int, device: torch.device) -> bans.Rules:
    waits = any(row.ends and (row.min_new_tokens or row.min_length) for row in rows)
    banned = _marked([row.banned for row in rows], size, device) if any(row.banned for row in rows) else None
    return bans.Rules(
        banned=banned,
        ends=_marked([row.ends for row in rows], size, device) if waits else None,
        least_new=[row.min_new_tokens for row in rows],
        least=[row.min_length for row in rows],
    )


def _marked(tokens: Sequence[Sequence[int]], size: int, device: torch.device) -> Tensor:
    """[B, V] bool; ids from V on are passed over."""
    marked = torch.zeros(len(tokens), size, dtype=torch.bool)
    for i, own in enumerate(tokens):
        marked[i, [token for token in own if token < size]] = True
    return marked.to(device)


def _biases(rows: Rows, size: int, device: torch.device) -> Tensor:
    bias = torch.zeros(len(rows), size, dtype=torch.float64)
    for i, row in enumerate(rows):
        bias[i, [token for token, _ in row.logit_bias]] = bias.new_tensor([value for _, value in row.logit_bias])
    return bias.to(device)


def _forced(rows: Rows, size: int, device: torch.device) -> list[tuple[list[int], int]]:
    return [
        ([token for token in row.forced_eos_token_id if token < size and token not in row.banned], row.max_new_tokens)
        for row in rows
    ]


def _decay(logits: Tensor, rows: Rows, traces: Sequence[Trace]) -> Tensor:
    decay = [row.exponential_decay_length_penalty or (0, 1.0) for row in rows]
    ends = [[token for token in row.ends if token < logits.shape[-1]] for row in rows]
    return penalties.exponential_decay_length_penalty(logits, decay, ends, traces)


def _dry(row: GenerationParams) -> Dry:
    return Dry(
        row.dry_multiplier, row.dry_base, row.dry_allowed_length, row.dry_penalty_last_n, row.dry_sequence_breakers
    )


def _number(name: str, off: float, apply: Callable[[Tensor, Tensor, Sequence[Trace]], Tensor]) -> Filter:
    """A filter with one number a row, in a field of its own name."""
    return Filter(
        name,
        lambda row: getattr(row, name) != off,
        lambda rows, _, device: torch.tensor([getattr(r, name) for r in rows], dtype=torch.float64, device=device),
        apply,
    )


def _truncation(name: str, off: float, apply: Callable[[Tensor, Tensor], Tensor]) -> Filter:
    """Likewise, of the distribution alone; a greedy row has but one token by then."""
    number = _number(name, off, lambda logits, values, _: apply(logits, values))
    return replace(number, asks=lambda row: number.asks(row) and not row.greedy)


def _listed(name: str, read: Callable[[Any], Any], apply: Callable[[Tensor, Any, Sequence[Trace]], Tensor]) -> Filter:
    """A filter with one thing a row that is no tensor, read from a field of its own name."""
    return Filter(
        name, lambda row: bool(getattr(row, name)), lambda rows, _, __: [read(getattr(r, name)) for r in rows], apply
    )


def _words(rows: Rows, size: int, device: torch.device) -> list[endings.Endings]:
    """Without those that are but an end, as in ``transformers``: who wants an output without one has ``banned``."""
    return [endings.Endings((w, 0.0) for w in row.bad_words if len(w) > 1 or w[0] not in row.eos_ids) for row in rows]


PROCESSORS: Final = (
    Filter("restrict", lambda row: True, _rules, bans.restrict),
    Filter("logit_bias", lambda row: bool(row.logit_bias), _biases, lambda logits, b, _: endings.logit_bias(logits, b)),
    _listed("sequence_bias", endings.Endings, endings.sequence_bias),
    _number("encoder_repetition_penalty", 1.0, penalties.encoder_repetition_penalty),
    _number("repetition_penalty", 1.0, penalties.repetition_penalty),
    _number("frequency_penalty", 0.0, penalties.frequency_penalty),
    _number("presence_penalty", 0.0, penalties.presence_penalty),
    _listed("no_repeat_ngram_size", int, bans.no_repeat_ngram),
    _listed("encoder_no_repeat_ngram_size", int, bans.encoder_no_repeat_ngram),
    Filter("bad_words", lambda row: bool(row.bad_words), _words, bans.bad_words),
    Filter("forced_eos_token_id", lambda row: bool(row.forced_eos_token_id), _forced, bans.forced_eos),
    Filter(
        "exponential_decay_length_penalty",
        lambda row: row.exponential_decay_length_penalty is not None and bool(row.ends),
        lambda rows, _, __: rows,
        _decay,
    ),
    _listed("begin_suppress_tokens", tuple, bans.begin_suppress_tokens),
    Filter(
        "dry_multiplier",
        lambda row: row.dry_multiplier > 0 and row.dry_penalty_last_n != 0,
        lambda rows, _, __: [_dry(row) for row in rows],
        dry,
    ),
)
"""Of the model's logits and the past; for every strategy."""

WARPERS: Final = (
    _number("temperature", 1.0, lambda logits, value, _: truncation.temperature(logits, value)),
    Filter(
        "top_k",
        lambda row: row.top_k is not None and not row.greedy,
        lambda rows, size, device: torch.tensor([min(r.top_k, size) for r in rows if r.top_k is not None]).to(device),
        lambda logits, k, _: truncation.top_k(logits, k),
    ),
    _truncation("top_p", 1.0, truncation.top_p),
    _truncation("min_p", 0.0, truncation.min_p),
    _truncation("typical_p", 1.0, truncation.typical_p),
    _truncation("epsilon_cutoff", 0.0, truncation.epsilon_cutoff),
    _truncation("eta_cutoff", 0.0, truncation.eta_cutoff),
)
"""Of the distribution alone; for strategies that draw."""

CHAIN: Final = PROCESSORS + WARPERS
