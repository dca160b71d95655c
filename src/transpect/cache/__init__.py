"""What a model remembers between passes, outside the model."""

from transpect.cache.dense import DenseCache
from transpect.cache.kinds import DENSE, CacheKind, Dense, Sinks, Sliding, chosen
from transpect.cache.memory import SegmentMemory, check_memory
from transpect.cache.sinks import SinksCache
from transpect.cache.sliding import SlidingCache
from transpect.cache.static import StaticCache
from transpect.cache.sums import SumsCache

__all__ = [
    "DENSE",
    "CacheKind",
    "Dense",
    "DenseCache",
    "SegmentMemory",
    "Sinks",
    "SinksCache",
    "Sliding",
    "SlidingCache",
    "StaticCache",
    "SumsCache",
    "check_memory",
    "chosen",
]
