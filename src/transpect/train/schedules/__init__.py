"""Learning-rate schedules: the rate as a function of how many updates the optimizer has made.

The n-th update (n = 1, 2, …) is made at rate f(n), so after n updates the rate is f(n), whatever the accumulation,
the batch size or the number of resumes. Warm-up rises in a straight line from 0, which no update uses, to the peak at
n = warmup.
"""

from transpect.train.schedules.base import Scale, Schedule
from transpect.train.schedules.falling import Constant, Cosine, Linear, Wsd
from transpect.train.schedules.plateau import Plateau, Standstill
from transpect.train.schedules.roots import InverseSqrt, Noam

__all__ = [
    "Constant",
    "Cosine",
    "InverseSqrt",
    "Linear",
    "Noam",
    "Plateau",
    "Scale",
    "Schedule",
    "Standstill",
    "Wsd",
]
