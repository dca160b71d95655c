"""What every ability of a language model works with: the model, its tokenizer, and what its checkpoint says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, cast

import torch

from transpect.base.errors import GenerationError
from transpect.core import Transformer
from transpect.decode import Defaults, Prompts
from transpect.decode.program_steps import known_runtime
from transpect.interop.labels import Labels
from transpect.text import Tokenizer

Prompt = str | Sequence[int]
"""What to continue, or what to answer for an encoder–decoder: a text, or ids to which nothing is added."""

Pair = tuple[str, str]
"""Two texts that belong together."""


class Parts:
    """See `transpect.lm.LanguageModel`."""

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        generation: Mapping[str, Any] | None = None,
        *,
        max_length: int | None = None,
        labels: Labels | None = None,
        runtime: str = "auto",
    ) -> None:
        self.model, self.tokenizer, self.runtime = model, tokenizer, known_runtime(runtime)
        self.generation: dict[str, Any] = dict(generation or {})
        context = model.config.context_length
        self.max_length = context if max_length is None else min(max_length, context)
        self._drafts: dict[str, Transformer] = {}
        self.labels = Labels.of(model.config.head) if labels is None else labels.checked(model.config.head)

    @property
    def prompts(self) -> Prompts:
        """What stands around a text."""
        return Prompts(self.tokenizer, self.generation)

    @property
    def defaults(self) -> Defaults:
        """How text is written where the caller says nothing."""
        writes_after = ("forced_bos_token_id",) if self.model.config.kind == "encoder-decoder" else ()
        return Defaults.read(self.generation, eos_id=self.tokenizer.eos_id, done=writes_after)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.device

    def _ids(self, prompt: Prompt, around: Prompts) -> tuple[list[int], list[int] | None]:
        """What the decoder begins with, and what the encoder reads."""
        if self.model.config.kind == "encoder-decoder":
            return around.decoder_prompt(), around.source(prompt) if isinstance(prompt, str) else numbers(prompt)
        return around.prompt(prompt) if isinstance(prompt, str) else numbers(prompt) or [around.begin()], None


def is_single(prompts: Prompt | Sequence[Prompt]) -> bool:
    """Whether this is one prompt, a text or ids, and not a list of prompts. An empty list is a list of none.

    Raises:
        GenerationError: it is neither.
    """
    if isinstance(prompts, str):
        return True
    if isinstance(prompts, bytes | Mapping) or not hasattr(prompts, "__len__"):
        raise GenerationError(
            "prompts are a text, a list of ids, or a list of these",
            value=repr(prompts),
            remedy="Write [prompt], or list(prompts).",
        )
    return len(prompts) > 0 and all(isinstance(item, Integral) for item in prompts)


def numbers(prompt: object) -> list[int]:
    """Ids as they are.

    Raises:
        GenerationError: something else.
    """
    ids = list(prompt) if isinstance(prompt, Sequence) and not isinstance(prompt, bytes) else None
    if ids is None or not all(isinstance(item, Integral) and not isinstance(item, bool) for item in ids):
        remedy = "Try prompt.tolist()." if hasattr(prompt, "tolist") else "Write a string, or ids such as [5, 17, 3]."
        raise GenerationError("a prompt must be a text or a list of ids", value=repr(prompt), remedy=remedy)
    return [int(item) for item in ids]


def texts_or_pairs(given: str | Pair | Sequence[str | Pair]) -> list[str | Pair]:
    """One text, one pair or a list of them, as a list. A tuple is a pair, whatever holds it; a list holds several.

    Raises:
        GenerationError: a tuple that is not two texts, or anything that is neither text nor pair.
    """
    several = [given] if isinstance(given, str | tuple) or not isinstance(given, Iterable) else list(given)
    for one in several:
        if not isinstance(one, str) and not (
            isinstance(one, tuple) and len(one) == 2 and all(isinstance(part, str) for part in one)
        ):
            raise GenerationError(
                "each of the texts must be a text, or a pair of two texts as a tuple",
                value=one,
                remedy='Write "a", ("a", "b"), or a list of these: ["a", ("b", "c")].',
            )
    return cast(list[str | Pair], several)
