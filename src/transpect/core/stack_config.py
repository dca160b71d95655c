"""What a stack is made of, checked before it is built: N layers, and those of them that differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from transpect.base.checks import MANY, at_most, share, within
from transpect.base.errors import ConfigError
from transpect.core.attention import AttentionConfig
from transpect.core.feedforward import FeedForward, Mlp
from transpect.core.kernels.linear import SumsKernel
from transpect.core.norms import LayerNorm, Norm, Placement, Pre
from transpect.core.positions import NoPosition, Position
from transpect.core.summaries import Summaries
from transpect.core.visibility import Causal, Full, Visibility

Steps = tuple[tuple[str, ...], ...]

BRANCHES = ("self", "cross", "ffn")
"""What may stand in a step; `blocks` builds each."""

MOST_PARTS = 20 * MANY
"""The most experts, or norms of single heads, that all layers may have together."""


@dataclass(frozen=True)
class OtherLayers:
    """Layers of a stack that differ from the rest; what is None here is as there.

    Attributes:
        at: which layers, counted from 0.
    """

    at: tuple[int, ...]
    attention: AttentionConfig | None = None
    ffn: FeedForward | None = None
    positions: Position | None = None
    visibility: Visibility | None = None


@dataclass(frozen=True)
class StackConfig:
    """N layers, equal but for those that `others` names.

    Attributes:
        n_layers: N.
        attention: of the ``self`` branch.
        ffn: of the ``ffn`` branch.
        cross: of the ``cross`` branch; None is as ``attention``.
        steps: the branches of each step; branches of one step run in parallel.
        shared_norm: the branches of a parallel step share one norm before them (GPT-J, PaLM) instead of one each.
        placement: where norms stand.
        norm: which norm.
        first_norm: False: the very first branch has no norm before it, as the embeddings end with one (ModernBERT).
        final_norm: whether the stack ends with a norm; None is as the placement needs.
        positions: the position scheme.
        visibility: who sees whom in self-attention.
        summaries: further keys of self-attention, which stand for blocks of tokens; for towers that look ahead.
        dropout: on each branch's output, before it is added.
        others: layers that differ, e.g. in what they see.
        first_is_global: the first token of every sequence is global, tagged or not (Longformer's classifiers).
        n_unique: how many layers have weights of their own, each used for N/n_unique layers in a row (ALBERT §3.1);
            None is all of them.
    """

    n_layers: int
    attention: AttentionConfig
    ffn: FeedForward = field(default_factory=Mlp)
    cross: AttentionConfig | None = None
    steps: Steps = (("self",), ("ffn",))
    shared_norm: bool = False
    placement: Placement = field(default_factory=Pre)
    norm: Norm = field(default_factory=LayerNorm)
    first_norm: bool = True
    final_norm: bool | None = None
    positions: Position = field(default_factory=NoPosition)
    visibility: Visibility = field(default_factory=Causal)
    summaries: Summaries | None = None
    dropout: float = 0.0
    others: tuple[OtherLayers, ...] = ()
    first_is_global: bool = False
    n_unique: int | None = None

    def __post_init__(self) -> None:
        within("n_layers", self.n_layers, 1, MANY)
        share("dropout", self.dropout)
        branches = [branch for step in self.steps for branch in step]
        unknown = [branch for branch in branches if branch not in BRANCHES]
        if unknown or not branches or not all(self.steps):
            raise ConfigError(
                f"steps must be lists of branches, each one of {', '.join(BRANCHES)}",
                value=[list(step) for step in self.steps],
            )
        if len(set(branches)) != len(branches):
            raise ConfigError("a branch may stand once in a layer", value=[list(step) for step in self.steps])
        if self.cross is not None and not self.crosses:
            raise ConfigError("`cross` has options but no step uses it", remedy='Add ("cross",) to steps.')
        if self.shared_norm and (not self.placement.before or all(len(step) == 1 for step in self.steps)):
            raise ConfigError(
                "shared_norm needs a step of several branches and a norm before them",
                value=[list(step) for step in self.steps],
            )
        if self.cross is not None and self.cross.global_projections:
            raise ConfigError("cross-attention knows no global tokens, so it has no projections for them")
        if not self.first_norm and not (self.placement.before or self.placement.enter):
            raise ConfigError("first_norm=False needs a placement with a norm before", value=self.placement.kind)
        rules = [self.visibility, *(other.visibility for other in self.others if other.visibility is not None)]
        if self.summaries is not None and not all(rule.looks_ahead(prefix=False) for rule in rules):
            raise ConfigError("a token that sees no later one can't see the sum of a block that holds it")
        self._check_layers()
        self._check_kernels()

    def _check_layers(self) -> None:
        within("n_unique", self.n_unique, 1, MANY)
        for what, parts in (("experts", self.ffn.parts), ("norms of a layer's heads", self.attention.norms)):
            at_most(f"n_layers times the {what}", self.n_layers * parts, MOST_PARTS)
        named = [layer for other in self.others for layer in other.at]
        wrong = sorted(layer for layer in named if not 0 <= layer < self.n_layers)
        if wrong or len(set(named)) != len(named):
            raise ConfigError(
                f"`others` may name each layer from 0 to {self.n_layers - 1} once", value=wrong or sorted(named)
            )
        foreign = [o.positions for o in self.others if o.positions not in (None, self.positions) and o.positions.embeds]
        if foreign:
            raise ConfigError(
                "positions that add to the embeddings are the whole stack's, so `others` can't have other ones",
                value=", ".join(scheme.kind for scheme in foreign),
            )
        if self.n_unique is not None and (self.n_layers % self.n_unique or self.others or not self.first_norm):
            raise ConfigError(
                "layers that share weights are equal, and n_layers is a multiple of n_unique",
                value=f"n_layers={self.n_layers}, n_unique={self.n_unique}, others={len(self.others)} kinds",
            )

    def _check_kernels(self) -> None:
        self.attention.check_kernel(self.visibility, self.positions.scores)
        for other in self.others:
            attention, positions = other.attention or self.attention, other.positions or self.positions
            attention.check_kernel(other.visibility or self.visibility, positions.scores)
        if self.crosses:
            (self.cross or self.attention).check_kernel(Full(), "nothing")

    @property
    def kinds(self) -> tuple[StackConfig, ...]:
        """What layers can be: as this stack says, then each of `others` filled up from it."""
        names = ("attention", "ffn", "positions", "visibility")
        changes = [{name: getattr(other, name) for name in names} for other in self.others]
        return (
            replace(self, others=()),
            *(replace(self, others=(), **{k: v for k, v in change.items() if v is not None}) for change in changes),
        )

    @property
    def kind_of(self) -> tuple[int, ...]:
        """For each layer, which of `kinds` it is."""
        kind = [0] * self.n_layers
        for index, other in enumerate(self.others, 1):
            for layer in other.at:
                kind[layer] = index
        return tuple(kind)

    def looks_ahead(self, *, prefix: bool) -> bool:
        """Whether a token of some layer may see a later one; see `Visibility.looks_ahead`."""
        return any(kind.visibility.looks_ahead(prefix=prefix) for kind in self.kinds)

    def asks_for(self, tag: Literal["prefix", "is_global"]) -> bool:
        """Whether some layer depends on which tokens have this tag, so that a pass should say it.

        Where blocks of tokens are summed (`Summaries`), the sums are what is global, and no token is marked.
        """
        if tag == "is_global" and self.summaries is not None:
            return False
        by_projections = tag == "is_global" and any(kind.attention.global_projections for kind in self.kinds)
        return by_projections or any(kind.visibility.reads(tag) for kind in self.kinds)

    @property
    def reads_length(self) -> bool:
        """Whether some layer depends on how long a sequence is in all (`Tags.horizon`)."""
        return any(kind.visibility.reads_length or kind.positions.reads_length for kind in self.kinds)

    def map_visibility(self, change: Callable[[Visibility], Visibility]) -> StackConfig:
        """A copy with the rule of every layer changed."""
        others = tuple(
            other if other.visibility is None else replace(other, visibility=change(other.visibility))
            for other in self.others
        )
        return replace(self, visibility=change(self.visibility), others=others)

    @property
    def keeps_sums(self) -> bool:
        """Whether self-attention needs no earlier keys, but sums over them, in every layer."""
        return all(isinstance(kind.attention.kernel, SumsKernel) for kind in self.kinds)

    @property
    def crosses(self) -> bool:
        """Whether the layers look at an encoder."""
        return any("cross" in step for step in self.steps)

    @property
    def ends_with_norm(self) -> bool:
        """``final_norm`` with its default resolved."""
        return self.placement.final if self.final_norm is None else self.final_norm
