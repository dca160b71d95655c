"""What a model remembers between passes, outside the model."""

from transpect.cache.dense import DenseCache
from transpect.cache.memory import SegmentMemory, check_memory

__all__ = ["DenseCache", "SegmentMemory", "check_memory"]
