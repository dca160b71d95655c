"""fable: a small bilingual world that tells stories without end and knows the exact probability of each.

The cat mostly eats fish. The tables are in ``world`` (who and what), ``chances`` (how likely) and ``plot`` (what
follows what); ``grammar`` and ``automaton`` are the machine, ``measures`` the formulas, ``Fable`` the door.
"""

from transpect.data.fable.automaton import END_OF_STORY, Sentence, join
from transpect.data.fable.grammar import Entry, Frame, Grammar, Language, Slot
from transpect.data.fable.measures import Estimate, Measures, SentenceMeasure
from transpect.data.fable.teller import Fable, Story

__all__ = [
    "END_OF_STORY",
    "Entry",
    "Estimate",
    "Fable",
    "Frame",
    "Grammar",
    "Language",
    "Measures",
    "Sentence",
    "SentenceMeasure",
    "Slot",
    "Story",
    "join",
]
