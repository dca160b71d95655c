"""Performer: random features whose products estimate those of the softmax (FAVOR+, Choromanski et al. 2021).

Axes: B batch, T query, S key, H heads, E head, m features.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

import torch
from torch import Tensor

from transpect.base.checks import within
from transpect.core.kernels.base import Scoring, Sizes
from transpect.core.kernels.linear import SumsKernel, SumsWay
from transpect.core.kernels.naive import Naive
from transpect.core.kernels.sums import wide
from transpect.core.tags import Tags
from transpect.core.view import View
from transpect.core.visibility import Visibility


@dataclass(frozen=True)
class Performer(SumsKernel, kind="performer"):
    """φ(q)·φ(k) estimates exp(scale·q·k) without bias (§2.3, positive orthogonal random features).

    Attributes:
        features: m; None is E·ln E, rounded up, of the order that theorem 4 asks for.
        redraw: after how many updates of a training the features are drawn anew; None is never.
        seed: of the draws; each layer has its own.
    """

    features: int | None = None
    redraw: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        within("Performer.features", self.features)
        within("Performer.redraw", self.redraw)

    def size(self, head_dim: int) -> int:
        """m."""
        return max(1, math.ceil(head_dim * math.log(head_dim))) if self.features is None else self.features

    def numbers(self, sizes: Sizes) -> int:
        return self.size(sizes.head_dim) * sizes.head_dim

    def build(self, sizes: Sizes) -> PerformerWay:
        return PerformerWay(self, self.size(sizes.head_dim), sizes.head_dim)


class PerformerWay(SumsWay):
    """One layer's features.

    Attributes:
        omega: [m, E], their directions; a buffer, which is saved, since it is part of the function.
    """

    omega: Tensor

    def __init__(self, config: Performer, features: int, head_dim: int) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("omega", torch.empty(features, head_dim))

    def draw(self, layer: int, step: int) -> None:
        """Draw the features that layer ``layer`` has at update ``step``, counted from 0."""
        number = 0 if self.config.redraw is None else step // self.config.redraw
        generator = torch.Generator().manual_seed(_mixed(self.config.seed, layer, number))
        with torch.no_grad():
            self.omega.copy_(orthogonal_features(len(self.omega), self.omega.shape[1], generator))

    def scaled(self, x: Tensor, scale: float) -> Tensor:
        return x * math.sqrt(scale)

    def log_query(self, query: Tensor) -> Tensor:
        return query @ self.omega.to(query.dtype).T  # −|q|²/2 is the query's own

    def log_key(self, key: Tensor) -> Tensor:
        return log_features(key, self.omega)


def log_features(x: Tensor, omega: Tensor) -> Tensor:
    """log φ(x) = ωᵀx − |x|²/2 − ln(m)/2 (lemma 1): [..., E] -> [..., m], at least float32."""
    x = wide(x)
    return x @ omega.to(x.dtype).T - (x.square().sum(-1, keepdim=True) + math.log(len(omega))) / 2


def estimate(query: Tensor, key: Tensor, omega: Tensor, scale: float) -> Tensor:
    """What takes the place of exp(scale · q·k): [..., T, E] and [..., S, E] -> [..., T, S]."""
    query, key = (log_features(x * math.sqrt(scale), omega).exp() for x in (query, key))
    return query @ key.transpose(-1, -2)


@torch.no_grad()
def mean_error(
    query: Tensor, key: Tensor, value: Tensor, rule: Visibility, *, features: int, seeds: Iterable[int]
) -> float:
    """How far attention by m features is from the softmax's, |out − exact| / |exact| (Frobenius norms), a mean over
    draws.

    Args:
        query, key, value: [B, H, T, E], of rows without padding.
        rule: `Full` or `Causal`.
        features: m.
        seeds: of the draws.
    """
    tags = Tags.dense(query.shape[0], query.shape[2], device=query.device)
    view, scoring = View(rule, tags, tags), Scoring(query.shape[-1] ** -0.5)
    exact, errors = Naive().attend(query, key, value, view, scoring), []
    for seed in seeds:
        way = PerformerWay(Performer(features, seed=seed), features, query.shape[-1]).to(query)
        way.draw(0, 0)
        errors.append(float((way.attend(query, key, value, view, scoring) - exact).norm() / exact.norm()))
    return sum(errors) / len(errors)


def orthogonal_features(features: int, head_dim: int, generator: torch.Generator) -> Tensor:
    """Directions [m, E], float64: each ~ N(0, I), orthogonal within blocks of E of them (§2.4)."""
    blocks = -(-features // head_dim)
    drawn = torch.randn(blocks, head_dim, head_dim, generator=generator, dtype=torch.float64, device="cpu")
    rotation, triangle = torch.linalg.qr(drawn)
    # with the signs of the diagonal it is uniform over all rotations (Mezzadri 2007, §5); without, its rows are not
    rotation = rotation * triangle.diagonal(dim1=-2, dim2=-1).sign()[:, None, :]
    lengths = torch.randn(features, head_dim, generator=generator, dtype=torch.float64, device="cpu").norm(dim=1)
    directions: Tensor = rotation.flatten(0, 1)[:features] * lengths[:, None]
    return directions


def draw_features(model: torch.nn.Module, step: int = 0) -> None:
    """Draw the features of all layers anew, those of update ``step``; layers are numbered as modules are."""
    for layer, way in _numbered(model):
        way.draw(layer, step)


def redraw_features(model: torch.nn.Module, step: int) -> None:
    """As `draw_features` for the layers whose draw changes with update ``step``."""
    for layer, way in _numbered(model):
        if way.config.redraw is not None and step % way.config.redraw == 0:
            way.draw(layer, step)


def _numbered(model: torch.nn.Module) -> Iterable[tuple[int, PerformerWay]]:
    return enumerate(module for module in model.modules() if isinstance(module, PerformerWay))


def _mixed(*numbers: int) -> int:
    return int.from_bytes(blake2b(repr(numbers).encode(), digest_size=7, person=b"performer").digest(), "little")
