"""Matrix products and gradients that are written where they belong, whatever the dtype they are made in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import local

from torch import Tensor, mm

_here = local()


@contextmanager
def onto_gradients() -> Iterator[None]:
    """Let backward passes of this thread add to the gradients that weights have already, which spares making another
    one and adding it. For calls of ``backward`` alone: what asks autograd for gradients by themselves gets them only
    outside of this."""
    before, _here.onto = adds_onto(), True
    try:
        yield
    finally:
        _here.onto = before


def adds_onto() -> bool:
    """Whether that is so here."""
    return getattr(_here, "onto", False)


def own_gradient(weight: Tensor) -> Tensor | None:
    """Where a backward pass may add the gradient of a weight, if anywhere."""
    if adds_onto() and weight.is_leaf and weight.grad is not None and weight.grad.dtype == weight.dtype:
        return weight.grad
    return None


def added(weight: Tensor, gradient: Tensor | None, factor: Tensor) -> Tensor | None:
    """What a backward pass returns for a weight whose gradient is ``factor`` times a tensor that nobody needs again."""
    if gradient is None:
        return None
    own = own_gradient(weight)
    if own is None:
        return gradient * factor
    own.add_(gradient.to(own.dtype), alpha=float(factor))
    return None


def product_into(out: Tensor, a: Tensor, b: Tensor) -> None:
    """out ← a · b."""
    if out.dtype == a.dtype:
        mm(a, b, out=out)
    else:
        out.copy_(a @ b)


def product_onto(out: Tensor, a: Tensor, b: Tensor) -> None:
    """out ← out + a · b."""
    if out.dtype == a.dtype:
        out.addmm_(a, b)
    else:
        out += a @ b
