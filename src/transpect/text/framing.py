"""What stands around a text: a tokenizer's own template, and the one rule for what an encoder–decoder's source is.

Training and writing both take it from here, so that a model is never asked in other words than it was taught in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import tokenizers
from tokenizers.models import WordLevel

from transpect.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Frame:
    """Ids around the ids of a text.

    Attributes:
        before: what it begins with.
        after: what it ends with.
    """

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    @classmethod
    def own(cls, tokenizer: Tokenizer) -> Self:
        """What ``add_special_tokens=True`` puts around a single text."""
        processor = tokenizer.backend.post_processor
        if processor is None:
            return cls()
        # any vocabulary can spell "x" in a tokenizer of its own; an encoding knows which of its ids were put there
        probe = tokenizers.Tokenizer(WordLevel({"x": 0}, unk_token="x")).encode("x")
        framed = processor.process(probe, None, True)
        place = framed.special_tokens_mask.index(0)
        return cls(tuple(framed.ids[:place]), tuple(framed.ids[place + 1 :]))

    @classmethod
    def of_source(cls, tokenizer: Tokenizer, end: int | None) -> Self:
        """What stands around a text that an encoder–decoder reads.

        That is the tokenizer's own template where it ends a text with ``end``: ``$A </s>`` (T5), ``<s> $A </s>``
        (BART), ``$A </s> en_XX`` (mBART). A template that does not is one for a decoder's prompts; then it is ``end``
        alone.

        Args:
            tokenizer: of the model.
            end: its eos; None leaves the template as it is.
        """
        own = cls.own(tokenizer)
        return own if end is None or end in own.after else cls(after=(end,))

    def __len__(self) -> int:
        return len(self.before) + len(self.after)

    def around(self, ids: Sequence[int]) -> list[int]:
        """The ids within the frame; an end that a text spells itself is not doubled."""
        spelled = bool(self.after) and tuple(ids[-len(self.after) :]) == self.after
        return [*self.before, *ids, *(() if spelled else self.after)]
