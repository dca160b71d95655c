"""Every family against `transformers`: a row a model, a file a kind of model."""

from family_cases.base import Case
from family_cases.decoders import CASES as DECODERS
from family_cases.early_decoders import CASES as EARLY_DECODERS
from family_cases.encoder_decoders import CASES as ENCODER_DECODERS
from family_cases.encoders import CASES as ENCODERS
from family_cases.later_decoders import CASES as LATER_DECODERS

CASES: list[Case] = [*EARLY_DECODERS, *LATER_DECODERS, *DECODERS, *ENCODERS, *ENCODER_DECODERS]
