"""Texts to the ids that a model was trained to read: where it begins, what ends a source.

Ids that a caller gives are never touched. To texts this is added, and exactly once:

- *Decoder*: a start token where the tokenizer's own rule puts a BOS, or where the checkpoint asks for one by
  ``prompt_start_token_id`` in its ``generation_config.json`` (for models that were trained on documents that begin so).
- *Encoder–decoder*: the source ends with EOS, by the tokenizer's own rule or put there, as in training; the decoder
  begins with ``decoder_start_token_id``, and goes on with ``forced_bos_token_id`` where the checkpoint has one (BART's
  BOS, the target language of mBART, M2M-100 and NLLB).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from transpect.base.errors import GenerationError
from transpect.text.framing import Frame
from transpect.text.tokenizer import Tokenizer

START: Final = "prompt_start_token_id"
"""Our own entry of ``generation_config.json``: the token before every text, whatever the tokenizer adds by itself."""


class Prompts:
    """What stands around a text.

    Args:
        tokenizer: of the model.
        generation: entries of ``generation_config.json``.
    """

    def __init__(self, tokenizer: Tokenizer, generation: Mapping[str, Any]) -> None:
        self._tokenizer = tokenizer
        for name in (START, "decoder_start_token_id"):
            check_id(name, generation.get(name))
        own = tokenizer.bos_id if tokenizer.adds_bos else None
        self.start: Final = _first(generation.get(START), own)
        """The token before every text; None where texts stand by themselves."""
        eos = _first_of(generation.get("eos_token_id"))
        self.anchor: Final = _first(self.start, tokenizer.bos_id, generation.get("bos_token_id"), tokenizer.eos_id, eos)
        """The token to begin with where there is nothing else: the start token, a BOS, or an EOS."""
        self.end: Final = _first(tokenizer.eos_id, eos)
        self._decoder_start = _first(generation.get("decoder_start_token_id"), self.anchor)
        self._forced: int | None = generation.get("forced_bos_token_id")

    def prompt(self, text: str) -> list[int]:
        """Ids for a decoder to continue. Special tokens spelled in the text count as such.

        Raises:
            GenerationError: an empty text, and no token to begin with.
        """
        ids = self._tokenizer.encode(text)
        if self.start is not None and ids[:1] != [self.start]:  # the text may spell it itself
            ids = [self.start, *ids]
        return ids or [self.begin()]

    def source(self, text: str) -> list[int]:
        """Ids for an encoder to read (see `Frame.of_source`). Special tokens spelled in the text count as such."""
        return self._source_frame.around(self._tokenizer.encode(text))

    def begin(self) -> int:
        """The token of a decoder's empty prompt.

        Raises:
            GenerationError: the tokenizer has neither BOS nor EOS.
        """
        if self.anchor is None:
            raise GenerationError(
                "an empty prompt begins with the tokenizer's BOS or EOS, and it has neither",
                remedy="Pass a text that is not empty.",
            )
        return self.anchor

    def decoder_start(self) -> int:
        """The token that the decoder of an encoder–decoder begins with.

        Raises:
            GenerationError: neither the checkpoint nor the tokenizer has one.
        """
        if self._decoder_start is None:
            raise GenerationError(
                "the decoder of an encoder–decoder needs a token to begin with",
                remedy='Add "decoder_start_token_id" to generation_config.json.',
            )
        return self._decoder_start

    def decoder_prompt(self) -> list[int]:
        """All that the decoder of an encoder–decoder begins with; what it writes comes after.

        Raises:
            GenerationError: as `decoder_start`; a forced token that is no single id.
        """
        if self._forced is None:
            return [self.decoder_start()]
        if not isinstance(self._forced, int) or isinstance(self._forced, bool):
            raise GenerationError("forced_bos_token_id must be one id", value=self._forced)
        return [self.decoder_start(), self._forced]

    @cached_property
    def _source_frame(self) -> Frame:
        return Frame.of_source(self._tokenizer, self.end)


def check_id(name: str, value: Any) -> None:
    """An entry of ``generation_config.json`` that must be one id, or null.

    Raises:
        GenerationError: it is not.
    """
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise GenerationError(f"{name} of generation_config.json must be one id", value=value)


def _first(*ids: int | None) -> int | None:
    return next((i for i in ids if i is not None), None)


def _first_of(value: Any) -> int | None:
    """An id, or the first of several."""
    values = value if isinstance(value, list | tuple) else [value]
    return next(iter(values), None)
