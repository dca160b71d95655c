"""What is answered, as JSON schema, for the OpenAPI document and for whoever checks answers by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["ANSWERS"]

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_NUMBER: Final[Schema] = {"type": "number"}
_FLAG: Final[Schema] = {"type": "boolean"}
_FREE: Final[Schema] = {"type": "object"}
_LOGPROB: Final[Schema] = {"type": "number", "maximum": 0}


def _one_of(*values: str) -> Schema:
    return {"enum": list(values)}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _many(item: Schema, least: int = 0) -> Schema:
    return {"type": "array", "items": item, **({"minItems": least} if least else {})}


def _by_name(value: Schema) -> Schema:
    return {"type": "object", "additionalProperties": value}


def _object(may: Mapping[str, Schema] | None = None, **must: Schema) -> Schema:
    """Objects of these fields and no others; those of ``may`` can be left out."""
    fields = {**must, **(may or {})}
    return {"type": "object", "properties": fields, "required": list(must), "additionalProperties": False}


_DETAILS: Final = _object(cached_tokens=_COUNT)
_USAGE: Final = _object(
    prompt_tokens=_COUNT, completion_tokens=_COUNT, total_tokens=_COUNT, prompt_tokens_details=_DETAILS
)
_READ: Final = _object(prompt_tokens=_COUNT, total_tokens=_COUNT)
_REASON: Final = _one_of("stop", "length")

_SPELLED: Final = _object(token=_TEXT, logprob=_LOGPROB, bytes=_or_null(_many(_COUNT)))
_TOLD: Final = _object(
    content=_many(_object(**_SPELLED["properties"], top_logprobs=_many(_SPELLED))), refusal={"type": "null"}
)
_LISTED: Final = _object(
    tokens=_many(_TEXT),
    token_logprobs=_many(_or_null(_LOGPROB)),
    top_logprobs=_many(_or_null(_by_name(_LOGPROB))),
    text_offset=_many(_COUNT),
)


def _texts(kind: str) -> Schema:
    choice = _object(index=_COUNT, text=_TEXT, logprobs=_or_null(_LISTED), finish_reason=_REASON)
    return _object(id=_TEXT, object=_one_of(kind), created=_COUNT, model=_TEXT, choices=_many(choice, 1), usage=_USAGE)


_CALL: Final = _object(id=_TEXT, type=_one_of("function"), function=_object(name=_TEXT, arguments=_TEXT))
_MESSAGE: Final = _object(
    {"tool_calls": _many(_CALL, 1)}, role=_one_of("assistant"), content=_or_null(_TEXT), refusal={"type": "null"}
)
_CHAT: Final = _object(
    id=_TEXT,
    object=_one_of("chat.completion"),
    created=_COUNT,
    model=_TEXT,
    choices=_many(
        _object(
            index=_COUNT,
            message=_MESSAGE,
            logprobs=_or_null(_TOLD),
            finish_reason=_one_of("stop", "length", "tool_calls"),
        ),
        1,
    ),
    usage=_USAGE,
)

_PART: Final = _object(type=_one_of("output_text"), text=_TEXT, annotations=_many(_FREE), logprobs=_many(_FREE))
_ITEM: Final[Schema] = {
    "anyOf": [
        _object(
            id=_TEXT,
            type=_one_of("message"),
            role=_one_of("assistant"),
            status=_one_of("completed", "incomplete"),
            content=_many(_PART),
        ),
        _object(
            id=_TEXT,
            call_id=_TEXT,
            type=_one_of("function_call"),
            name=_TEXT,
            arguments=_TEXT,
            status=_one_of("completed"),
        ),
    ]
}
_RESPONSE: Final = _object(
    id=_TEXT,
    object=_one_of("response"),
    created_at=_COUNT,
    status=_one_of("completed", "incomplete"),
    incomplete_details=_or_null(_object(reason=_one_of("max_output_tokens"))),
    error={"type": "null"},
    model=_TEXT,
    instructions=_or_null(_TEXT),
    max_output_tokens=_or_null(_COUNT),
    metadata=_FREE,
    output=_many(_ITEM),
    parallel_tool_calls=_FLAG,
    previous_response_id={"type": "null"},
    store=_FLAG,
    temperature=_or_null(_NUMBER),
    text=_FREE,
    tool_choice={"anyOf": [_TEXT, _FREE]},
    tools=_many(_FREE),
    top_p=_or_null(_NUMBER),
    truncation=_one_of("disabled"),
    usage=_object(
        input_tokens=_COUNT,
        input_tokens_details=_DETAILS,
        output_tokens=_COUNT,
        output_tokens_details=_object(reasoning_tokens=_COUNT),
        total_tokens=_COUNT,
    ),
)

_VECTOR: Final = _object(object=_one_of("embedding"), index=_COUNT, embedding={"anyOf": [_many(_NUMBER, 1), _TEXT]})
_CLASS: Final = _object(index=_COUNT, label=_TEXT, probs=_by_name(_NUMBER), num_classes=_COUNT)
_MASKS: Final = _object(
    object=_one_of("fill_mask"), index=_COUNT, masks=_many(_many(_object(token=_TEXT, score=_NUMBER), 1), 1)
)


def _list(item: Schema) -> Schema:
    return _object(object=_one_of("list"), data=_many(item, 1), model=_TEXT, usage=_READ)


_CARD: Final = _object(
    id=_TEXT, object=_one_of("model"), created=_COUNT, owned_by=_TEXT, root=_TEXT, max_model_len=_COUNT
)
_UP: Final = _object(up=_COUNT, all=_COUNT)

ANSWERS: Final[Mapping[str, Schema]] = {
    "/v1/completions": _texts("text_completion"),
    "/v1/chat/completions": _CHAT,
    "/v1/responses": _RESPONSE,
    "/v1/translate": _texts("translation"),
    "/v1/embeddings": _list(_VECTOR),
    "/v1/classify": _list(_CLASS),
    "/v1/fill-mask": _list(_MASKS),
    "/tokenize": _object({"token_strs": _many(_TEXT)}, tokens=_many(_COUNT), count=_COUNT, max_model_len=_COUNT),
    "/detokenize": _object(prompt=_TEXT),
    "/v1/models": _object(object=_one_of("list"), data=_many(_CARD, 1)),
    "/v1/models/{model}": _CARD,
    "/health": _object({"replicas": _UP}, status=_one_of("ok", "draining", "degraded", "dead")),
    "/ready": _object({"models": _by_name(_TEXT), "replicas": _by_name(_FLAG)}, ready=_FLAG),
    "/openapi.json": _FREE,
}
"""Of each route, what it answers in one piece with 200 (and `/health` and `/ready` with 503 too)."""
