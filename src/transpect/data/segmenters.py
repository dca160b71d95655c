"""Words of Chinese text by a dictionary, for masking them whole. The package is an extra."""

from __future__ import annotations

from typing import Literal

from transpect.base.errors import ConfigError
from transpect.data.documents import Segmenter

SegmenterName = Literal["jieba"]
"""``jieba``: a dictionary with word frequencies, and a hidden Markov model for what it lacks (`rjieba`, jieba in
Rust)."""


def segmenter_named(name: SegmenterName) -> Segmenter:
    """A segmenter; runs of Latin letters and digits are words too, and spaces belong to none.

    Raises:
        ConfigError: its package is not installed.
    """
    try:
        from rjieba import cut
    except ImportError as error:
        raise ConfigError(
            f"the segmenter {name} needs the package rjieba",
            value=name,
            remedy="pip install 'transpect[zh]', or leave segmenter out: then a Chinese character is a word.",
        ) from error

    def words(text: str) -> list[str]:
        return [word for word in cut(text) if not word.isspace()]

    return words
