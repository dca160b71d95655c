"""What a model remembers between passes, outside the model."""

from transpect.cache.dense import DenseCache
from transpect.cache.memory import SegmentMemory, check_memory
from transpect.cache.sliding import SlidingCache
from transpect.cache.sums import SumsCache

__all__ = ["DenseCache", "SegmentMemory", "SlidingCache", "SumsCache", "check_memory"]
