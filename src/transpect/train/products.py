"""Matrix products that are written where they belong, whatever the dtype they are made in."""

from torch import Tensor, mm


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
