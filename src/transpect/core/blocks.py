"""Sublayers as data: a stack is layers, a layer is steps, a step sums branches into the residual stream.

Axes: B batch, T query, D model.

``x ← after(x + Σ dropout(after_branch(branch(before(x)))))``: which of its slots hold a norm is the placement.
``(("self",), ("ffn",))`` is GPT-2, ``(("self",), ("cross",), ("ffn",))`` a decoder with cross-attention,
``(("self", "ffn"),)`` GPT-NeoX's parallel block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add

from torch import Tensor, nn

from transpect.base.checks import at_least, share
from transpect.base.errors import ConfigError
from transpect.core.attention import AttentionConfig, CrossAttention, Pass, SelfAttention
from transpect.core.context import Context, Tags
from transpect.core.feedforward import FeedForward, Mlp
from transpect.core.global_attention import GlobalSelfAttention
from transpect.core.norms import LayerNorm, Norm, Placement, Pre
from transpect.core.positions import Dims, NoPosition, Position, PositionModule
from transpect.core.summaries import BlockSums, LayerSums, NoSummaries, Summaries
from transpect.core.visibility import Causal, Full, View, Visibility

Steps = tuple[tuple[str, ...], ...]


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
        others: layers that differ, e.g. in what they see. Positions that add to embeddings are the stack's own.
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
        at_least("n_layers", self.n_layers, 1)
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
        rules = [self.visibility, *(other.visibility for other in self.others if other.visibility is not None)]
        if self.summaries is not None and not all(rule.looks_ahead(prefix=False) for rule in rules):
            raise ConfigError("a token that sees no later one can't see the sum of a block that holds it")
        self._check_layers()

    def _check_layers(self) -> None:
        at_least("n_unique", self.n_unique, 1)
        named = [layer for other in self.others for layer in other.at]
        wrong = sorted(layer for layer in named if not 0 <= layer < self.n_layers)
        if wrong or len(set(named)) != len(named):
            raise ConfigError(
                f"`others` may name each layer from 0 to {self.n_layers - 1} once", value=wrong or sorted(named)
            )
        if self.n_unique is not None and (self.n_layers % self.n_unique or self.others or not self.first_norm):
            raise ConfigError(
                "layers that share weights are equal, and n_layers is a multiple of n_unique",
                value=f"n_layers={self.n_layers}, n_unique={self.n_unique}, others={len(self.others)} kinds",
            )

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

    def map_visibility(self, change: Callable[[Visibility], Visibility]) -> StackConfig:
        """A copy with the rule of every layer changed."""
        others = tuple(
            other if other.visibility is None else replace(other, visibility=change(other.visibility))
            for other in self.others
        )
        return replace(self, visibility=change(self.visibility), others=others)

    @property
    def crosses(self) -> bool:
        """Whether the layers look at an encoder."""
        return any("cross" in step for step in self.steps)

    @property
    def ends_with_norm(self) -> bool:
        """``final_norm`` with its default resolved."""
        return self.placement.final if self.final_norm is None else self.final_norm


@dataclass(frozen=True)
class _Site:
    """Where a branch is built."""

    config: StackConfig
    d_model: int
    positions: PositionModule
    first: bool


def _self(site: _Site) -> nn.Module:
    of = site.config.summaries
    sums = NoSummaries() if of is None else LayerSums(of.norm.build(site.d_model))
    config = site.config.attention
    build = GlobalSelfAttention if config.global_projections else SelfAttention
    return build(config, site.d_model, site.positions.relation(), sums)


def _cross(site: _Site) -> nn.Module:
    return CrossAttention(site.config.cross or site.config.attention, site.d_model)


def _ffn(site: _Site) -> nn.Module:
    return site.config.ffn.build(site.d_model)


BRANCHES: dict[str, Callable[[_Site], nn.Module]] = {"self": _self, "cross": _cross, "ffn": _ffn}


class Branch(nn.Module):
    """dropout(after_branch(body(before(x))))."""

    def __init__(self, body: nn.Module, config: StackConfig, d_model: int, *, own_norm: bool) -> None:
        super().__init__()
        placement = config.placement
        self.before = _norm(config, d_model, stands=placement.before and own_norm)
        self.body = body
        self.after_branch = _norm(config, d_model, stands=placement.after_branch)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, run: Pass) -> Tensor:
        out: Tensor = self.dropout(self.after_branch(self.body(self.before(x), run)))
        return out


class Step(nn.Module):
    """after(x + Σ branch(before(x))) of x ← enter(x)."""

    def __init__(self, names: tuple[str, ...], site: _Site) -> None:
        super().__init__()
        config, d_model = site.config, site.d_model
        bare = site.first and not config.first_norm and names == config.steps[0]
        self.enter = _norm(config, d_model, stands=config.placement.enter and not bare)
        self.before = _norm(config, d_model, stands=config.placement.before and config.shared_norm and not bare)
        self.branches = nn.ModuleDict(
            {
                name: Branch(BRANCHES[name](site), config, d_model, own_norm=not config.shared_norm and not bare)
                for name in names
            }
        )
        self.after = _norm(config, d_model, stands=config.placement.after)

    def forward(self, x: Tensor, run: Pass) -> Tensor:
        x = self.enter(x)
        shared = self.before(x)
        out: Tensor = self.after(reduce(add, (branch(shared, run) for branch in self.branches.values()), x))
        return out


class Layer(nn.Module):
    """The steps in order."""

    def __init__(self, site: _Site) -> None:
        super().__init__()
        self.steps = nn.ModuleDict({"_".join(names): Step(names, site) for names in site.config.steps})

    def forward(self, x: Tensor, run: Pass) -> Tensor:
        for step in self.steps.values():
            x = step(x, run)
        return x


class Stack(nn.Module):
    """All layers of one tower, and its position schemes: one for the stack, and one for each kind of layers that needs
    another."""

    def __init__(self, config: StackConfig, d_model: int, d_embed: int, context_length: int) -> None:
        super().__init__()
        first, *others = config.kinds
        self.visibility = [kind.visibility for kind in (first, *others)]
        sites = [(kind.positions, _dims(kind, d_model, d_embed, context_length)) for kind in (first, *others)]
        distinct = list(dict.fromkeys(sites))
        self.positions, *more = (positions.build(dims) for positions, dims in distinct)
        self.other_positions = nn.ModuleList(more)
        self.scheme_of = [distinct.index(site) for site in sites]
        self.summaries = NoSummaries() if config.summaries is None else BlockSums(config.summaries.size)
        self.kind_of = config.kind_of
        n_unique = config.n_layers if config.n_unique is None else config.n_unique
        self.unique = [layer * n_unique // config.n_layers for layer in range(config.n_layers)]
        schemes = [self.positions, *self.other_positions]
        self.layers = nn.ModuleList(
            Layer(_Site(config.kinds[kind], d_model, schemes[self.scheme_of[kind]], first=layer == 0))
            for layer, kind in enumerate(self.kind_of[:n_unique])
        )
        self.final_norm = _norm(config, d_model, stands=config.ends_with_norm)
        self.view_source = _view_source if config.crosses else _view_nothing
        self.tag = _first_is_global if config.first_is_global else _as_tagged

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        for run in self.prepare(context, x):
            context.tap.see(f"{run.layer}.input", x)
            x = self.layers[self.unique[run.layer]](x, run)
        context.tap.see("output", x)
        out: Tensor = self.final_norm(x)
        return out

    def prepare(self, context: Context, x: Tensor) -> list[Pass]:
        """For each layer the tags of all keys, who sees whom (made once a kind) and the geometry of positions (once a
        scheme)."""
        query = self.tag(context.tags)
        context = replace(context, tags=query)
        new, shares = self.summaries.admit(context)
        key = context.cache.admit(new)
        cross = self.view_source(context, key)
        geometry = [scheme.geometry(query, new, key, x.dtype) for scheme in (self.positions, *self.other_positions)]
        kinds = [
            (View(visibility, query, key), geometry[scheme])
            for visibility, scheme in zip(self.visibility, self.scheme_of, strict=True)
        ]
        return [
            Pass(layer, context, kinds[kind][0], cross, kinds[kind][1], shares)
            for layer, kind in enumerate(self.kind_of)
        ]


def _dims(config: StackConfig, d_model: int, d_embed: int, context_length: int) -> Dims:
    return Dims(
        d_model=d_model,
        d_embed=d_embed,
        n_heads=config.attention.n_heads,
        head_dim=config.attention.width(d_model),
        context_length=context_length,
        looks_ahead=config.visibility.looks_ahead(prefix=True),
        block_size=None if config.summaries is None else config.summaries.size,
    )


def _as_tagged(tags: Tags) -> Tags:
    return tags


def _first_is_global(tags: Tags) -> Tags:
    return replace(tags, is_global=tags.is_global | (tags.position == 0), start=None)


def _view_source(context: Context, _: Tags) -> View:
    source = context.source.tags
    if source.shape[0] != context.tags.shape[0]:
        raise ConfigError(
            "a decoder with cross-attention needs the encoder's output, one row for each of its own",
            value=f"{source.shape[0]} rows for {context.tags.shape[0]}",
            remedy="Pass source=model.encode(source_ids).",
        )
    return View(Full(), context.tags, source)


def _view_nothing(context: Context, key: Tags) -> View:
    return View(Full(), context.tags, key)


def _norm(config: StackConfig, d_model: int, *, stands: bool) -> nn.Module:
    return config.norm.build(d_model) if stands else nn.Identity()
