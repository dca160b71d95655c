"""Optimizers, which weights they serve at which rate, and what they remember."""

from transpect.train.optimizers.adafactor import Adafactor
from transpect.train.optimizers.adamw import AdamW
from transpect.train.optimizers.base import Optimizer
from transpect.train.optimizers.groups import (
    NO_RULES,
    Grouping,
    GroupRule,
    decay_groups,
    decaying,
    set_rate,
)
from transpect.train.optimizers.lion import Lion
from transpect.train.optimizers.muon import Muon
from transpect.train.optimizers.sgd import Sgd
from transpect.train.optimizers.tensors import load_optimizer_tensors, optimizer_tensors

__all__ = [
    "NO_RULES",
    "Adafactor",
    "AdamW",
    "GroupRule",
    "Grouping",
    "Lion",
    "Muon",
    "Optimizer",
    "Sgd",
    "decay_groups",
    "decaying",
    "load_optimizer_tensors",
    "optimizer_tensors",
    "set_rate",
]
