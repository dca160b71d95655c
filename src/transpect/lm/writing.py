"""Text that a model writes: continuations, answers, translations; at once, in pieces, token by token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast, overload

from transpect import interop
from transpect.base.codec import did_you_mean
from transpect.base.errors import GenerationError
from transpect.cache import CacheKind
from transpect.core import Transformer
from transpect.decode import Events, Prompts, Request, Result
from transpect.decode import generate as generate_results
from transpect.decode import stream as stream_events
from transpect.decode.defaults import SAMPLING
from transpect.decode.strategies import STRATEGIES, Sample
from transpect.lm.parts import Parts, Prompt, is_single

NUM_BEAMS: Final = 4
"""Of a translation, where nobody says how it is found."""

_CHOOSING = frozenset({"temperature", *SAMPLING, *(kind.trigger for kind in STRATEGIES)})
_COUNTS = ("n", "num_return_sequences")


class Writing(Parts):
    """A language model that writes."""

    @overload
    def generate(self, prompts: str, *, batch_size: int = 32, memory: int | None = None, **params: Any) -> Any: ...

    @overload
    def generate(
        self, prompts: Sequence[int], *, batch_size: int = 32, memory: int | None = None, **params: Any
    ) -> Any: ...

    @overload
    def generate(
        self, prompts: Sequence[Prompt], *, batch_size: int = 32, memory: int | None = None, **params: Any
    ) -> list[str]: ...

    def generate(
        self, prompts: Prompt | Sequence[Prompt], *, batch_size: int = 32, memory: int | None = None, **params: Any
    ) -> Any:
        """Continue prompts; for an encoder–decoder, answer sources.

        Args:
            prompts: one, or a list.
            batch_size: how many are decoded at a time.
            memory: see only so many tokens back, and go on beyond the model's context (see `Stepper`).
            params: see `GenerationParams`, and ``cache``, a `transpect.cache.CacheKind`. ``seed`` may be a list with
                one for each prompt; ``negative_prompt``, a text or ids, is what ``guidance_scale`` leads away from;
                ``draft`` may be a model, a `LanguageModel` or the name of one.

        Returns:
            the new text alone: of one prompt as a string, of a list as a list. Of one prompt with ``n`` (also called
            ``num_return_sequences``) a list of ``n``; of a list, the ``n`` of the first prompt, those of the second, …

        Raises:
            GenerationError: an unknown parameter, a value outside its range, a model that can't write.
            ContextLengthError: a prompt that leaves no room in the model's context.
        """
        texts = [result.text for result in self.complete(prompts, batch_size=batch_size, memory=memory, **params)]
        several = any(params.get(name) is not None for name in _COUNTS) or len(texts) > 1
        return texts[0] if is_single(prompts) and not several else texts

    def complete(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        batch_size: int = 32,
        memory: int | None = None,
        cache: CacheKind | None = None,
        **params: Any,
    ) -> list[Result]:
        """As `generate`, always a list, with ids, log-probabilities, the reason of the end and the seed of each."""
        return self._results(self.requests(prompts, **params), batch_size=batch_size, memory=memory, cache=cache)

    def translate(
        self,
        texts: Prompt | Sequence[Prompt],
        *,
        num_beams: int | None = None,
        target_language: str | None = None,
        batch_size: int = 32,
        memory: int | None = None,
        cache: CacheKind | None = None,
        **params: Any,
    ) -> Any:
        """Answers of an encoder–decoder by beam search, as `generate` gives them.

        Args:
            texts: sources, one or a list.
            num_beams: how many hypotheses are kept; 1 is no beam search. None is 4, where neither the caller nor the
                checkpoint asks for another strategy or for sampling.
            target_language: the token of a language that a model of several (mBART, M2M-100, NLLB) is to answer in, as
                its vocabulary spells it: ``de_DE``, ``__de__``, ``deu_Latn``.
            batch_size: how many rows are decoded at a time; a source takes ``num_beams`` of them.
            memory: as for `generate`.
            cache: a kind of cache.
            params: as for `generate`, e.g. ``length_penalty``.

        Raises:
            GenerationError: a model without an encoder, a language that it has no token for; as `generate`.
        """
        requests = self.translations(texts, num_beams=num_beams, target_language=target_language, **params)
        found = [result.text for result in self._results(requests, batch_size=batch_size, memory=memory, cache=cache)]
        several = any(params.get(name) is not None for name in _COUNTS) or len(found) > 1
        return found[0] if is_single(texts) and not several else found

    def translations(
        self,
        texts: Prompt | Sequence[Prompt],
        *,
        num_beams: int | None = None,
        target_language: str | None = None,
        **params: Any,
    ) -> list[Request]:
        """What `translate` asks `transpect.decode` for.

        Raises:
            GenerationError: as `translate`.
        """
        if self.model.config.kind != "encoder-decoder":
            raise GenerationError(
                "translate() is for an encoder–decoder, which reads the source whole",
                value=self.model.config.kind,
                remedy="Ask a decoder in words, by generate() or chat().",
            )
        if num_beams is None and not self._chooses(params):
            num_beams = NUM_BEAMS
        asked = params if num_beams is None else {"num_beams": num_beams, **params}
        return self.requests(texts, self._into(target_language), **asked)

    def stream(self, prompt: Prompt, **params: Any) -> Iterator[str]:
        """Pieces of text as soon as they are certain; they join to what `generate` returns.

        Everything is checked at the call. Closing the iterator ends the work.
        """
        return (event.text for event in self.events([prompt], **params) if event.text)

    def events(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        batch_size: int = 32,
        memory: int | None = None,
        cache: CacheKind | None = None,
        **params: Any,
    ) -> Events:
        """Each token of each prompt as soon as it is chosen; `Events.cancel` ends one of them."""
        requests = self.requests(prompts, **params)
        return stream_events(
            self.model,
            requests,
            tokenizer=self.tokenizer,
            batch_size=batch_size,
            memory=memory,
            cache=cache,
            runtime=self.runtime,
        )

    def requests(
        self, prompts: Prompt | Sequence[Prompt], around: Prompts | None = None, /, **params: Any
    ) -> list[Request]:
        """What `generate` asks `transpect.decode` for; ``around`` says what stands around texts."""
        several = cast(Sequence[Prompt], [prompts] if is_single(prompts) else prompts)
        if params.get("draft") is not None:
            params["draft"] = self._drafting(params["draft"])
        seed, negative = params.pop("seed", None), params.pop("negative_prompt", None)
        seeds = list(seed) if isinstance(seed, Sequence) and not isinstance(seed, str) else [seed] * len(several)
        if len(seeds) != len(several):
            raise GenerationError(
                "seed must be one number, or one for each prompt",
                value=f"{len(seeds)} seeds for {len(several)} prompts",
                remedy="Pass a single seed to use it for all of them.",
            )
        defaults, around = self.defaults, around or self.prompts
        away = None if negative is None else self._condition(negative, around)
        requests = []
        for prompt, own in zip(several, seeds, strict=True):
            start, source = self._ids(prompt, around)
            changes: Mapping[str, Any] = params if own is None else {**params, "seed": own}
            begun = 0 if source is None else len(start) - 1  # of an answer, what is forced after the start token
            requests.append(Request(start, defaults.params_for(changes, len(start)), source, away, begun=begun))
        return requests

    def _results(
        self, requests: Sequence[Request], *, batch_size: int, memory: int | None, cache: CacheKind | None
    ) -> list[Result]:
        return generate_results(
            self.model,
            requests,
            tokenizer=self.tokenizer,
            batch_size=batch_size,
            memory=memory,
            cache=cache,
            runtime=self.runtime,
        )

    def _drafting(self, draft: Transformer | Parts | str | Path) -> Transformer:
        """The model that a draft names; one that is opened by its name stays open."""
        if isinstance(draft, str | Path):
            name = str(draft)
            if name not in self._drafts:
                weight = self.model.token.weight
                self._drafts[name] = interop.load_model(interop.locate(draft), device=weight.device, dtype=weight.dtype)
            return self._drafts[name]
        if not isinstance(draft, Parts):
            return draft
        if draft.tokenizer.backend.get_vocab() != self.tokenizer.backend.get_vocab():
            raise GenerationError(
                "a draft must have the vocabulary of the model",
                remedy="Take a smaller model of the same family, or prompt_lookup_num_tokens.",
            )
        return draft.model

    def _condition(self, prompt: Prompt, around: Prompts) -> list[int]:
        """What stands in the place of a prompt, or of a source."""
        start, source = self._ids(prompt, around)
        return start if source is None else source

    def _chooses(self, params: Mapping[str, Any]) -> bool:
        """Whether parameters, or the checkpoint, say how tokens are found."""
        own = self.defaults.params
        named = {name for name, value in params.items() if value not in (None, 0)}
        return own.strategy != Sample() or not own.greedy or not named.isdisjoint(_CHOOSING)

    def _into(self, language: str | None) -> Prompts:
        """What stands around texts that are to be answered in a language."""
        if language is None:
            return self.prompts
        token = self.tokenizer.token_to_id(language)
        if token is None or token not in self.tokenizer.special_ids:
            known = [self.tokenizer.id_to_token(i) or "" for i in sorted(self.tokenizer.special_ids)]
            raise GenerationError(
                "target_language must be the token of a language that the model knows",
                value=language,
                remedy=did_you_mean(language, known) or "Leave it out for a model of two languages.",
            )
        return Prompts(self.tokenizer, {**self.generation, "forced_bos_token_id": token})
