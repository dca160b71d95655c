"""``POST /v1/chat/completions``: the next message of a conversation."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from transpect.decode import Event
from transpect.serve.http import tools
from transpect.serve.http.body import read_body
from transpect.serve.http.errors import ApiError, bad
from transpect.serve.http.fields import Choice, Field, Flag, Integer, Table, read
from transpect.serve.http.generation import Generation, Prepared, begin
from transpect.serve.http.limits import Limits
from transpect.serve.http.logprobs import Place, Spelling, shown
from transpect.serve.http.messages import Messages, template_of
from transpect.serve.http.options import LARGEST, JsonObject, decoding, grammars, writing
from transpect.serve.http.routes.completions import REASONS, check_prompts, usage_wanted
from transpect.serve.http.service import call_of, service_of
from transpect.serve.http.streams import Stream, whole


def fields(limits: Limits) -> Table:
    """What a request for an answer may hold."""
    return {
        **writing(limits),
        **tools.fields(limits),
        "messages": Field(Messages(limits), required=True),
        "max_completion_tokens": Field(Integer(0, LARGEST), note="Another name of max_tokens."),
        "logprobs": Field(Flag(), note="Tokens with their log-probabilities."),
        "top_logprobs": Field(Integer(0, limits.top_logprobs), note="With so many alternatives of each token."),
        "chat_template_kwargs": Field(JsonObject(), note="More names for the template, such as enable_thinking."),
        "modalities": Field(Choice(())),
    }


async def create(request: HttpRequest) -> Response:
    """Answer a conversation."""
    limits = service_of(request).limits
    given = read(fields(limits), await read_body(request, limits))
    if "top_logprobs" in given and not given.get("logprobs"):
        raise bad("top_logprobs", "'top_logprobs' is only allowed when 'logprobs' is true.")
    names = {"max_tokens": "max_completion_tokens"} if "max_completion_tokens" in given else {}
    generation, offer = await begin_chat(request, given, names)
    answer = Answers(generation, offer, logprobs=given.get("logprobs", False))
    if given.get("stream"):
        return Stream(request, generation, answer.pieces(usage_wanted(given)))
    return await whole(request, generation, answer.whole)


async def begin_chat(
    request: HttpRequest, given: Mapping[str, Any], names: Mapping[str, str]
) -> tuple[Generation, tools.Offer]:
    """Hand a conversation to the engine.

    Args:
        request: the request.
        given: its checked fields, under the names of this route.
        names: of those that the request calls by another name.

    Raises:
        ApiError: it can't be answered, or not now; it has the request's own names.
    """
    try:
        return await _begun(request, given)
    except ApiError as error:
        raise error.of(names) from error.__cause__


async def _begun(request: HttpRequest, given: Mapping[str, Any]) -> tuple[Generation, tools.Offer]:
    service, call = service_of(request), call_of(request)
    model = service.models.get(given.get("model"))
    model.needs("write")
    asked, offer = decoding(given, model), tools.offer_of(given)
    if given.get("logprobs"):
        asked["logprobs"] = given.get("top_logprobs", 0)
    if offer.forced:
        also = next((name for name in ("regex", "grammar", "choices") if name in asked), None)
        if also is not None:
            raise bad(also, f"An answer can't be both a call of a function and of '{also}'.")
        asked["json_schema"] = offer.schema()
    for kind, text, param in grammars(asked):
        await service.schemas.check(kind, text, "tools" if offer.forced else param)
    limit = given.get("max_completion_tokens", given.get("max_tokens"))
    asked["max_new_tokens"] = service.limits.default_max_tokens if limit is None else limit
    if limit is None:
        asked["overflow"] = "stop"
    if service.log_prompts:
        service.log.tell("prompt", id=call.id, prompt=given["messages"])

    def prepare() -> Prepared:
        ids = model.lm.chat_prompt(
            given["messages"],
            template=template_of(model),
            tools=offer.tools or None,
            variables=given.get("chat_template_kwargs"),
        )
        requests = model.lm.requests([ids], **asked)
        check_prompts(requests, model, "messages")
        return Prepared(requests)

    return await begin(service, call, model, prepare, param="messages"), offer


class Answers:
    """The messages of a request, as they are answered.

    Args:
        generation: where they come from.
        offer: the functions that they may call.
        logprobs: whether tokens are told with their log-probabilities.
    """

    def __init__(self, generation: Generation, offer: tools.Offer, *, logprobs: bool) -> None:
        self._generation, self._offer = generation, offer
        self._spelling = Spelling(generation.model.lm.tokenizer) if logprobs else None
        self._places: dict[int, Place] = {}
        self._ends = generation.prepared.requests[0].params.ends
        self._id, self._created = f"chatcmpl-{secrets.token_hex(12)}", int(time.time())

    async def whole(self) -> dict[str, Any]:
        """All of them in one piece."""
        texts: dict[int, list[Event]] = {}
        async for place, event in self._generation.events():
            texts.setdefault(place, []).append(event)
        choices = []
        for place in sorted(texts):
            events = texts[place]
            content, calls = self._offer.calls_in("".join(own.text for own in events))
            message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
            if calls:
                message.update(content=content or None, tool_calls=[own.body() for own in calls])
            choices.append(self._choice(place, "message", message, events, events[-1].finish_reason, bool(calls)))
        return {**self._head("chat.completion"), "choices": choices, "usage": self._generation.usage()}

    async def pieces(self, with_usage: bool) -> AsyncIterator[dict[str, Any]]:
        """The same in pieces, whose texts join to it; with the usage, where it is asked for, in a last one."""
        head = {**self._head("chat.completion.chunk"), **({"usage": None} if with_usage else {})}
        for place in range(self._generation.prepared.requests[0].params.n):
            role = {"role": "assistant", "content": "", "refusal": None}
            yield {**head, "choices": [self._choice(place, "delta", role, [], None)]}
        held: dict[int, str] = {}
        begun = set[int]()
        async for place, event in self._generation.events():
            text = held.pop(place, "") + event.text
            over = event.finish_reason is not None
            calls: list[tools.ToolCall] = []
            if not over:
                # once text was given out, an object at its beginning can't be a call any more
                cut = self._offer.held_from(text) if place not in begun else self._marked(text)
                text, held[place] = text[:cut], text[cut:]
            elif place not in begun or self._marked(text) < len(text):
                text, calls = self._offer.calls_in(text)
            if text:
                begun.add(place)
            if text or self._spelling is not None:
                yield {
                    **head,
                    "choices": [self._choice(place, "delta", {"content": text} if text else {}, [event], None)],
                }
            for number, own in enumerate(calls):
                delta = {"tool_calls": [own.body(number)]}
                yield {**head, "choices": [self._choice(place, "delta", delta, [], None)]}
            if over:
                yield {**head, "choices": [self._choice(place, "delta", {}, [], event.finish_reason, bool(calls))]}
        if with_usage:
            yield {**head, "choices": [], "usage": self._generation.usage()}

    def _marked(self, text: str) -> int:
        """As `Offer.held_from`, of text in the middle of an answer."""
        return self._offer.held_from(f"x{text}") - 1

    def _choice(
        self, place: int, part: str, value: Any, events: list[Event], reason: str | None, called: bool = False
    ) -> dict[str, Any]:
        told = None
        if self._spelling is not None and events:
            prompt = self._generation.prepared.requests[0].prompt
            started = self._places.setdefault(place, self._spelling.place(prompt))
            told = self._spelling.chat(shown(events, self._ends), started)
        finish = None if reason is None else "tool_calls" if called else REASONS[reason]
        return {"index": place, part: value, "logprobs": told, "finish_reason": finish}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._generation.model.id}
