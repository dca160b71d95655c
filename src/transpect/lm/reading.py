"""What a model that reads a text whole says of it: a vector, a class, the classes of its tokens, what masks hide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from torch import Tensor

from transpect.base.errors import ContextLengthError, GenerationError
from transpect.decode import encoder
from transpect.lm.parts import Pair, Parts, Prompt, is_single, numbers, texts_or_pairs


@dataclass(frozen=True)
class Classes:
    """How probable each class is.

    Attributes:
        probabilities: by label, the most probable first; of equal ones the first of the checkpoint.
        logits: by label, in the order of the checkpoint.
    """

    probabilities: dict[str, float]
    logits: dict[str, float]

    @property
    def label(self) -> str:
        """The most probable class."""
        return next(iter(self.probabilities))

    @property
    def probability(self) -> float:
        """Of that class."""
        return self.probabilities[self.label]


@dataclass(frozen=True)
class TokenClasses(Classes):
    """As `Classes`, of one token.

    Attributes:
        start: where it begins in the text, in characters.
        end: the first character after it. A token that was added around the text covers none: (0, 0).
        token: as a person reads it.
    """

    start: int
    end: int
    token: str


class Reading(Parts):
    """A language model that reads texts whole."""

    def embed(self, texts: Prompt | Sequence[Prompt], *, batch_size: int = 32, truncate: bool = False) -> Tensor:
        """One vector for each text, [N, D], from a model that pools (a sentence encoder).

        Args:
            texts: one or several, as text or ids; one is a list of one.
            batch_size: how many are read at a time.
            truncate: cut a text that is longer than ``max_length``, instead of refusing it.

        Raises:
            GenerationError: the model gives no vectors.
            ContextLengthError: a text longer than ``max_length``.
        """
        several = cast(Sequence[Prompt], [texts] if is_single(texts) else texts)
        rows = [self._whole(text) for text in several]
        if truncate:
            rows = [self._cut(row, text) for row, text in zip(rows, several, strict=True)]
        longest = max(map(len, rows), default=0)
        if self.max_length < longest <= self.model.config.context_length:
            raise ContextLengthError(
                f"this encoder reads {self.max_length} tokens of a text (max_seq_length)",
                value=longest,
                remedy="Shorten it, or cut it: truncate=True.",
            )
        return encoder.pooled(self.model, rows, batch_size=batch_size, runtime=self.runtime)

    def classify(
        self, texts: str | Pair | Sequence[str | Pair], *, batch_size: int = 32, truncate: bool = False
    ) -> list[Classes]:
        """The class of each text, with the probabilities of all classes.

        Probabilities are the softmax of the logits; where a text can be in several classes at once
        (``problem_type`` of the checkpoint), or there is a single class, the sigmoid of each.

        Args:
            texts: a list of texts and of pairs (premise, hypothesis), or one alone, which is a list of one. A pair is a
                tuple.
            batch_size: how many are read at a time.
            truncate: cut a text that is longer than the context, instead of refusing it; a pair is not cut.

        Raises:
            GenerationError: the model tells no classes of texts.
            ContextLengthError: a text longer than the context.
        """
        rows: list[encoder.Text] = []
        for text in texts_or_pairs(texts):
            if isinstance(text, tuple):
                rows.append(self.tokenizer.encode_pair(*text))
            else:
                ids = self._whole(text)
                rows.append((self._cut(ids, text) if truncate else ids, ()))
        logits = encoder.classes(
            self.model, rows, batch_size=batch_size, start=self.prompts.decoder_start, runtime=self.runtime
        )
        return [Classes(*self._named(own)) for own in logits]

    def classify_tokens(self, texts: str | Sequence[str], *, batch_size: int = 32) -> list[list[TokenClasses]]:
        """The class of each token of each text, the special ones around it included; see `classify`.

        Raises:
            GenerationError: the model tells no classes of tokens.
            ContextLengthError: a text longer than the context.
        """
        several = [texts] if isinstance(texts, str) else list(texts)
        encoded = [self.tokenizer.encode_with_offsets(text, add_special_tokens=True) for text in several]
        found = encoder.token_classes(
            self.model, [ids for ids, _ in encoded], batch_size=batch_size, runtime=self.runtime
        )
        return [
            [
                TokenClasses(*self._named(row), start=start, end=end, token=token)
                for row, (start, end), token in zip(rows, places, self.tokenizer.tokens(ids), strict=True)
            ]
            for rows, (ids, places) in zip(found, encoded, strict=True)
        ]

    def fill_mask(self, text: Prompt, k: int = 5) -> list[list[tuple[str, float]]]:
        """For each mask token of a text, the k most probable tokens with their probabilities, the best first.

        Args:
            text: it spells the mask as the tokenizer does (``[MASK]``), or has its id.
            k: how many.

        Raises:
            GenerationError: the model predicts no masked tokens, or there is no mask in the text.
            ContextLengthError: a text longer than the context.
        """
        if k < 1:
            raise GenerationError("k must be at least 1", value=k)
        logits = encoder.at_masks(self.model, self._whole(text), self.tokenizer.mask_id, runtime=self.runtime)
        best = logits.double().softmax(-1).topk(min(k, logits.shape[-1]))
        return [
            list(zip(self.tokenizer.tokens(ids.tolist()), values.tolist(), strict=True))
            for ids, values in zip(best.indices, best.values, strict=True)
        ]

    def _whole(self, text: Prompt) -> list[int]:
        """What an encoder reads: a text with the special tokens around it."""
        return self.tokenizer.encode(text, add_special_tokens=True) if isinstance(text, str) else numbers(text)

    def _cut(self, ids: list[int], text: Prompt) -> list[int]:
        """The first ``max_length`` ids; special tokens at the end stay there."""
        over = len(ids) - self.max_length
        if over <= 0:
            return ids
        bare = self.tokenizer.encode(text) if isinstance(text, str) else ids
        after = next((n for n in range(len(ids) - len(bare), 0, -1) if ids[-n - len(bare) : -n] == bare), 0)
        return ids[: len(ids) - over - after] + ids[len(ids) - after :]

    def _named(self, logits: Tensor) -> tuple[dict[str, float], dict[str, float]]:
        """Logits [C] as probabilities by label, the best first, and as they are."""
        alone = self.labels.independent or len(self.labels.names) == 1
        law = logits.double().sigmoid() if alone else logits.double().softmax(-1)
        by_label = zip(self.labels.names, law.tolist(), strict=True)
        ordered = sorted(by_label, key=lambda pair: pair[1], reverse=True)
        return dict(ordered), dict(zip(self.labels.names, logits.tolist(), strict=True))
