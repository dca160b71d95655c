"""What a model remembers between passes, outside the model."""

from transpect.cache.block_pool import BlockPool, Table
from transpect.cache.dense import DenseCache
from transpect.cache.int8 import Int8Cache
from transpect.cache.kinds import DENSE, CacheKind, Dense, Int8, Paged, Sinks, Sliding, Static, chosen
from transpect.cache.memory import SegmentMemory, check_memory
from transpect.cache.paged import PagedCache, Pages
from transpect.cache.sinks import SinksCache
from transpect.cache.sliding import SlidingCache
from transpect.cache.static import StaticCache
from transpect.cache.sums import SumsCache

__all__ = [
    "DENSE",
    "BlockPool",
    "CacheKind",
    "Dense",
    "DenseCache",
    "Int8",
    "Int8Cache",
    "Paged",
    "PagedCache",
    "Pages",
    "SegmentMemory",
    "Sinks",
    "SinksCache",
    "Sliding",
    "SlidingCache",
    "Static",
    "StaticCache",
    "SumsCache",
    "Table",
    "check_memory",
    "chosen",
]
