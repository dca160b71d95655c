"""``transpect train --find-lr``: which learning rate suits a recipe."""

from transpect.train.find_rate.finding import FoundRate, find_rate

__all__ = ["FoundRate", "find_rate"]
