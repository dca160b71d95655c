"""A row for each filter, in their order: what a request may ask of it, and what it does, spelled out in Python for one
row of logits and no tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch

from transpect.decode import GenerationParams
from transpect.decode.trace import FREE, Trace

VOCAB = 24
ENDS = (3, 17)
OUT = -math.inf
SLACK = 1e-6


@dataclass(frozen=True)
class Only:
    """A constraint that allows some tokens, other ones after an odd number of them."""

    even: frozenset[int]
    odd: frozenset[int]

    def mask(self, written: tuple[int, ...]) -> torch.Tensor:
        allowed = self.odd if len(written) % 2 else self.even
        return torch.tensor([token in allowed for token in range(VOCAB)])

    def allows(self, trace: Trace) -> frozenset[int]:
        return self.odd if len(trace.written) % 2 else self.even


Row = list[float]
SpelledOut = Callable[[Row, GenerationParams, Trace], Row]


@dataclass(frozen=True)
class FilterCase:
    """A filter.

    Attributes:
        name: as in `transpect.decode.filters.CHAIN`.
        draw: parameters that ask for it.
        spelled_out: logits, parameters and past to logits.
    """

    name: str
    draw: Callable[[Random], dict[str, Any]]
    spelled_out: SpelledOut


def some(random: Random, count: int, size: int = VOCAB) -> tuple[int, ...]:
    return tuple(random.sample(range(size), count))


def sequences(random: Random) -> tuple[tuple[int, ...], ...]:
    """Of few different tokens, so that they are met."""
    return tuple({tuple(random.randrange(5) for _ in range(random.choice((1, 2, 2, 3)))) for _ in range(6)})


def trace_of(random: Random, *, longest: int = 30, constrained: bool = False) -> Trace:
    """A past that repeats itself."""
    few = random.choice((3, 5, VOCAB))

    def ids(least: int, most: int) -> tuple[int, ...]:
        return tuple(random.randrange(few) for _ in range(random.randint(least, most)))

    constraint = FREE
    if constrained:
        constraint = Only(frozenset(some(random, random.randint(1, 9))), frozenset(some(random, random.randint(1, 9))))  # type: ignore[assignment]
    source = ids(1, longest) if random.random() < 0.5 else None
    return Trace(ids(1, longest), ids(0, longest), constraint, source)


def past(trace: Trace) -> list[int]:
    return [*trace.prompt, *trace.written]


def read(trace: Trace) -> Sequence[int]:
    return trace.prompt if trace.source is None else trace.source


def without(row: Row, banned: set[int]) -> Row:
    left = [OUT if i in banned else x for i, x in enumerate(row)]
    return row if max(left) == OUT else left


def divided(row: Row, ids: Sequence[int], penalty: float) -> Row:
    return [x if i not in ids else x * penalty if x < 0 else x / penalty for i, x in enumerate(row)]


def restrict(row: Row, params: GenerationParams, trace: Trace) -> Row:
    mask = trace.constraint.mask(trace.written)
    granted = {i for i in range(len(row)) if mask is None or mask[i]}
    early = len(trace.written) < params.min_new_tokens or len(past(trace)) < params.min_length
    allowed = granted - {*params.banned} - ({*params.ends} if early else set()) or granted
    if all(row[i] == OUT for i in allowed):
        return [0.0 if i in allowed else OUT for i in range(len(row))]
    return [x if i in allowed else OUT for i, x in enumerate(row)]


def logit_bias(row: Row, params: GenerationParams, trace: Trace) -> Row:
    return [x + dict(params.logit_bias).get(i, 0.0) for i, x in enumerate(row)]


def completes(ids: Sequence[int], token: int, trace: Trace) -> bool:
    return [*past(trace), token][-len(ids) :] == [*ids]


def sequence_bias(row: Row, params: GenerationParams, trace: Trace) -> Row:
    pairs = params.sequence_bias
    return [x + math.fsum(b for ids, b in pairs if completes(ids, i, trace)) for i, x in enumerate(row)]


def encoder_repetition_penalty(row: Row, params: GenerationParams, trace: Trace) -> Row:
    return divided(row, read(trace), 1 / params.encoder_repetition_penalty)


def repetition_penalty(row: Row, params: GenerationParams, trace: Trace) -> Row:
    return divided(row, past(trace), params.repetition_penalty)


def frequency_penalty(row: Row, params: GenerationParams, trace: Trace) -> Row:
    return [x - params.frequency_penalty * trace.written.count(i) for i, x in enumerate(row)]


def presence_penalty(row: Row, params: GenerationParams, trace: Trace) -> Row:
    return [x - params.presence_penalty * (i in trace.written) for i, x in enumerate(row)]


def grams(ids: Sequence[int], size: int) -> set[tuple[int, ...]]:
    return {tuple(ids[i : i + size]) for i in range(len(ids) - size + 1)}


def no_repeat_ngram(row: Row, params: GenerationParams, trace: Trace) -> Row:
    size, ids = params.no_repeat_ngram_size, past(trace)
    return without(row, {i for i in range(len(row)) if tuple([*ids, i][-size:]) in grams(ids, size)})


def encoder_no_repeat_ngram(row: Row, params: GenerationParams, trace: Trace) -> Row:
    size, ids = params.encoder_no_repeat_ngram_size, past(trace)
    return without(row, {i for i in range(len(row)) if tuple([*ids, i][-size:]) in grams(read(trace), size)})


def bad_words(row: Row, params: GenerationParams, trace: Trace) -> Row:
    words = [word for word in params.bad_words if word not in [(end,) for end in params.eos_ids]]
    return without(row, {i for i in range(len(row)) if any(completes(word, i, trace) for word in words)})


def forced_eos(row: Row, params: GenerationParams, trace: Trace) -> Row:
    mask = trace.constraint.mask(trace.written)
    forced = [i for i in params.forced_eos_token_id if i not in params.banned and (mask is None or mask[i])]
    if len(trace.written) + 1 != params.max_new_tokens or not forced:
        return row
    return [0.0 if i in forced else OUT for i in range(len(row))]


def exponential_decay(row: Row, params: GenerationParams, trace: Trace) -> Row:
    assert params.exponential_decay_length_penalty is not None
    start, factor = params.exponential_decay_length_penalty
    since = max(0, len(trace.written) - start)
    return [x + abs(x) * (factor**since - 1) if i in params.ends and x > OUT else x for i, x in enumerate(row)]


def begin_suppress(row: Row, params: GenerationParams, trace: Trace) -> Row:
    return row if trace.written else without(row, {*params.begin_suppress_tokens})


def dry(row: Row, params: GenerationParams, trace: Trace) -> Row:
    last_n, allowed, breakers = params.dry_penalty_last_n, params.dry_allowed_length, params.dry_sequence_breakers
    window = past(trace)
    window = window if last_n is None else window[len(window) - min(last_n, len(window)) :]
    since = next(
        (n for n in range(len(window)) if any(ends(window[: len(window) - n], b) for b in breakers)), len(window)
    )
    out = list(row)
    for token in range(len(row)):
        lengths = [common_end(window[:end], window, since) for end in range(1, len(window)) if window[end] == token]
        if lengths and max(lengths) >= allowed and since >= allowed and (token,) not in breakers:
            out[token] -= params.dry_multiplier * params.dry_base ** (max(lengths) - allowed)
    return out


def ends(ids: Sequence[int], with_: Sequence[int]) -> bool:
    return len(with_) <= len(ids) and [*ids[len(ids) - len(with_) :]] == [*with_]


def common_end(one: Sequence[int], other: Sequence[int], most: int) -> int:
    return max(n for n in range(min(len(one), most) + 1) if ends(one, other[len(other) - n :]))


def temperature(row: Row, params: GenerationParams, trace: Trace) -> Row:
    if params.temperature == 0:
        return [0.0 if i == row.index(max(row)) else OUT for i in range(len(row))]
    return [(x - max(row)) / params.temperature for x in row]


def ranked(row: Row) -> list[int]:
    return sorted(range(len(row)), key=lambda i: (-row[i], i))


def kept(row: Row, stays: Sequence[int]) -> Row:
    return [x if i in {*stays} else OUT for i, x in enumerate(row)]


def probabilities(row: Row) -> Row:
    total = math.fsum(math.exp(x - max(row)) for x in row)
    return [math.exp(x - max(row)) / total for x in row]


def entropy(row: Row) -> float:
    return -math.fsum(p * math.log(p) for p in probabilities(row) if p > 0)


def fewest(row: Row, order: Sequence[int], mass: float) -> Row:
    stays: list[int] = []
    p = probabilities(row)
    for i in order:
        if stays and mass < 1 and math.fsum(p[j] for j in stays) >= mass - SLACK:
            break
        stays.append(i)
    return kept(row, stays)


def at_least(row: Row, level: float) -> Row:
    p = probabilities(row)
    return kept(row, [i for i in range(len(row)) if p[i] >= level * (1 - SLACK) or row[i] == max(row)])


def top_k(row: Row, params: GenerationParams, trace: Trace) -> Row:
    assert params.top_k is not None
    return kept(row, ranked(row)[: max(1, params.top_k)])


def top_p(row: Row, params: GenerationParams, trace: Trace) -> Row:
    return fewest(row, ranked(row), params.top_p)


def min_p(row: Row, params: GenerationParams, trace: Trace) -> Row:
    return at_least(row, params.min_p * max(probabilities(row)))


def typical_p(row: Row, params: GenerationParams, trace: Trace) -> Row:
    p, h = probabilities(row), entropy(row)
    return fewest(
        row, sorted(range(len(row)), key=lambda i: abs(-math.log(p[i]) - h) if p[i] else math.inf), params.typical_p
    )


def epsilon_cutoff(row: Row, params: GenerationParams, trace: Trace) -> Row:
    return at_least(row, params.epsilon_cutoff)


def eta_cutoff(row: Row, params: GenerationParams, trace: Trace) -> Row:
    return at_least(row, min(params.eta_cutoff, math.sqrt(params.eta_cutoff) * math.exp(-entropy(row))))


FILTERS = (
    FilterCase(
        "restrict",
        lambda r: {
            "banned": some(r, r.randint(1, 8)),
            "min_new_tokens": r.randint(0, 20),
            "min_length": r.randint(0, 50),
        },
        restrict,
    ),
    FilterCase("logit_bias", lambda r: {"logit_bias": {i: r.uniform(-5, 5) for i in some(r, 6)}}, logit_bias),
    FilterCase(
        "sequence_bias", lambda r: {"sequence_bias": {ids: r.uniform(-4, 4) for ids in sequences(r)}}, sequence_bias
    ),
    FilterCase(
        "encoder_repetition_penalty",
        lambda r: {"encoder_repetition_penalty": r.uniform(0.3, 3)},
        encoder_repetition_penalty,
    ),
    FilterCase("repetition_penalty", lambda r: {"repetition_penalty": r.uniform(0.3, 3)}, repetition_penalty),
    FilterCase("frequency_penalty", lambda r: {"frequency_penalty": r.uniform(-1, 1)}, frequency_penalty),
    FilterCase("presence_penalty", lambda r: {"presence_penalty": r.uniform(-2, 2)}, presence_penalty),
    FilterCase("no_repeat_ngram_size", lambda r: {"no_repeat_ngram_size": r.randint(1, 4)}, no_repeat_ngram),
    FilterCase(
        "encoder_no_repeat_ngram_size",
        lambda r: {"encoder_no_repeat_ngram_size": r.randint(1, 4)},
        encoder_no_repeat_ngram,
    ),
    FilterCase("bad_words", lambda r: {"bad_words": sequences(r)}, bad_words),
    FilterCase("forced_eos_token_id", lambda r: {"forced_eos_token_id": some(r, 2)}, forced_eos),
    FilterCase(
        "exponential_decay_length_penalty",
        lambda r: {"exponential_decay_length_penalty": (r.randint(0, 10), r.uniform(0.8, 1.3))},
        exponential_decay,
    ),
    FilterCase("begin_suppress_tokens", lambda r: {"begin_suppress_tokens": some(r, 5)}, begin_suppress),
    FilterCase(
        "dry_multiplier",
        lambda r: {
            "dry_multiplier": r.uniform(0.1, 2),
            "dry_base": r.choice((1.0, 1.3, 1.75, 2.5)),
            "dry_allowed_length": r.randint(0, 4),
            "dry_penalty_last_n": r.choice((None, None, 1, 7, 40)),
            "dry_sequence_breakers": sequences(r)[: r.randint(0, 3)],
        },
        dry,
    ),
    FilterCase("temperature", lambda r: {"temperature": r.choice((0.0, 0.3, 0.7, 1.6))}, temperature),
    FilterCase("top_k", lambda r: {"top_k": r.randint(0, VOCAB)}, top_k),
    FilterCase("top_p", lambda r: {"top_p": r.uniform(0, 1)}, top_p),
    FilterCase("min_p", lambda r: {"min_p": r.uniform(0, 1)}, min_p),
    FilterCase("typical_p", lambda r: {"typical_p": r.uniform(0, 1)}, typical_p),
    FilterCase("epsilon_cutoff", lambda r: {"epsilon_cutoff": r.uniform(0, 0.2)}, epsilon_cutoff),
    FilterCase("eta_cutoff", lambda r: {"eta_cutoff": r.uniform(0, 0.5)}, eta_cutoff),
)


def params_of(random: Random, cases: Sequence[FilterCase]) -> GenerationParams:
    """Parameters that ask for these filters, with two ends and room for 30 tokens at most."""
    asked: dict[str, Any] = {"temperature": 1.0, "eos_ids": ENDS, "max_new_tokens": random.randint(1, 30)}
    for case in cases:
        asked |= case.draw(random)
    asked["max_new_tokens"] = max(asked["max_new_tokens"], asked.get("min_new_tokens", 0))
    return GenerationParams(seed=random.randrange(1000), **asked)


def chain(row: Row, params: GenerationParams, trace: Trace, cases: Sequence[FilterCase] = FILTERS) -> Row:
    """All filters that a request asks for."""
    default = GenerationParams(temperature=1.0)
    for case in cases:
        asks = case.name == "restrict" or getattr(params, case.name) != getattr(default, case.name)
        row = case.spelled_out(row, params, trace) if asks else row
    return row
