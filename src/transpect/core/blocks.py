"""Sublayers as data: a stack is layers, a layer is steps, a step sums branches into the residual stream.

Axes: B batch, T query, D model.

``x ← after(x + Σ dropout(after_branch(branch(before(x)))))``: which of its slots hold a norm is the placement.
``(("self",), ("ffn",))`` is GPT-2, ``(("self",), ("cross",), ("ffn",))`` a decoder with cross-attention,
``(("self", "ffn"),)`` GPT-NeoX's parallel block.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add

from torch import Tensor, nn

from transpect.base.errors import ConfigError
from transpect.core.attention import CrossAttention, Pass, SelfAttention
from transpect.core.context import Context
from transpect.core.global_attention import GlobalSelfAttention
from transpect.core.kernels.linear import SumsKernel
from transpect.core.linear_attention import LinearSelfAttention
from transpect.core.positions import Dims, PositionModule
from transpect.core.stack_config import StackConfig
from transpect.core.summaries import BlockSums, LayerSums, NoSummaries
from transpect.core.tags import Tags
from transpect.core.view import View
from transpect.core.visibility import FromGlobal, Full


@dataclass(frozen=True)
class _Site:
    """Where a branch is built."""

    config: StackConfig
    d_model: int
    context_length: int
    positions: PositionModule
    first: bool


def _self(site: _Site) -> nn.Module:
    of = site.config.summaries
    sums = NoSummaries() if of is None else LayerSums(of.norm.build(site.d_model))
    config = site.config.attention
    if isinstance(config.kernel, SumsKernel):
        return LinearSelfAttention(config, site.d_model, site.context_length, sums)
    build = GlobalSelfAttention if config.global_projections else SelfAttention
    return build(config, site.d_model, site.context_length, site.positions.relation(), sums)


def _cross(site: _Site) -> nn.Module:
    return CrossAttention(site.config.cross or site.config.attention, site.d_model, site.context_length)


def _ffn(site: _Site) -> nn.Module:
    return site.config.ffn.build(site.d_model)


_BUILD: dict[str, Callable[[_Site], nn.Module]] = {"self": _self, "cross": _cross, "ffn": _ffn}


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
                name: Branch(_BUILD[name](site), config, d_model, own_norm=not config.shared_norm and not bare)
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
        # what adds to the embeddings is one for all, whatever else differs
        sites = [sites[0] if positions.embeds else (positions, dims) for positions, dims in sites]
        distinct = list(dict.fromkeys(sites))
        self.positions, *more = (positions.build(dims) for positions, dims in distinct)
        self.other_positions = nn.ModuleList(more)
        self.scheme_of = [distinct.index(site) for site in sites]
        self.summaries = NoSummaries() if config.summaries is None else BlockSums(config.summaries.size)
        self.by_tokens = config.summaries is None  # what is between two attentions
        self.kind_of = config.kind_of
        n_unique = config.n_layers if config.n_unique is None else config.n_unique
        self.unique = [layer * n_unique // config.n_layers for layer in range(config.n_layers)]
        schemes = [self.positions, *self.other_positions]
        self.layers = nn.ModuleList(
            Layer(_Site(config.kinds[kind], d_model, context_length, schemes[self.scheme_of[kind]], first=layer == 0))
            for layer, kind in enumerate(self.kind_of[:n_unique])
        )
        self.final_norm = _norm(config, d_model, stands=config.ends_with_norm)
        self.view_source = _view_source if config.crosses else _view_nothing
        self.tag = _first_is_global if config.first_is_global else _as_tagged

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        runs = self.prepare(context, x)
        x = context.layout.pack(x)
        for run in runs:
            context.tap.see(f"{run.layer}.input", x)
            x = self.layers[self.unique[run.layer]](x, run)
        context.tap.see("output", x)
        return context.layout.spread(self.final_norm(x))

    def first(self, n_layers: int) -> Stack:
        """The first layers and the final norm: the same modules."""
        early = copy(self)
        early.kind_of = self.kind_of[:n_layers]
        return early

    def prepare(self, context: Context, x: Tensor) -> list[Pass]:
        """For each layer the tags of all keys, who sees whom (made once a kind) and the geometry of positions (once a
        scheme)."""
        query = self.tag(context.tags)
        context = replace(context, tags=query)
        new, shares = self.summaries.admit(context)
        key = context.cache.admit(new)
        cross = self.view_source(context, key)
        geometry = [scheme.geometry(query, new, key, x.dtype) for scheme in (self.positions, *self.other_positions)]
        of_kind = [
            partial(
                Pass,
                context=context,
                self_view=View(visibility, query, key),
                global_view=View(visibility & FromGlobal(), query, key),
                cross_view=cross,
                geometry=geometry[scheme],
                shares=shares,
            )
            for visibility, scheme in zip(self.visibility, self.scheme_of, strict=True)
        ]
        return [of_kind[kind](layer) for layer, kind in enumerate(self.kind_of)]


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
