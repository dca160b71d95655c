"""``POST /v1/completions``: texts that go on; and ``POST /v1/translate``: texts in another language."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from transpect.decode import Event, Request
from transpect.serve.http.body import read_body
from transpect.serve.http.errors import bad
from transpect.serve.http.fields import Choice, Field, Flag, Integer, Items, Number, Table, Text, Union, read
from transpect.serve.http.generation import Generation, Prepared, begin
from transpect.serve.http.limits import Limits
from transpect.serve.http.logprobs import Place, Spelling, shown
from transpect.serve.http.models import Served
from transpect.serve.http.options import LARGEST, decoding, grammars, streaming, writing
from transpect.serve.http.service import call_of, service_of
from transpect.serve.http.streams import Stream, whole
from transpect.serve.request import PromptToken

DEFAULT_TOKENS: Final = 16
"""What a completion has at most where the request does not say, as in OpenAI's API."""

REASONS: Final = {"eos": "stop", "stop": "stop", "length": "length"}
"""Why an output ended, in OpenAI's words."""


def fields(limits: Limits) -> Table:
    """What a request for completions may hold."""
    token = Integer(0, LARGEST)
    ids = Items(token, limits.body_bytes, 1)
    prompt = Union(
        (Text(), ids, Items(Text(), limits.prompts, 1), Items(ids, limits.prompts, 1)),
        "a string, an array of strings, an array of token ids or an array of such arrays",
    )
    return {
        **writing(limits),
        "prompt": Field(prompt, required=True),
        "best_of": Field(Integer(1, limits.best_of), note="Draw so many, and give out the n most probable ones."),
        "echo": Field(Flag(), note="Begin the text with the prompt."),
        "logprobs": Field(Integer(0, 5), note="Tokens with log-probabilities, and so many alternatives of each."),
        "suffix": Field(Choice(("",))),
    }


def translation_fields(limits: Limits) -> Table:
    """What a request for translations may hold."""
    own = writing(limits)
    kept = ("model", "max_tokens", "n", "temperature", "top_p", "top_k", "seed", "num_beams", "length_penalty", "user")
    return {
        **{name: own[name] for name in kept},
        **streaming(),
        "text": Field(
            Union((Text(), Items(Text(), limits.prompts, 1)), "a string or an array of strings"), required=True
        ),
        "target_language": Field(Text(64), note="The token of a language, as the model's vocabulary spells it."),
        "early_stopping": Field(Flag()),
        "num_beam_groups": Field(Integer(1, limits.num_beams), note="Of beams that differ, with diversity_penalty."),
        "diversity_penalty": Field(Number(0, 100), note="Only with num_beam_groups."),
    }


async def create(request: HttpRequest) -> Response:
    """Answer a request for completions."""
    service, call = service_of(request), call_of(request)
    given = read(fields(service.limits), await read_body(request, service.limits))
    model = service.models.get(given.get("model"))
    model.needs("write")
    asked = decoding(given, model)
    _check_together(given)
    for kind, text, param in grammars(asked):
        await service.schemas.check(kind, text, param)
    prompts = prompts_of(given["prompt"])
    if service.log_prompts:
        service.log.tell("prompt", id=call.id, prompt=given["prompt"])
    asked["max_new_tokens"] = given.get("max_tokens", DEFAULT_TOKENS)
    if "max_tokens" not in given:
        asked["overflow"] = "stop"
    if "logprobs" in given:
        asked["logprobs"] = given["logprobs"]
    echo = given.get("echo", False)
    if echo and "logprobs" in given and model.can("translate"):
        raise bad("echo", "'echo' and 'logprobs' don't go together: a source has no log-probabilities.")

    def prepare() -> Prepared:
        requests = model.lm.requests(prompts, **asked)
        check_prompts(requests, model, "prompt")
        texts = [own if isinstance(own, str) else model.lm.tokenizer.decode(own) for own in prompts] if echo else []
        return Prepared(requests, texts, score_prompts=echo and "logprobs" in given)

    generation = await begin(service, call, model, prepare, param="prompt")
    answer = Completions(generation, "cmpl", "text_completion", logprobs="logprobs" in given)
    if given.get("stream"):
        return Stream(request, generation, answer.pieces(usage_wanted(given)))
    return await whole(request, generation, answer.whole)


async def translate(request: HttpRequest) -> Response:
    """Answer a request for translations."""
    service, call = service_of(request), call_of(request)
    given = read(translation_fields(service.limits), await read_body(request, service.limits))
    model = service.models.get(given.get("model"))
    model.needs("translate")
    asked = decoding(given, model)
    if "num_beams" in given:
        asked["num_beams"] = given["num_beams"]
    for name in ("early_stopping", "num_beam_groups", "diversity_penalty"):
        if name in given:
            asked[name] = given[name]
    if "max_tokens" in given:
        asked["max_new_tokens"] = given["max_tokens"]
    texts = [given["text"]] if isinstance(given["text"], str) else given["text"]

    def prepare() -> Prepared:
        requests = model.lm.translations(texts, target_language=given.get("target_language"), **asked)
        check_prompts(requests, model, "text")
        return Prepared(requests)

    generation = await begin(service, call, model, prepare, param="text")
    answer = Completions(generation, "trans", "translation", logprobs=False)
    if given.get("stream"):
        return Stream(request, generation, answer.pieces(usage_wanted(given)))
    return await whole(request, generation, answer.whole)


class Completions:
    """The texts of a request, as they are answered.

    Args:
        generation: where they come from.
        prefix: what the answer's id begins with.
        kind: of object.
        logprobs: whether tokens are told with their log-probabilities.
    """

    def __init__(self, generation: Generation, prefix: str, kind: str, *, logprobs: bool) -> None:
        self._generation, self._logprobs = generation, logprobs
        self._spelling = Spelling(generation.model.lm.tokenizer) if logprobs else None
        self._places: dict[int, Place] = {}
        self._n = generation.prepared.requests[0].params.n
        self._head = {
            "id": f"{prefix}-{secrets.token_hex(12)}",
            "object": kind,
            "created": int(time.time()),
            "model": generation.model.id,
        }

    async def whole(self) -> dict[str, Any]:
        """All of them in one piece."""
        texts: dict[int, list[Event]] = {}
        async for place, event in self._generation.events():
            texts.setdefault(place, []).append(event)
        choices = []
        for place in sorted(texts):
            events = texts[place]
            text = self._echo(place) + "".join(own.text for own in events)
            choices.append(self._choice(place, text, events, events[-1].finish_reason))
        return {**self._head, "choices": choices, "usage": self._generation.usage()}

    async def pieces(self, with_usage: bool) -> AsyncIterator[dict[str, Any]]:
        """The same in pieces, whose texts join to it; with the usage, where it is asked for, in a last one."""
        rest: dict[str, Any] = {"usage": None} if with_usage else {}
        begun = set[int]()
        async for place, event in self._generation.events():
            text = event.text if place in begun else self._echo(place) + event.text
            begun.add(place)
            if text or event.finish_reason is not None or self._logprobs:
                yield {**self._head, "choices": [self._choice(place, text, [event], event.finish_reason)], **rest}
        if with_usage:
            yield {**self._head, "choices": [], "usage": self._generation.usage()}

    def _echo(self, place: int) -> str:
        echoes = self._generation.prepared.echoes
        return echoes[place // self._n] if echoes else ""

    def _choice(self, place: int, text: str, events: Sequence[Event], reason: str | None) -> dict[str, Any]:
        logprobs = None
        if self._spelling is not None:
            number = place // self._n
            echoed: Sequence[PromptToken] = ()
            request = self._generation.prepared.requests[number]
            if place not in self._places:
                echoed = self._generation.handles[number].prompt
                self._places[place] = self._spelling.place(request.prompt, echoed=bool(echoed))
            ends = request.params.ends
            logprobs = self._spelling.completion([*echoed, *shown(events, ends)], self._places[place])
        finish = None if reason is None else REASONS[reason]
        return {"index": place, "text": text, "logprobs": logprobs, "finish_reason": finish}


def prompts_of(given: Any) -> list[str | list[int]]:
    """Each prompt of a request."""
    if isinstance(given, str) or (given and isinstance(given[0], int)):
        return [given]
    return list(given)


def check_prompts(requests: Sequence[Request], model: Served, param: str) -> None:
    """Refuse prompts that are longer than the context, before anything is handed to the engine.

    Raises:
        ApiError: 400.
    """
    for own in requests:
        length = max(len(own.prompt), len(own.source or ()))
        if length > model.context:
            message = f"This model's context has {model.context} tokens, but '{param}' has {length}."
            raise bad(param, message, "context_length_exceeded")
        left = model.context - len(own.prompt)
        if own.params.overflow == "error" and own.params.max_new_tokens > left:
            message = (
                f"This model's context has {model.context} tokens. You asked for {own.params.max_new_tokens} after "
                f"{len(own.prompt)} of the prompt; at most {left} are possible."
            )
            raise bad("max_tokens", message, "context_length_exceeded")


def usage_wanted(given: Mapping[str, Any]) -> bool:
    """Whether a stream ends with the usage."""
    wanted: bool = given.get("stream_options", {}).get("include_usage", False)
    return wanted


def _check_together(given: Mapping[str, Any]) -> None:
    best_of, n = given.get("best_of"), given.get("n", 1)
    if best_of is not None and best_of < n:
        raise bad("best_of", f"'best_of' must be at least 'n' (got best_of={best_of}, n={n}).")
    if best_of is not None and best_of > 1 and given.get("stream"):
        raise bad("best_of", "'best_of' can't be streamed: which outputs are the best is known at the end.")
