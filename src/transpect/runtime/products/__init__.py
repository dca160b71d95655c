"""Products of rows of weights with rows of activations, the innermost loops of a decode program, for every format of
weights and every kind of CPU."""

from transpect.runtime.products.cpu import multiplies_bfloat16, name
from transpect.runtime.products.formats import (
    Q4_0,
    Q4_1,
    Q4_K,
    Q6_K,
    Q8_0,
    Blocks,
    Digits,
    Int4Groups,
    Int4Shifted,
    Int8Groups,
    Int8Rows,
    WordBlocks,
    Words,
)
from transpect.runtime.products.pairs import activations, pair, restore, width_of
from transpect.runtime.products.panels import multiply, room_for, words
from transpect.runtime.products.quantising import quantise
from transpect.runtime.products.shares import border, share
from transpect.runtime.products.tiles import ROWS

__all__ = [
    "Q4_0",
    "Q4_1",
    "Q4_K",
    "Q6_K",
    "Q8_0",
    "ROWS",
    "Blocks",
    "Digits",
    "Int4Groups",
    "Int4Shifted",
    "Int8Groups",
    "Int8Rows",
    "WordBlocks",
    "Words",
    "activations",
    "border",
    "multiplies_bfloat16",
    "multiply",
    "name",
    "pair",
    "quantise",
    "restore",
    "room_for",
    "share",
    "width_of",
    "words",
]
