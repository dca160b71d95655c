"""Training: recipes, schedules, optimizers, losses, the loop, evaluation."""

from transpect.train.activations import Activations, Checkpoint, Keep, Offload
from transpect.train.average import Ema
from transpect.train.errors import TrainingError
from transpect.train.evaluate import Evaluation, evaluate, evaluate_documents
from transpect.train.find_rate import FoundRate, find_rate
from transpect.train.loop import TrainResult, train
from transpect.train.optimizers import Adafactor, AdamW, Grouping, GroupRule, Lion, Muon, Optimizer, Sgd
from transpect.train.reading import load_recipe, parse_recipe
from transpect.train.recipe import (
    DataSpec,
    LoggingSpec,
    ModelSpec,
    Recipe,
    TokenizerSpec,
    TrainSpec,
    dump_recipe,
    recipe_data,
)
from transpect.train.resume import command_to_go_on
from transpect.train.schedules import Constant, Cosine, InverseSqrt, Linear, Noam, Plateau, Schedule, Wsd
from transpect.train.updates import Update, update
from transpect.train.watching.logger import Logger, Quiet, Record, Run, read_metrics

__all__ = [
    "Activations",
    "Adafactor",
    "AdamW",
    "Checkpoint",
    "Constant",
    "Cosine",
    "DataSpec",
    "Ema",
    "Evaluation",
    "FoundRate",
    "GroupRule",
    "Grouping",
    "InverseSqrt",
    "Keep",
    "Linear",
    "Lion",
    "Logger",
    "LoggingSpec",
    "ModelSpec",
    "Muon",
    "Noam",
    "Offload",
    "Optimizer",
    "Plateau",
    "Quiet",
    "Recipe",
    "Record",
    "Run",
    "Schedule",
    "Sgd",
    "TokenizerSpec",
    "TrainResult",
    "TrainSpec",
    "TrainingError",
    "Update",
    "Wsd",
    "command_to_go_on",
    "dump_recipe",
    "evaluate",
    "evaluate_documents",
    "find_rate",
    "load_recipe",
    "parse_recipe",
    "read_metrics",
    "recipe_data",
    "train",
    "update",
]
