"""Decoding while ids still come in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from transpect.text.incremental import Stage, build_stages
from transpect.text.tokenizer import Tokenizer, checked_ids


class StreamDecoder:
    """Ids to text, one at a time: the deltas join to exactly ``tokenizer.decode(ids)``.

    So U+FFFD comes out only where the full decode has it: a character whose bytes are still incomplete is held, and
    what can't become one any more is given out as the full decode would. Time per id does not depend on how many went
    before: each decoder runs as a machine with a few characters of state (:mod:`transpect.text.incremental`).

    Text is given out as early as it is certain, with one known delay: in a vocabulary with byte fallback a run
    of ``<0xNN>`` tokens is held to its end, since the full decode turns all of it to U+FFFD where one byte is wrong.

    Args:
        tokenizer: the tokenizer; it is not changed, and any number of streams may share it.
        skip_special_tokens: leave special tokens out, as in ``decode``.

    Raises:
        TokenizerError: the tokenizer has a decoder that can't run piece by piece (none of a language model does).

    Example:
        >>> stream = StreamDecoder(tokenizer)
        >>> "".join(stream.push(i) for i in ids) + stream.flush() == tokenizer.decode(ids)
        True
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special_tokens: bool = False) -> None:
        self._tokenizer: Final = tokenizer
        self._skipped: Final = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._stages = build_stages(tokenizer.decoder_spec)

    def push(self, token_id: int) -> str:
        """Take the next id; give out the text that is certain now, often none.

        Raises:
            TokenizerError: an id that is not a whole number ≥ 0.
        """
        checked = token_id if type(token_id) is int and token_id >= 0 else checked_ids([token_id])[0]
        piece = self._tokenizer.id_to_token(checked)
        # An id without a token is passed over, as in `decode`: models pad their vocabulary.
        if piece is None or checked in self._skipped:
            return ""
        pieces = [piece]
        for stage in self._stages:
            pieces = [out for piece in pieces for out in stage.feed(piece)]
        return "".join(pieces)

    def prime(self, token_ids: Iterable[int]) -> None:
        """Take ids whose text is known already, such as a prompt: the deltas go on where that ends.

        They join to what ``decode`` of all ids has after ``decode`` of these. A character that these leave unfinished
        comes with the first delta that can hold it. Bytes of these that are a character stay one, whatever bytes follow
        (see the delay above).
        """
        for token_id in token_ids:
            self.push(token_id)
        self._through(lambda stage: stage.settle())

    def flush(self) -> str:
        """The ids are over: give out what was held. The decoder is then as new, for the next text."""
        text = self._through(lambda stage: stage.end())
        self._stages = build_stages(self._tokenizer.decoder_spec)
        return text

    def _through(self, held: Callable[[Stage], Iterable[str]]) -> str:
        """Take from each stage what it holds, through all stages after it."""
        pieces: list[str] = []
        for stage in self._stages:
            pieces = [out for piece in pieces for out in stage.feed(piece)]
            pieces += held(stage)
        return "".join(pieces)
