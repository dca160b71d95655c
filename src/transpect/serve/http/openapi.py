"""The API's own description, an OpenAPI document made of the tables by which requests are checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from transpect import __version__
from transpect.serve.http.answers import ANSWERS
from transpect.serve.http.fields import Choice, Object, Table
from transpect.serve.http.limits import Limits
from transpect.serve.http.models import Models
from transpect.serve.http.routes import chat, completions, embeddings, masks, reading, responses, tokens

__all__ = ["TABLES", "document"]

TABLES: Final[Mapping[str, tuple[Callable[[Limits], Table], str]]] = {
    "/v1/completions": (completions.fields, "Go on with texts."),
    "/v1/chat/completions": (chat.fields, "Answer a conversation."),
    "/v1/responses": (responses.fields, "Answer a conversation, as items."),
    "/v1/translate": (completions.translation_fields, "Translate texts."),
    "/v1/embeddings": (embeddings.fields, "A vector for each text."),
    "/v1/classify": (reading.fields, "The class of each text."),
    "/v1/fill-mask": (masks.fields, "What may stand where a text has a mask."),
    "/tokenize": (tokens.fields, "Text to ids."),
    "/detokenize": (tokens.back_fields, "Ids to text."),
}
"""What each route with a body may be asked, and what it does."""

_GETS: Final = {
    "/": ("A page to talk to the models.", "text/html", ()),
    "/v1/models": ("The models.", "application/json", ()),
    "/v1/models/{model}": ("One of the models.", "application/json", ()),
    "/health": ("Whether every engine lives.", "application/json", ("503",)),
    "/ready": ("Whether requests are taken.", "application/json", ("503",)),
    "/metrics": ("Numbers for Prometheus.", "text/plain", ()),
    "/openapi.json": ("This document.", "application/json", ()),
}
_EXAMPLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "/v1/completions": {"prompt": "The quick brown fox", "max_tokens": 16},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 64},
    "/v1/responses": {"input": "Hello", "max_output_tokens": 64},
    "/v1/translate": {"text": "The cat eats fish.", "max_tokens": 64},
    "/v1/embeddings": {"input": ["a text", "another one"]},
    "/v1/classify": {"input": ["a text", "another one"]},
    "/v1/fill-mask": {"input": "The cat eats [MASK]."},
    "/tokenize": {"prompt": "The quick brown fox"},
    "/detokenize": {"tokens": [5, 6]},
}
_ABILITIES: Final = {
    "/v1/completions": "write",
    "/v1/chat/completions": "write",
    "/v1/responses": "write",
    "/v1/translate": "translate",
    "/v1/embeddings": "embed",
    "/v1/classify": "classify",
    "/v1/fill-mask": "fill_mask",
}
_STREAM: Final = {"text/event-stream": {"schema": {"type": "string"}}}

_ERRORS: Final = {
    "400": "A field is wrong; `param` names it.",
    "401": "No API key, or a wrong one.",
    "403": "Of a foreign web page.",
    "404": "No such model.",
    "408": "The request did not arrive in time.",
    "413": "The body is too long.",
    "415": "The body is no JSON.",
    "429": "Too much at a time; see Retry-After.",
    "431": "The head is too long.",
    "500": "The server or the model failed at this request.",
    "503": "About to stop, or the engine has failed.",
    "504": "The answer took too long.",
}
_ERROR: Final = {"$ref": "#/components/schemas/Error"}
_OF_ALL: Final = ("400", "401", "403", "408", "431", "500")


def document(limits: Limits, *, keys: bool = True, models: Models | None = None) -> dict[str, Any]:
    """The description.

    Args:
        limits: of requests.
        keys: whether requests need one.
        models: that requests may name; None is any.
    """
    errors = {status: {"description": told, "content": _json(_ERROR)} for status, told in _ERRORS.items()}
    paths: dict[str, Any] = {}
    for path, (table, told) in TABLES.items():
        fields, example = table(limits), dict(_EXAMPLES[path])
        if models is not None:
            names = _names(models, _ABILITIES.get(path))
            fields = {**fields, "model": replace(fields["model"], kind=Choice(names), required=len(models.all) > 1)}
            example |= {"model": names[0]} if names else {}
        content = _json(Object(fields).schema())
        content["application/json"]["example"] = example
        answer = {**_json(ANSWERS[path]), **(_STREAM if "stream" in fields else {})}
        answers = {"200": {"description": "The answer.", "content": answer}, **errors}
        body = {"required": True, "content": content}
        paths[path] = {"post": {"summary": told, "requestBody": body, "responses": answers}}
    for path, (told, kind, also) in _GETS.items():
        content = _json(ANSWERS[path]) if path in ANSWERS else {kind: {}}
        answers = {"200": {"description": told, "content": content}, **{status: errors[status] for status in _OF_ALL}}
        answers |= {status: {"description": told, "content": content} for status in also}
        paths[path] = {"get": {"summary": told, "responses": answers}}
    named = {"type": "string", "minLength": 1} if models is None else Choice(_names(models)).schema()
    one = paths["/v1/models/{model}"]["get"]
    one["parameters"] = [{"name": "model", "in": "path", "required": True, "schema": named}]
    one["responses"]["404"] = errors["404"]
    paths["/health"]["get"]["security"] = []
    texts = {"type": ["string", "null"]}
    inner = {"message": {"type": "string"}, "type": {"type": "string"}, "param": texts, "code": texts}
    wrapped = {"error": {"type": "object", "properties": inner, "required": list(inner)}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "transpect", "version": __version__},
        "paths": paths,
        "security": [{"key": []}] if keys else [],
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": {"type": "object", "properties": wrapped, "required": ["error"]}},
        },
    }


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _names(models: Models, ability: str | None = None) -> tuple[str, ...]:
    """Those of the models that can do something."""
    able = [own for own in models.all if ability is None or own.can(ability)]
    return tuple(name for own in able for name in own.names)
