"""Position schemes, one file each."""

from transpect.core.positions.alibi import Alibi
from transpect.core.positions.base import Dims, Geometry, Mover, Position, PositionModule, Relation, Scores
from transpect.core.positions.kerple import Kerple
from transpect.core.positions.learned import Learned
from transpect.core.positions.longrope import LongRope
from transpect.core.positions.none import NoPosition
from transpect.core.positions.repeated_block import RepeatedBlock
from transpect.core.positions.rope import (
    DynamicNTK,
    LinearScaling,
    Llama3Scaling,
    NoScaling,
    Rope,
    RopeScaling,
    Yarn,
)
from transpect.core.positions.sinusoidal import Sinusoidal
from transpect.core.positions.t5 import T5Buckets
from transpect.core.positions.transformer_xl import TransformerXL

__all__ = [
    "Alibi",
    "Dims",
    "DynamicNTK",
    "Geometry",
    "Kerple",
    "Learned",
    "LinearScaling",
    "Llama3Scaling",
    "LongRope",
    "Mover",
    "NoPosition",
    "NoScaling",
    "Position",
    "PositionModule",
    "Relation",
    "RepeatedBlock",
    "Rope",
    "RopeScaling",
    "Scores",
    "Sinusoidal",
    "T5Buckets",
    "TransformerXL",
    "Yarn",
]
