"""Objectives: what of a document is read and what is predicted. One file a kind."""

from transpect.data.collating import Example
from transpect.data.objectives.base import Encoded, Needs, Objective, Remembers, Task
from transpect.data.objectives.causal import Causal
from transpect.data.objectives.chat import Chat
from transpect.data.objectives.classification import Classification
from transpect.data.objectives.contrastive import Contrastive
from transpect.data.objectives.denoising import Denoising
from transpect.data.objectives.electra import Electra
from transpect.data.objectives.masked import Masked
from transpect.data.objectives.preference import Preference
from transpect.data.objectives.prefix import Prefix
from transpect.data.objectives.recurrent import Recurrent
from transpect.data.objectives.seq2seq import Seq2Seq
from transpect.data.objectives.span import Span
from transpect.data.objectives.token_classification import TokenClassification

__all__ = [
    "Causal",
    "Chat",
    "Classification",
    "Contrastive",
    "Denoising",
    "Electra",
    "Encoded",
    "Example",
    "Masked",
    "Needs",
    "Objective",
    "Preference",
    "Prefix",
    "Recurrent",
    "Remembers",
    "Seq2Seq",
    "Span",
    "Task",
    "TokenClassification",
]
