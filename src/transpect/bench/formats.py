"""Number formats of weights, and what each program calls its own of the same bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from transpect.base.codec import did_you_mean
from transpect.base.errors import ConfigError

__all__ = ["FORMATS", "Format", "known_formats"]


@dataclass(frozen=True)
class Format:
    """One of ours, and its rivals of the same bits.

    Attributes:
        bits: of a number, without scales.
        ours: what `transpect.load` is told.
        llama: kinds of GGUF files; where there are several, all are measured and ours is held against each.
        ctranslate2: its compute type.
        transformers: a dtype of torch.
    """

    bits: int
    ours: Mapping[str, Any]
    llama: tuple[str, ...] = ()
    ctranslate2: str | None = None
    transformers: str | None = None


FORMATS: Final[Mapping[str, Format]] = {
    "float32": Format(32, {"dtype": "float32"}, ("F32",), "float32", "float32"),
    "bfloat16": Format(16, {"dtype": "bfloat16"}, ("BF16",), "bfloat16", "bfloat16"),
    "int8": Format(8, {"dtype": "float32", "quant": "int8"}, ("Q8_0",), "int8_float32", None),
    "int4": Format(4, {"dtype": "float32", "quant": "int4"}, ("Q4_0", "Q4_K_M"), None, None),
}


def known_formats(names: tuple[str, ...]) -> tuple[str, ...]:
    """The same names.

    Raises:
        ConfigError: one of them is none.
    """
    for name in names:
        if name not in FORMATS:
            remedy = f"{did_you_mean(name, FORMATS)} Choose from {', '.join(FORMATS)}.".strip()
            raise ConfigError("no such format", value=name, remedy=remedy)
    return names
