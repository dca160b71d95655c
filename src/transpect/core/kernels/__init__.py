"""Ways to compute attention, one file each; `naive` is the definition."""

from transpect.core.kernels.base import Demands, Exact, Kernel, Scoring, Sizes, Way
from transpect.core.kernels.block_sparse import BlockSparse
from transpect.core.kernels.flash import Flash
from transpect.core.kernels.flex import Flex
from transpect.core.kernels.linear import Linear
from transpect.core.kernels.linformer import Linformer
from transpect.core.kernels.naive import Naive
from transpect.core.kernels.performer import Performer
from transpect.core.kernels.sdpa import Sdpa

__all__ = [
    "BlockSparse",
    "Demands",
    "Exact",
    "Flash",
    "Flex",
    "Kernel",
    "Linear",
    "Linformer",
    "Naive",
    "Performer",
    "Scoring",
    "Sdpa",
    "Sizes",
    "Way",
]
