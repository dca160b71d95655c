"""From logits to text: filters, sampling, stopping, one way to generate; and how probable given text is."""

from transpect.decode.alternatives import TokenLogprob, described
from transpect.decode.constraints import Grammar, JsonSchema, OneOf, Regex
from transpect.decode.defaults import Defaults
from transpect.decode.engine import decode, generate, stream
from transpect.decode.events import Events
from transpect.decode.guidance import Guided
from transpect.decode.params import GenerationParams
from transpect.decode.program_steps import ProgramSteps, Runtime
from transpect.decode.prompts import Prompts
from transpect.decode.request import Event, FinishReason, Request, Result
from transpect.decode.row import Row
from transpect.decode.sampling import Choice, Sampler, uniform
from transpect.decode.scoring import Passage, Score, logprobs
from transpect.decode.stepper import Stepper, Steps
from transpect.decode.strategies import BeamSearch, BestOf, ContrastiveSearch, DiverseBeamSearch, Sample, Strategy
from transpect.decode.trace import FREE, Constraint, Trace

__all__ = [
    "FREE",
    "BeamSearch",
    "BestOf",
    "Choice",
    "Constraint",
    "ContrastiveSearch",
    "Defaults",
    "DiverseBeamSearch",
    "Event",
    "Events",
    "FinishReason",
    "GenerationParams",
    "Grammar",
    "Guided",
    "JsonSchema",
    "OneOf",
    "Passage",
    "ProgramSteps",
    "Prompts",
    "Regex",
    "Request",
    "Result",
    "Row",
    "Runtime",
    "Sample",
    "Sampler",
    "Score",
    "Stepper",
    "Steps",
    "Strategy",
    "TokenLogprob",
    "Trace",
    "decode",
    "described",
    "generate",
    "logprobs",
    "stream",
    "uniform",
]
