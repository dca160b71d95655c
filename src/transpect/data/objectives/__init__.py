"""Objectives: what of a document is read and what is predicted. One file a kind."""

from transpect.data.objectives.base import Encoded, Example, Needs, Objective, Remembers, Task
from transpect.data.objectives.causal import Causal
from transpect.data.objectives.masked import Masked
from transpect.data.objectives.recurrent import Recurrent
from transpect.data.objectives.seq2seq import Seq2Seq

__all__ = [
    "Causal",
    "Encoded",
    "Example",
    "Masked",
    "Needs",
    "Objective",
    "Recurrent",
    "Remembers",
    "Seq2Seq",
    "Task",
]
