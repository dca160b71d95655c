"""Drafts by another model with the same vocabulary.

Axes: B rows, u tokens that the draft's model has not read, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from transpect.base.errors import ContextLengthError
from transpect.core import ModelConfig, Transformer
from transpect.decode.batching import check_writes
from transpect.decode.checks import check
from transpect.decode.stepper import Stepper, Steps
from transpect.decode.strategies.assisted import Assisted, Draftsman
from transpect.decode.strategies.speculative import Drafter, Drafts

if TYPE_CHECKING:
    from transpect.decode.params import GenerationParams
    from transpect.decode.row import Row


@dataclass(frozen=True, kw_only=True)
class DraftModel(Assisted):
    """Speculative decoding with a draft model (Leviathan et al. 2023; Chen et al. 2023).

    Attributes:
        draft: a smaller model with the vocabulary of the model. For an encoder–decoder it may be either kind.
    """

    draft: Transformer

    trigger: ClassVar[str] = "draft"

    def __post_init__(self) -> None:
        super().__post_init__()
        check(
            isinstance(self.draft, Transformer),
            "draft must be a model",
            type(self.draft).__name__,
            "Pass transpect.load(PATH).",
        )

    def check(self, params: GenerationParams, config: ModelConfig) -> None:
        """See `Strategy.check`."""
        own = self.draft.config
        check_writes(own)
        check(
            own.vocab_size == config.vocab_size,
            "a draft must have the vocabulary of the model",
            f"{own.vocab_size} tokens for {config.vocab_size}",
            "Take a smaller model of the same family, or prompt_lookup_num_tokens.",
        )
        check(
            own.encoder is None or config.encoder is not None,
            "a draft with an encoder needs a source, which a decoder is not given",
            own.kind,
            "Take a decoder.",
        )
        check(
            not own.last.keeps_sums,
            "a draft takes tokens back one by one, and attention by sums can't",
            own.last.attention.kernel.kind,
            "Take a draft with softmax attention.",
        )

    def spread(self, row: Row) -> list[Row]:
        """See `Strategy.spread`.

        Raises:
            ContextLengthError: a prompt that the draft's model can't read.
        """
        if len(row.request.prompt) > self.draft.config.context_length:
            raise ContextLengthError(
                f"the prompt must fit the draft's context of {self.draft.config.context_length} tokens",
                value=f"{len(row.request.prompt)} tokens",
                remedy="Shorten it, or take a draft with a longer context.",
            )
        return super().spread(row)

    def drafter(self, steps: Steps, rows: Sequence[Row]) -> Drafter:
        """See `Speculative.drafter`."""
        return ByModel(self, self._begin, rows, self.draft.config.context_length)

    def _begin(self, rows: Sequence[Row]) -> Steps:
        reads_source = self.draft.config.encoder is not None
        return Stepper(
            self.draft,
            [row.request.prompt for row in rows],
            horizons=[len(row.request.prompt) + row.params.max_new_tokens for row in rows],
            sources=[row.request.source or () for row in rows] if reads_source else None,
        )


class ByModel:
    """See `Drafter`.

    Args:
        options: how many tokens.
        begin: gives the steps of the draft's model for rows, at the beginning.
        rows: those of the batch.
        context_length: how many tokens the draft's model can read.
    """

    def __init__(
        self, options: Assisted, begin: Callable[[Sequence[Row]], Steps], rows: Sequence[Row], context_length: int
    ) -> None:
        self._begin, self._limit = begin, context_length
        self._steps: Steps | None = None
        self._draftsman = Draftsman(options, rows)
        self._read = [0 for _ in rows]  # of what a row has written
        self._columns = 0  # of the draft, not yet settled

    def draft(self, rows: Sequence[Row], most: Sequence[int]) -> Drafts:
        """See `Drafter.draft`."""
        self._columns = 0
        room = [self._limit + 1 - len(row.trace.prompt) - len(row.trace.written) for row in rows]
        limits = self._draftsman.limits([max(0, min(pair)) for pair in zip(most, room, strict=True)])
        if not any(limits):
            return self._draftsman.rest()
        if self._steps is None:
            self._steps = self._begin(rows)
            self._steps.prefill()
        steps = self._steps

        def read(tokens: Tensor, real: Tensor | None) -> Tensor:
            self._columns += 1
            return steps.extend(tokens, real)

        return self._draftsman.write(rows, limits, self._catch_up(steps, rows, limits), read)

    def settle(self, accepted: Sequence[int]) -> None:
        """See `Drafter.settle`."""
        # a row has read all of its draft but the last token
        stay = [max(0, min(count, own - 1)) for count, own in zip(accepted, self._draftsman.counts, strict=True)]
        self._read = [read + count for read, count in zip(self._read, stay, strict=True)]
        if self._steps is not None and min(stay) < self._columns:
            column = torch.arange(self._columns, device=self._steps.device)
            self._steps.forget(column < torch.tensor(stay, device=self._steps.device)[:, None])
        self._draftsman.settle(accepted)

    def select(self, rows: Sequence[int]) -> None:
        """See `Drafter.select`."""
        if self._steps is not None:
            self._steps.select(rows)
        self._draftsman.select(rows)
        self._read = [self._read[row] for row in rows]

    def _catch_up(self, steps: Steps, rows: Sequence[Row], limits: Sequence[int]) -> Tensor:
        """Read what each row that drafts has written and the draft's model has not read; logits [B, V]."""
        new = [
            row.trace.written[read:] if limit else () for row, read, limit in zip(rows, self._read, limits, strict=True)
        ]
        self._read = [read + len(own) for read, own in zip(self._read, new, strict=True)]
        width = max(map(len, new))
        tokens = torch.tensor([[*[0] * (width - len(own)), *own] for own in new], device=steps.device)  # [B, u]
        absent = torch.tensor([[width - len(own)] for own in new], device=steps.device)
        even = all(len(own) == width for own in new)
        return steps.extend(tokens, None if even else torch.arange(width, device=steps.device) >= absent)[:, -1]
