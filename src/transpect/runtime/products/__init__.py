"""Products of rows of weights with rows of activations, the innermost loops of a decode program, for every format of
weights and every kind of CPU."""

from transpect.runtime.products.cpu import name
from transpect.runtime.products.formats import Digits, Int8Rows
from transpect.runtime.products.pairs import pair
from transpect.runtime.products.quantising import quantise

__all__ = ["Digits", "Int8Rows", "name", "pair", "quantise"]
