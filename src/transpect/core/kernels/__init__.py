"""Ways to compute attention, one file each; `naive` is the definition."""

from transpect.core.kernels.base import Demands, Kernel
from transpect.core.kernels.naive import Naive
from transpect.core.kernels.sdpa import Sdpa

__all__ = ["Demands", "Kernel", "Naive", "Sdpa"]
