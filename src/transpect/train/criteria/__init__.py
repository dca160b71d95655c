"""Criteria: what a run makes small. One file a kind of ``train.loss``."""

from transpect.train.criteria.base import Criterion, Loss, Setting, Sums, usual_loss
from transpect.train.criteria.classification import ClassificationLoss, TokenClassificationLoss
from transpect.train.criteria.contrastive import ContrastiveLoss
from transpect.train.criteria.distillation import Distillation
from transpect.train.criteria.electra import ElectraLoss
from transpect.train.criteria.preference import Dpo, Ipo
from transpect.train.criteria.tokens import CROSS_ENTROPY, CrossEntropy, TokenCrossEntropy

__all__ = [
    "CROSS_ENTROPY",
    "ClassificationLoss",
    "ContrastiveLoss",
    "Criterion",
    "CrossEntropy",
    "Distillation",
    "Dpo",
    "ElectraLoss",
    "Ipo",
    "Loss",
    "Setting",
    "Sums",
    "TokenClassificationLoss",
    "TokenCrossEntropy",
    "usual_loss",
]
