"""A language model as people use it: text in, text out. The facade that the CLI, the server and notebooks share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, cast, overload

import torch

from transpect import interop
from transpect.base.devices import resolve_device
from transpect.base.errors import ContextLengthError, GenerationError
from transpect.core import Kernel, Transformer
from transpect.decode import (
    Defaults,
    Event,
    Passage,
    Prompts,
    Request,
    Result,
    Score,
    Stepper,
    encoder,
)
from transpect.decode import generate as generate_results
from transpect.decode import logprobs as passage_logprobs
from transpect.decode import stream as stream_events
from transpect.decode.engine import fit
from transpect.text import Tokenizer, load_tokenizer

Prompt = str | Sequence[int]
"""What to continue, or what to answer for an encoder–decoder: a text, or ids to which nothing is added."""


def load(
    path: str | Path,
    device: str = "auto",
    dtype: str | None = None,
    kernel: Kernel | str | Mapping[str, Any] | None = None,
    allow_pickle: bool = False,
) -> LanguageModel:
    """Open a model by its name: a Hugging Face directory, a run directory (its best checkpoint), a GGUF file,
    ``pip:NAME``, ``hf:OWNER/NAME``, ``ms:OWNER/NAME``.

    Args:
        path: see `transpect.interop.locate`.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.
        dtype: what the weights become, e.g. ``float32`` or ``bfloat16``; None is as they are stored.
        kernel: how softmax attention is computed: a kernel, its name, or its name as ``kind`` and its options; None is
            the default.
        allow_pickle: read pickled weights where there are no others; nothing in them runs.

    Raises:
        CheckpointError: no checkpoint there, or a damaged one.
        TokenizerError: no tokenizer there, or a damaged one.
        ConfigError: an unknown device, dtype or kernel, or a kernel that can't compute this model's attention.
    """
    place = interop.locate(path, allow_pickle=allow_pickle)
    model = interop.load_model(
        place, device=resolve_device(device), dtype=dtype, kernel=kernel, allow_pickle=allow_pickle
    )
    return LanguageModel(
        model,
        load_tokenizer(interop.body_of(place)),
        interop.load_generation(place),
        max_length=interop.read_max_length(place),
    )


class LanguageModel:
    """A model, its tokenizer, and how it wants to be decoded.

    Parameters of generation are those of `GenerationParams`, by name; what is not given is as ``generation`` says, or
    greedy. Asking for ``top_k``, ``top_p`` or a ``seed`` without a temperature means sampling.

    Args:
        model: a decoder or an encoder–decoder for what writes and scores text, an encoder for `embed` or `fill_mask`.
        tokenizer: of the model.
        generation: entries of ``generation_config.json``.
        max_length: how many tokens of a text `embed` reads, where that is less than the model's context.

    Example:
        >>> lm = load("runs/demo")
        >>> lm.generate("小猫爱吃", max_new_tokens=1)
        '鱼'
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        generation: Mapping[str, Any] | None = None,
        *,
        max_length: int | None = None,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.generation: dict[str, Any] = dict(generation or {})
        context = model.config.context_length
        self.max_length = context if max_length is None else min(max_length, context)

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
        return self.model.token.weight.device

    @overload
    def generate(self, prompts: str, *, batch_size: int = 32, memory: int | None = None, **params: Any) -> str: ...

    @overload
    def generate(
        self, prompts: Sequence[int], *, batch_size: int = 32, memory: int | None = None, **params: Any
    ) -> str: ...

    @overload
    def generate(
        self, prompts: Sequence[Prompt], *, batch_size: int = 32, memory: int | None = None, **params: Any
    ) -> list[str]: ...

    def generate(
        self, prompts: Prompt | Sequence[Prompt], *, batch_size: int = 32, memory: int | None = None, **params: Any
    ) -> str | list[str]:
        """Continue prompts; for an encoder–decoder, answer sources.

        Args:
            prompts: one, or a list.
            batch_size: how many are decoded at a time.
            memory: see only so many tokens back, and go on beyond the model's context (see `Stepper`).
            params: see `GenerationParams`. ``seed`` may be a list with one for each prompt.

        Returns:
            the new text alone: of one prompt as a string, of a list as a list.

        Raises:
            GenerationError: an unknown parameter, a value outside its range, a model that can't write.
            ContextLengthError: a prompt that leaves no room in the model's context.
        """
        texts = [result.text for result in self.complete(prompts, batch_size=batch_size, memory=memory, **params)]
        return texts[0] if _is_single(prompts) else texts

    def complete(
        self, prompts: Prompt | Sequence[Prompt], *, batch_size: int = 32, memory: int | None = None, **params: Any
    ) -> list[Result]:
        """As `generate`, always a list, with ids, log-probabilities, the reason of the end and the seed of each."""
        requests = self.requests(prompts, **params)
        return generate_results(self.model, requests, tokenizer=self.tokenizer, batch_size=batch_size, memory=memory)

    def stream(self, prompt: Prompt, **params: Any) -> Iterator[str]:
        """Pieces of text as soon as they are certain; they join to what `generate` returns.

        Everything is checked at the call. Closing the iterator ends the work.
        """
        return (event.text for event in self.events([prompt], **params) if event.text)

    def events(
        self, prompts: Prompt | Sequence[Prompt], *, batch_size: int = 32, memory: int | None = None, **params: Any
    ) -> Iterator[Event]:
        """Each token of each prompt as soon as it is chosen."""
        requests = self.requests(prompts, **params)
        return stream_events(self.model, requests, tokenizer=self.tokenizer, batch_size=batch_size, memory=memory)

    def requests(self, prompts: Prompt | Sequence[Prompt], **params: Any) -> list[Request]:
        """What `generate` asks `transpect.decode` for."""
        several = cast(Sequence[Prompt], [prompts] if _is_single(prompts) else prompts)
        seed = params.pop("seed", None)
        seeds = list(seed) if isinstance(seed, Sequence) and not isinstance(seed, str) else [seed] * len(several)
        if len(seeds) != len(several):
            raise GenerationError(
                "seed must be one number, or one for each prompt",
                value=f"{len(seeds)} seeds for {len(several)} prompts",
                remedy="Pass a single seed to use it for all of them.",
            )
        defaults, around = self.defaults, self.prompts
        requests = []
        for prompt, own in zip(several, seeds, strict=True):
            start, source = self._ids(prompt, around)
            changes = params if own is None else {**params, "seed": own}
            requests.append(Request(start, defaults.params_for(changes, len(start)), source))
        return requests

    def score(
        self,
        texts: str | Sequence[str | tuple[str, str]],
        *,
        batch_size: int = 8,
        stride: int | None = None,
        memory: int | None = None,
    ) -> list[Score]:
        """How probable each text is: its log-probability, perplexity and bits per character.

        A text is scored from its first token on, given the token that texts begin with; without such a token in the
        tokenizer, from its second. The end (EOS) is not scored, and special tokens spelled in a text are plain text.

        Args:
            texts: texts (a string is a list of one), or pairs, of which the second is scored given the first: (prompt,
                continuation) for a decoder, (source, target) for an encoder–decoder.
            batch_size: how many are read at a time.
            stride: see `transpect.decode.logprobs`.
            memory: likewise.

        Raises:
            ConfigError: a memory for a model that can't go on with one.
            ContextLengthError: a text longer than the context, and neither stride nor memory.
            GenerationError: a text without its source for an encoder–decoder.
        """
        texts = [texts] if isinstance(texts, str) else texts
        around = self.prompts
        passages = [self._passage(text, around) for text in texts]
        scored = [text if isinstance(text, str) else text[1] for text in texts]
        found = passage_logprobs(self.model, passages, batch_size=batch_size, stride=stride, memory=memory)
        return [Score(values, len(text)) for values, text in zip(found, scored, strict=True)]

    def next_token(self, text: Prompt, k: int = 10) -> list[tuple[str, float]]:
        """The k most probable next tokens as a person reads them, with their probabilities, the best first."""
        if k < 1:
            raise GenerationError("k must be at least 1", value=k)
        (request,) = self.requests([text], max_new_tokens=1, min_new_tokens=0, stop=())
        request = fit(self.model.config, request)
        sources = None if request.source is None else [request.source]
        horizon = len(request.prompt) + 1
        logits = Stepper(self.model, [request.prompt], horizons=[horizon], sources=sources).prefill()
        best = logits[0].double().softmax(-1).topk(min(k, logits.shape[-1]))
        return list(zip(self.tokenizer.tokens(best.indices.tolist()), best.values.tolist(), strict=True))

    def embed(self, texts: Prompt | Sequence[Prompt], *, batch_size: int = 32, truncate: bool = False) -> torch.Tensor:
        """One vector for each text, [N, D], from a model that pools (a sentence encoder).

        Args:
            texts: one or several, as text or ids; one is a list of one.
            batch_size: how many are read at a time.
            truncate: cut a text that is longer than ``max_length``, instead of refusing it.

        Raises:
            GenerationError: the model gives no vectors.
            ContextLengthError: a text longer than ``max_length``.
        """
        several = cast(Sequence[Prompt], [texts] if _is_single(texts) else texts)
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
        return encoder.pooled(self.model, rows, batch_size=batch_size)

    def fill_mask(self, text: Prompt, k: int = 5) -> list[list[tuple[str, float]]]:
        """For each mask token of a text, the k most probable tokens with their probabilities, the best first.

        Args:
            text: it spells the mask as the tokenizer does (``[MASK]``), or has its id.

        Raises:
            GenerationError: the model predicts no masked tokens, or there is no mask in the text.
        """
        if k < 1:
            raise GenerationError("k must be at least 1", value=k)
        logits = encoder.at_masks(self.model, self._whole(text), self.tokenizer.mask_id)
        best = logits.double().softmax(-1).topk(min(k, logits.shape[-1]))
        return [
            list(zip(self.tokenizer.tokens(ids.tolist()), values.tolist(), strict=True))
            for ids, values in zip(best.indices, best.values, strict=True)
        ]

    def save(self, path: str | Path) -> None:
        """Write a Hugging Face directory, all or nothing: model, tokenizer and ``generation_config.json``.

        A checkpoint that stands there is replaced once the new one is complete; its other files are kept.

        Raises:
            CheckpointError: it can't be written, or there is a directory of directories and no checkpoint.
        """
        with interop.checkpoint_directory(path) as staging:
            interop.write_model(self.model, staging, generation=self.generation)
            interop.write_max_length(self.max_length, staging)
            self.tokenizer.save(staging)

    def _ids(self, prompt: Prompt, around: Prompts) -> tuple[list[int], list[int] | None]:
        """What the decoder begins with, and what the encoder reads."""
        if self.model.config.kind == "encoder-decoder":
            return around.decoder_prompt(), around.source(prompt) if isinstance(prompt, str) else _numbers(prompt)
        return around.prompt(prompt) if isinstance(prompt, str) else _numbers(prompt) or [around.begin()], None

    def _whole(self, text: Prompt) -> list[int]:
        """What an encoder reads: a text with the special tokens around it."""
        return self.tokenizer.encode(text, add_special_tokens=True) if isinstance(text, str) else _numbers(text)

    def _cut(self, ids: list[int], text: Prompt) -> list[int]:
        """The first ids that `embed` reads; special tokens at the end stay there."""
        over = len(ids) - self.max_length
        if over <= 0:
            return ids
        bare = self.tokenizer.encode(text) if isinstance(text, str) else ids
        after = next((n for n in range(len(ids) - len(bare), 0, -1) if ids[-n - len(bare) : -n] == bare), 0)
        return ids[: len(ids) - over - after] + ids[len(ids) - after :]

    def _passage(self, text: str | tuple[str, str], around: Prompts) -> Passage:
        if isinstance(text, str):
            context = [] if around.anchor is None else [around.anchor]
            return Passage(context, self.tokenizer.encode(text, parse_special=False))
        before, target = text
        start, source = self._ids(before, around)
        return Passage(start, self.tokenizer.encode(target, parse_special=False), source)


def _is_single(prompts: Prompt | Sequence[Prompt]) -> bool:
    """Whether this is one prompt, a text or ids, and not a list of prompts. An empty list is a list of none."""
    return isinstance(prompts, str) or (len(prompts) > 0 and all(isinstance(item, Integral) for item in prompts))


def _numbers(prompt: object) -> list[int]:
    """Ids as they are."""
    ids = list(prompt) if isinstance(prompt, Sequence) and not isinstance(prompt, bytes) else None
    if ids is None or not all(isinstance(item, Integral) for item in ids):
        raise GenerationError("a prompt must be a text or a list of ids", value=prompt, remedy="Try prompt.tolist().")
    return [int(item) for item in ids]
