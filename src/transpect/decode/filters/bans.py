"""Filters that take tokens out of the choice by −inf.

Axes: B batch, V vocabulary, N places.

Two kinds: `restrict` says what may be written at all; the others would rather not have some tokens. A row never loses
its last one: `restrict` brings allowed tokens back as equals where the model gives none a chance, and where one of the
others would leave nothing, it leaves the row as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from transpect.base.errors import GenerationError
from transpect.decode.filters.endings import Endings
from transpect.decode.filters.places import HIDDEN, best, history, places, read, tail, tensor_of
from transpect.decode.trace import Trace


@dataclass(frozen=True)
class Rules:
    """What `restrict` goes by.

    Attributes:
        banned: [B, V] bool, the tokens that a row never writes; None where there are none.
        ends: [B, V] bool, the tokens that end a row; None where no row has to wait for them.
        least_new: [B], how many tokens a row writes before it may end.
        least: [B], how long prompt and output are before it may end.
    """

    banned: Tensor | None
    ends: Tensor | None
    least_new: Sequence[int]
    least: Sequence[int]
    _known: dict[tuple[bool, ...], tuple[Tensor | None, Tensor | None]] = field(default_factory=dict)

    def early(self, written: Sequence[int], prompts: Sequence[int]) -> list[bool]:
        """Which rows must not end yet, by how many tokens each has written, and how long its prompt is."""
        rows = zip(written, prompts, self.least_new, self.least, strict=True)
        return [count < new or prompt + count < total for count, prompt, new, total in rows]

    def taken_out(self, early: Sequence[bool]) -> tuple[Tensor | None, Tensor | None]:
        """What rows may not write, of which some must not end yet: [B, V] bool, and where it stands among all B·V, [N].
        A few numbers are changed sooner than all are looked at, and from one token to the next they are the same."""
        key = tuple(early) if self.ends is not None and any(early) else ()
        if key not in self._known:
            self._known.clear()
            banned = self.banned
            if key:
                assert self.ends is not None
                waiting = self.ends & torch.tensor(key, device=self.ends.device)[:, None]
                banned = waiting if banned is None else banned | waiting
            self._known[key] = banned, None if banned is None else banned.flatten().nonzero()[:, 0]
        return self._known[key]


def restrict(logits: Tensor, rules: Rules, traces: Sequence[Trace]) -> Tensor:
    """No token that the row's constraint forbids, none that is banned, and no end before the minimum.

    Where these together forbid every token, the constraint alone counts.

    Args:
        logits: [B, V].
        rules: of the rows.
        traces: of the rows.

    Raises:
        GenerationError: a constraint that allows nothing.
    """
    early = rules.early([len(trace.written) for trace in traces], [len(trace.prompt) for trace in traces])
    banned, places = rules.taken_out(early)
    masks = [trace.constraint.mask(trace.written) for trace in traces]
    if any(mask is not None for mask in masks):
        everything = torch.ones(logits.shape[-1], dtype=torch.bool, device=logits.device)
        allowed = torch.stack([everything if mask is None else mask.to(logits.device) for mask in masks])  # [B, V]
        if not bool(allowed.any(-1).all()):
            raise GenerationError("a constraint must allow at least one token", remedy="Check its grammar.")
        both = ~allowed if banned is None else banned | ~allowed
        banned, places = torch.where(both.all(-1, keepdim=True), ~allowed, both), None
    return logits if banned is None else ban(logits, banned, places)


def ban(logits: Tensor, banned: Tensor, places: Tensor | None = None) -> Tensor:
    """Take tokens out by name.

    A row whose every other token already has −inf gets them back as equals, since one of them must be chosen.

    Args:
        logits: [B, V].
        banned: [B, V] bool; at least one token a row is allowed.
        places: of the banned ones among all B·V, where they are known.
    """
    if places is None:
        left = logits.masked_fill(banned, HIDDEN)
    else:
        left = logits.flatten().index_fill(0, places, HIDDEN).view_as(logits)
    most = best(left)
    if HIDDEN not in most.tolist():
        return left
    nothing = most[:, None] == HIDDEN  # [B, 1]
    return torch.where(nothing & ~banned, 0.0, left)


def no_repeat_ngram(logits: Tensor, sizes: Sequence[int], traces: Sequence[Trace]) -> Tensor:
    """No token that would write n tokens in a row which already stand in prompt or output (Paulus et al. 2017, §2.5).

    Args:
        logits: [B, V].
        sizes: n of each row; 0 forbids nothing, 1 every token that has been.
        traces: of the rows.
    """
    found = []
    for size, trace in zip(sizes, traces, strict=True):
        past = history(trace)
        found.append(_followers(past, past[max(0, len(past) + 1 - size) :], size))
    return _without(logits, found)


def encoder_no_repeat_ngram(logits: Tensor, sizes: Sequence[int], traces: Sequence[Trace]) -> Tensor:
    """No token that would write n tokens in a row which stand in the source (of a decoder, in its prompt).

    Args:
        logits: [B, V].
        sizes: n of each row; 0 forbids nothing, 1 every token of the source.
        traces: of the rows.
    """
    pairs = zip(sizes, traces, strict=True)
    return _without(logits, [_followers(tensor_of(read(t)), tensor_of(tail(t, max(n - 1, 0))), n) for n, t in pairs])


def bad_words(logits: Tensor, words: Sequence[Endings], traces: Sequence[Trace]) -> Tensor:
    """No token that would write a forbidden sequence to its end, wherever in prompt or output it began.

    Args:
        logits: [B, V].
        words: the sequences of each row.
        traces: of the rows.
    """
    pairs = zip(words, traces, strict=True)
    return _without(logits, [tensor_of(own.completed(trace)) for own, trace in pairs])


def begin_suppress_tokens(logits: Tensor, tokens: Sequence[Sequence[int]], traces: Sequence[Trace]) -> Tensor:
    """None of these as the first token of the output.

    Args:
        logits: [B, V].
        tokens: of each row; ids from V on are passed over.
        traces: of the rows.
    """
    size, pairs = logits.shape[-1], zip(tokens, traces, strict=True)
    return _without(logits, [tensor_of(i for i in own if i < size and not trace.written) for own, trace in pairs])


def forced_eos(logits: Tensor, forced: Sequence[tuple[Sequence[int], int]], traces: Sequence[Trace]) -> Tensor:
    """As the last token that there is room for, one of these and no other, as equals.

    A row whose constraint forbids all of them is left as it is.

    Args:
        logits: [B, V].
        forced: the tokens of each row, and how many tokens it may write.
        traces: of the rows.
    """
    out = logits.clone()
    for row, ((tokens, room), trace) in enumerate(zip(forced, traces, strict=True)):
        if len(trace.written) != room - 1:
            continue
        mask = trace.constraint.mask(trace.written)
        ids = [token for token in tokens if mask is None or bool(mask[token])]
        if ids:
            out[row] = HIDDEN
            out[row, ids] = 0.0
    return out


def _followers(text: Tensor, before: Tensor, size: int) -> Tensor:
    """[N], what stands in a text [T] after the ``size`` − 1 tokens of ``before``."""
    if size < 1 or len(text) < size or len(before) != size - 1:
        return text[:0]
    windows = text.unfold(0, size, 1)  # [T - size + 1, size]
    return windows[(windows[:, :-1] == before).all(-1), -1]


def _without(logits: Tensor, banned: Sequence[Tensor]) -> Tensor:
    if not any(map(len, banned)):
        return logits
    left = logits.clone()
    left[places(banned, logits.device)] = HIDDEN
    most = best(left)
    if HIDDEN not in most.tolist():
        return left
    nothing = most[:, None] == HIDDEN  # [B, 1]
    return torch.where(nothing, logits, left)
