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
    "/v1/models": "The models.",
    "/health": "Whether every engine lives.",
    "/ready": "Whether requests are taken.",
    "/metrics": "Numbers for Prometheus.",
}

_ERRORS: Final = {
    "400": "A field is wrong; `param` names it.",
    "401": "No API key, or a wrong one.",
    "403": "Of a foreign web page.",
    "404": "No such model.",
    "408": "The request did not arrive in time.",
    "413": "The body is too long.",
    "415": "The body is no JSON.",
    "429": "Too much at a time; see Retry-After.",
    "503": "About to stop, or the engine has failed.",
    "504": "The answer took too long.",
}


def document(limits: Limits) -> dict[str, Any]:
    """The description.

    Args:
        limits: of requests.
    """
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    errors = {status: {"description": told, "content": error} for status, told in _ERRORS.items()}
    paths: dict[str, Any] = {}
    for path, (table, told) in TABLES.items():
        schema = Object(table(limits)).schema()
        body = {"required": True, "content": {"application/json": {"schema": schema}}}
        answers = {"200": {"description": "The answer."}, **errors}
        paths[path] = {"post": {"summary": told, "requestBody": body, "responses": answers}}
    for path, told in _GETS.items():
        paths[path] = {"get": {"summary": told, "responses": {"200": {"description": told}}}}
    texts = {"type": ["string", "null"]}
    inner = {"message": {"type": "string"}, "type": {"type": "string"}, "param": texts, "code": texts}
    wrapped = {"error": {"type": "object", "properties": inner, "required": list(inner)}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "transpect", "version": __version__},
        "paths": paths,
        "security": [{"key": []}],
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": {"type": "object", "properties": wrapped, "required": ["error"]}},
        },
    }
