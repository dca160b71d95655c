"""The API's own description, an OpenAPI document made of the tables by which requests are checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from transpect import __version__
from transpect.serve.http.fields import Object, Table
from transpect.serve.http.limits import Limits
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
    "/v1/models/{model}": ("One of the models.", "application/json", ("404",)),
    "/health": ("Whether every engine lives.", "application/json", ("503",)),
    "/ready": ("Whether requests are taken.", "application/json", ("503",)),
    "/metrics": ("Numbers for Prometheus.", "text/plain", ()),
    "/openapi.json": ("This document.", "application/json", ()),
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
_OF_ALL: Final = ("400", "401", "403", "408", "431", "500")


def document(limits: Limits, *, keys: bool = True) -> dict[str, Any]:
    """The description.

    Args:
        limits: of requests.
        keys: whether requests need one.
    """
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    errors = {status: {"description": told, "content": error} for status, told in _ERRORS.items()}
    value = {"application/json": {"schema": {"type": "object"}}}
    paths: dict[str, Any] = {}
    for path, (table, told) in TABLES.items():
        fields = table(limits)
        body = {"required": True, "content": {"application/json": {"schema": Object(fields).schema()}}}
        content = {**value, **(_STREAM if "stream" in fields else {})}
        answers = {"200": {"description": "The answer.", "content": content}, **errors}
        paths[path] = {"post": {"summary": told, "requestBody": body, "responses": answers}}
    for path, (told, kind, also) in _GETS.items():
        good = {"description": told, "content": value if kind == "application/json" else {kind: {}}}
        answers = {"200": good, **{status: errors[status] for status in _OF_ALL}}
        answers |= {status: {"description": told} for status in also}
        paths[path] = {"get": {"summary": told, "responses": answers}}
    paths["/v1/models/{model}"]["get"]["parameters"] = [
        {"name": "model", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    ]
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
