"""One run by many processes: who they are, what each of them reads, and how what they computed comes together."""

from transpect.train.parallel.spec import ParallelSpec
from transpect.train.parallel.world import ALONE, World

__all__ = ["ALONE", "ParallelSpec", "World"]
