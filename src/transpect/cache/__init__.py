"""What a model remembers between passes, outside the model."""

from transpect.cache.dense import DenseCache
from transpect.cache.int8 import Int8Cache
from transpect.cache.kinds import DENSE, CacheKind, Dense, Int8, Sinks, Sliding, Static, chosen
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
    "Int8",
    "Int8Cache",
    "SegmentMemory",
    "Sinks",
    "SinksCache",
    "Sliding",
    "SlidingCache",
    "Static",
    "StaticCache",
    "SumsCache",
    "check_memory",
    "chosen",
]
