"""Pipeline parallelism: several processes share out the layers, and micro-batches go from one to the next."""

from transpect.train.parallel.layers.checks import check_layers
from transpect.train.parallel.layers.cutting import keep_stage
from transpect.train.parallel.layers.running import Staged
from transpect.train.parallel.layers.telling import first_stage_hears, last_stage_says

__all__ = ["Staged", "check_layers", "first_stage_hears", "keep_stage", "last_stage_says"]
