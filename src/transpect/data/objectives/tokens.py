"""Objectives that can do without text, and so can read token files."""

from __future__ import annotations

from abc import ABC, abstractmethod

from transpect.data.objectives.base import Encoded
from transpect.data.ragged import Ragged


class TakesTokens(ABC):
    """A task whose documents may be ids from the start."""

    @abstractmethod
    def encode_tokens(self, rows: Ragged, characters: int) -> Encoded:
        """Documents that were encoded before, as `Task.encode` would give them.

        Args:
            rows: a row a document, without special tokens.
            characters: of their texts.

        Raises:
            ConfigError: an option needs the text.
        """
