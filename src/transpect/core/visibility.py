"""Who may see whom: rules as predicates on the tags of queries and keys.

Axes: B batch, T query, S key.

A rule composes with ``&`` and ``|`` and can be drawn::

    print((Causal() & Window(3)).draw(6))

Padding (position −1) neither sees nor is seen, under every rule. A mask is bool, True where the key is visible.
For runs of tokens a rule answers from the ranges of their tags, without a mask (`Visibility.bounds`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

import torch
from torch import Tensor

from transpect.base.checks import within
from transpect.base.codec import Variant
from transpect.base.errors import ConfigError
from transpect.core.spans import Spans, gaps
from transpect.core.tags import Tags

MOST_DILATED = 1000
"""The most that a window may be dilated; `Window.probe` reaches over it."""


class Visibility(Variant):
    """A rule. Children implement `sees`; nothing else needs to know which rule it is."""

    def sees(self, query: Tags, key: Tags) -> Tensor:
        """Whether the rule lets a query see a key; padding is not its concern.

        Args:
            query: its fields are scalars, or of any shape that broadcasts against those of ``key``, the horizon's too
                (`Tags.spread`, `Tags.token`).
            key: the same.

        Returns:
            bool, of a shape that broadcasts so. Each entry is computed from the same entry of the tags.
        """
        raise AssertionError("abstract")

    def settled(self, query: Tags, key: Tags) -> Visibility:
        """A rule that agrees with this one on tokens of these rows, and has looked up beforehand what it needs to know
        of them as a whole, so that its `sees` can be compiled."""
        return self

    def bounds(self, query: Spans, key: Spans) -> tuple[Tensor, Tensor]:
        """What holds for runs of tokens, by the ranges of their tags; padding is not its concern, as in `sees`.

        Returns:
            some: [B, NQ, NK] bool, False only where no query of the run sees a key of the other run.
            every: [B, NQ, NK] bool, True only where every query of the run sees every key of the other run.
        """
        shape = *query.first.shape, key.first.shape[1]
        return key.any_real.new_ones(shape), key.any_real.new_zeros(shape)

    def plain(self) -> Visibility:
        """The simplest rule that agrees with this one on a single document without padding, prefix or global token."""
        return self

    @property
    def probe(self) -> tuple[int, ...]:
        """Positions among which the rule shows all that it does."""
        return (0, 1, 2, 3)

    def looks_ahead(self, *, prefix: bool) -> bool:
        """Whether a token may see a later one of its document; ``prefix`` asks this of tokens tagged as a prefix."""
        # on the CPU, since a model may be built where nothing can be read
        position = torch.tensor(sorted(set(self.probe)), device="cpu")
        # a row ends at each position, since a rule may depend on how long a sequence is
        ending = torch.where(position <= position[:, None], position, -1)
        tags = Tags.of(ending, prefix=torch.full_like(ending, prefix, dtype=torch.bool))
        return bool(self.mask(tags, tags).triu(1).any())

    def reads(self, tag: Literal["prefix", "is_global"]) -> bool:
        """Whether it depends on which tokens have this tag."""
        position = torch.tensor([sorted(set(self.probe))], device="cpu")
        nowhere, somewhere = Tags.of(position), Tags.of(position, **{tag: position < 2})
        return not torch.equal(self.mask(nowhere, nowhere), self.mask(somewhere, somewhere))

    @property
    def reads_length(self) -> bool:
        """Whether it depends on how long a sequence is in all (`Tags.horizon`)."""
        return False

    @property
    def reads_distance_alone(self) -> bool:
        """Whether, of the tags, only query position − key position matters to it."""
        return False

    def __and__(self, other: Visibility) -> Visibility:
        return All((self, other))

    def __or__(self, other: Visibility) -> Visibility:
        return AnyOf((self, other))

    def shows(self, query: Tags, key: Tags) -> Tensor:
        """As `sees`, padding excluded."""
        return self.sees(query, key) & (query.position >= 0) & (key.position >= 0)

    def mask(self, query: Tags, key: Tags) -> Tensor:
        """[B, T, S] bool, True where visible, padding excluded."""
        return self.shows(query.spread(-1), key.spread(-2))

    def draw(self, length: int | Tags, key: Tags | None = None) -> str:
        """The mask of the first row as text: a line a query, ``■`` visible, ``·`` hidden."""
        query = Tags.dense(1, length) if isinstance(length, int) else length
        mask = self.mask(query, query if key is None else key)[0]
        return "\n".join(" ".join("■" if seen else "·" for seen in row) for row in mask.tolist())


@dataclass(frozen=True)
class Full(Visibility, kind="full"):
    """Everyone sees everyone (encoders, cross-attention)."""

    @property
    def reads_distance_alone(self) -> bool:
        return True

    def sees(self, query: Tags, key: Tags) -> Tensor:
        return torch.ones_like(key.position, dtype=torch.bool)

    def bounds(self, query: Spans, key: Spans) -> tuple[Tensor, Tensor]:
        always = key.any_real.new_ones(*query.first.shape, key.first.shape[1])
        return always, always


@dataclass(frozen=True)
class Causal(Visibility, kind="causal"):
    """j ≤ i: a query sees itself and the past."""

    @property
    def reads_distance_alone(self) -> bool:
        return True

    def sees(self, query: Tags, key: Tags) -> Tensor:
        return _not_after(query, key)

    def bounds(self, query: Spans, key: Spans) -> tuple[Tensor, Tensor]:
        return _some_and_every_not_after(query, key)


@dataclass(frozen=True)
class Window(Visibility, kind="window"):
    """0 ≤ i−j < width·dilation, and i−j a multiple of dilation: the query itself and the width−1 before it, or every
    dilation-th of them (Mistral; Longformer §3.1).

    Attributes:
        width: how many keys a query sees at most, itself included.
        both_ways: |i−j| < width·dilation instead, for encoders.
        dilation: from one key that a query sees to the next.
    """

    width: int
    both_ways: bool = False
    dilation: int = 1

    def __post_init__(self) -> None:
        within("Window.width", self.width)
        within("Window.dilation", self.dilation, 1, MOST_DILATED)

    @property
    def probe(self) -> tuple[int, ...]:
        return (*super().probe, self.dilation)

    @property
    def reads_distance_alone(self) -> bool:
        return True

    def sees(self, query: Tags, key: Tags) -> Tensor:
        reach = self.width * self.dilation
        near = key.position > query.position - reach
        if self.both_ways:
            near = near & (key.position < query.position + reach)
        else:
            near = near & _not_after(query, key)
        if self.dilation == 1:
            return near
        return near & ((query.position - key.position) % self.dilation == 0)

    def bounds(self, query: Spans, key: Spans) -> tuple[Tensor, Tensor]:
        least, most = gaps((query.first, query.last), (key.first, key.last))
        # in steps of the dilation: what a query sees are the whole steps from `back` to width−1
        low, high = -(-least).div(self.dilation, rounding_mode="floor"), most.div(self.dilation, rounding_mode="floor")
        back = 1 - self.width if self.both_ways else 0
        some = low.clamp(min=back) <= high.clamp(max=self.width - 1)
        every = (low >= back) & (high < self.width)
        if self.dilation > 1:
            every = every & (least == most) & (least % self.dilation == 0)
        return some, every


@dataclass(frozen=True)
class PrefixLM(Visibility, kind="prefix_lm"):
    """The prefix sees itself both ways, the rest is causal (T5 §3.2.1, UniLM §2.3)."""

    def sees(self, query: Tags, key: Tags) -> Tensor:
        return _not_after(query, key) | (query.prefix & key.prefix)

    def bounds(self, query: Spans, key: Spans) -> tuple[Tensor, Tensor]:
        some, every = _some_and_every_not_after(query, key)
        some = some | (query.any_prefix[:, :, None] & key.any_prefix[:, None, :])
        return some, every | (query.all_prefix[:, :, None] & key.all_prefix[:, None, :])

    def plain(self) -> Visibility:
        return Causal()


@dataclass(frozen=True)
class SameSegment(Visibility, kind="same_segment"):
    """Only tokens of the same packed document see each other."""

    def sees(self, query: Tags, key: Tags) -> Tensor:
        return query.segment == key.segment

    def bounds(self, query: Spans, key: Spans) -> tuple[Tensor, Tensor]:
        # compared, not subtracted: a number of a document may be any of 64 bits, such as a hash
        q_low, q_high = query.segment_low[:, :, None], query.segment_high[:, :, None]
        k_low, k_high = key.segment_low[:, None, :], key.segment_high[:, None, :]
        some = (q_low <= k_high) & (k_low <= q_high)
        return some, some & (q_low == q_high) & (k_low == k_high)

    def plain(self) -> Visibility:
        return Full()


@dataclass(frozen=True)
class GlobalTokens(Visibility, kind="global_tokens"):
    """Tokens tagged as global see everyone and are seen by everyone (Longformer §3.1)."""

    def sees(self, query: Tags, key: Tags) -> Tensor:
        return query.is_global | key.is_global

    def bounds(self, query: Spans, key: Spans) -> tuple[Tensor, Tensor]:
        some = query.any_global[:, :, None] | key.any_global[:, None, :]
        return some, query.all_global[:, :, None] | key.all_global[:, None, :]


@dataclass(frozen=True)
class FromGlobal(Visibility, kind="from_global"):
    """Tokens tagged as global see everyone, others see nobody."""

    def sees(self, query: Tags, key: Tags) -> Tensor:
        return query.is_global

    def bounds(self, query: Spans, key: Spans) -> tuple[Tensor, Tensor]:
        shape = (*query.first.shape, key.first.shape[1])
        return query.any_global[:, :, None].expand(shape), query.all_global[:, :, None].expand(shape)


@dataclass(frozen=True)
class _Composed(Visibility):
    """Several rules as one; a child says how."""

    rules: tuple[Visibility, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", tuple(self.rules))  # a list would make no key of a kept plan
        if not self.rules:
            raise ConfigError("a composition of rules needs at least one rule", remedy="Use `full` to hide nothing.")

    @property
    def probe(self) -> tuple[int, ...]:
        return tuple(position for rule in self.rules for position in rule.probe)

    def reads(self, tag: Literal["prefix", "is_global"]) -> bool:
        # asked of each: a wide rule beside it hides, at the positions of a probe, what the other one does
        return any(rule.reads(tag) for rule in self.rules)

    @property
    def reads_distance_alone(self) -> bool:
        return all(rule.reads_distance_alone for rule in self.rules)

    @property
    def reads_length(self) -> bool:
        return any(rule.reads_length for rule in self.rules)

    def settled(self, query: Tags, key: Tags) -> Visibility:
        return replace(self, rules=tuple(rule.settled(query, key) for rule in self.rules))


@dataclass(frozen=True)
class All(_Composed, kind="all"):
    """Visible under every one of ``rules`` (``a & b``)."""

    def sees(self, query: Tags, key: Tags) -> Tensor:
        return reduce(torch.logical_and, (rule.sees(query, key) for rule in self.rules))

    def bounds(self, query: Spans, key: Spans) -> tuple[Tensor, Tensor]:
        some, every = zip(*(rule.bounds(query, key) for rule in self.rules), strict=True)
        return reduce(torch.logical_and, some), reduce(torch.logical_and, every)

    def plain(self) -> Visibility:
        rules = tuple(plain for plain in (rule.plain() for rule in self.rules) if plain != Full())
        return All(rules) if len(rules) > 1 else (rules or (Full(),))[0]


@dataclass(frozen=True)
class AnyOf(_Composed, kind="any"):
    """Visible under at least one of ``rules`` (``a | b``)."""

    def sees(self, query: Tags, key: Tags) -> Tensor:
        return reduce(torch.logical_or, (rule.sees(query, key) for rule in self.rules))

    def bounds(self, query: Spans, key: Spans) -> tuple[Tensor, Tensor]:
        some, every = zip(*(rule.bounds(query, key) for rule in self.rules), strict=True)
        return reduce(torch.logical_or, some), reduce(torch.logical_or, every)


def _not_after(query: Tags, key: Tags) -> Tensor:
    return key.position <= query.position  # j ≤ i


def _some_and_every_not_after(query: Spans, key: Spans) -> tuple[Tensor, Tensor]:
    least, most = gaps((query.first, query.last), (key.first, key.last))
    return most >= 0, least >= 0
