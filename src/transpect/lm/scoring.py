"""How probable texts are, and what comes next."""

from __future__ import annotations

from collections.abc import Sequence

from transpect.base.errors import GenerationError
from transpect.decode import Passage, Prompts, Score, Stepper
from transpect.decode import logprobs as passage_logprobs
from transpect.decode.fitting import fit
from transpect.lm.parts import Pair, Prompt, texts_or_pairs
from transpect.lm.writing import Writing


class Scoring(Writing):
    """A language model that says how probable something is."""

    def score(
        self,
        texts: str | Pair | Sequence[str | Pair],
        *,
        batch_size: int = 8,
        stride: int | None = None,
        memory: int | None = None,
    ) -> list[Score]:
        """How probable each text is: its log-probability, perplexity and bits per character.

        A text is scored from its first token on, given the token that texts begin with; without such a token in the
        tokenizer, from its second. The end (EOS) is not scored, and special tokens spelled in a text are plain text.

        Args:
            texts: a list of texts and of pairs, or one alone, which is a list of one. A pair is a tuple, of which the
                second text is scored given the first: (prompt, continuation) for a decoder, (source, target) for an
                encoder–decoder. So ``("a", "b")`` is one pair, ``["a", "b"]`` are two texts.
            batch_size: how many are read at a time.
            stride: see `transpect.decode.logprobs`.
            memory: likewise.

        Raises:
            ConfigError: a memory for a model that can't go on with one.
            ContextLengthError: a text longer than the context, and neither stride nor memory.
            GenerationError: a text without its source for an encoder–decoder, or what is neither text nor pair.
        """
        several, around = texts_or_pairs(texts), self.prompts
        passages = [self._passage(text, around) for text in several]
        scored = [text if isinstance(text, str) else text[1] for text in several]
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

    def _passage(self, text: str | Pair, around: Prompts) -> Passage:
        if isinstance(text, str):
            context = [] if around.anchor is None else [around.anchor]
            return Passage(context, self.tokenizer.encode(text, parse_special=False))
        before, target = text
        start, source = self._ids(before, around)
        return Passage(start, self.tokenizer.encode(target, parse_special=False), source)
