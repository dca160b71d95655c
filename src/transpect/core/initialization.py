"""How weights start. Every draw comes from a generator that is passed in."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transpect.base.checks import above, at_least
from transpect.base.codec import Variant


class Initialization(Variant):
    """Fills a model's matrices and tables; biases start at 0, norms and Transformer-XL's u, v as they are built."""

    def linear(self, weight: Tensor, generator: torch.Generator, *, residual: int) -> None:
        """Fill a projection [out, in]; ``residual`` is how many branches write to the stream it ends in, else 0."""
        raise AssertionError("abstract")

    def table(self, weight: Tensor, generator: torch.Generator) -> None:
        """Fill an embedding table [rows, D]."""
        raise AssertionError("abstract")

    def readout(self, weight: Tensor, generator: torch.Generator) -> None:
        """Fill a projection to the vocabulary [V, in] that is not the token table."""
        self.linear(weight, generator, residual=0)

    def share(self, d_model: int) -> float:
        """Of the rate that suits the vectors and tables of a model, how much its matrices should have."""
        return 1.0


@dataclass(frozen=True)
class NormalInit(Initialization, kind="normal"):
    """N(0, std²); with ``residual_scaling``, branch outputs get std/√(number of branches) (GPT-2 §2.3)."""

    std: float = 0.02
    residual_scaling: bool = True

    def __post_init__(self) -> None:
        at_least("std", self.std, 0)

    def linear(self, weight: Tensor, generator: torch.Generator, *, residual: int) -> None:
        shrink = residual**-0.5 if self.residual_scaling and residual else 1.0
        weight.normal_(0.0, self.std * shrink, generator=generator)

    def table(self, weight: Tensor, generator: torch.Generator) -> None:
        weight.normal_(0.0, self.std, generator=generator)


@dataclass(frozen=True)
class XavierInit(Initialization, kind="xavier"):
    """U(±√(6/(in+out))) for projections (Glorot & Bengio 2010), N(0, 1/D) for tables, unit after the √D scale."""

    def linear(self, weight: Tensor, generator: torch.Generator, *, residual: int) -> None:
        nn.init.xavier_uniform_(weight, generator=generator)

    def table(self, weight: Tensor, generator: torch.Generator) -> None:
        weight.normal_(0.0, weight.shape[-1] ** -0.5, generator=generator)


@dataclass(frozen=True)
class KaimingInit(Initialization, kind="kaiming"):
    """N(0, 2/in) for projections (He et al. 2015), N(0, 1/D) for tables."""

    def linear(self, weight: Tensor, generator: torch.Generator, *, residual: int) -> None:
        weight.normal_(0.0, math.sqrt(2.0 / weight.shape[1]), generator=generator)

    def table(self, weight: Tensor, generator: torch.Generator) -> None:
        weight.normal_(0.0, weight.shape[-1] ** -0.5, generator=generator)


@dataclass(frozen=True)
class WidthInit(Initialization, kind="width"):
    """For models of many widths that learn alike, so that what suits a narrow one suits a wide one: N(0, std²·base/in)
    for projections, 0 for the one to the vocabulary, N(0, std²) for tables; an optimizer whose steps do not grow with
    the gradient gives matrices base/D of the rate.

    This is the maximal update parametrisation of Yang et al. 2022 ("Tensor Programs V", table 3 and appendix D.2) for a
    width that grows by heads: with heads that grow, scores would have to be divided by E and not by √E.

    Attributes:
        base: the width D at which rates were found.
        std: of tables, and of a projection at the width ``base``.
    """

    base: int = 256
    std: float = 0.02

    def __post_init__(self) -> None:
        above("base", self.base, 0)
        at_least("std", self.std, 0)

    def linear(self, weight: Tensor, generator: torch.Generator, *, residual: int) -> None:
        weight.normal_(0.0, self.std * math.sqrt(self.base / weight.shape[1]), generator=generator)

    def table(self, weight: Tensor, generator: torch.Generator) -> None:
        weight.normal_(0.0, self.std, generator=generator)

    def readout(self, weight: Tensor, generator: torch.Generator) -> None:
        weight.zero_()

    def share(self, d_model: int) -> float:
        return self.base / d_model


class Readout(nn.Module):
    """A module whose weight [V, in] maps to the vocabulary; see `Initialization.readout`."""


class Drawn(nn.Module):
    """A module whose own tensors start as its source says, whatever the model's `Initialization` is."""

    def draw(self, generator: torch.Generator) -> None:
        """Fill them, from draws on the CPU."""
        raise AssertionError("abstract")


@torch.no_grad()
def initialize(model: nn.Module, init: Initialization, residual: dict[str, int], seed: int) -> None:
    """Fill ``model`` in the order of its modules.

    Args:
        residual: for each projection (by name) that writes to a residual stream, how many branches write to it.
        seed: of the generator, on the CPU, so that every device starts from the same numbers.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, module in model.named_modules():
        if isinstance(module, Drawn):
            module.draw(generator)
        weight = getattr(module, "weight", None)
        if not isinstance(weight, nn.Parameter) or weight.ndim != 2 or weight.is_meta:
            continue
        drawn = torch.empty(weight.shape, dtype=weight.dtype, device="cpu")
        if isinstance(module, nn.Embedding):
            init.table(drawn, generator)
        elif isinstance(module, Readout):
            init.readout(drawn, generator)
        else:
            init.linear(drawn, generator, residual=residual.get(name, 0))
        weight.copy_(drawn)
        if isinstance(module, nn.Linear) and module.bias is not None:
            module.bias.zero_()
