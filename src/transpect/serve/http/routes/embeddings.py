"""``POST /v1/embeddings``: a vector for each text."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from transpect.serve.http.body import read_body
from transpect.serve.http.errors import bad, explained
from transpect.serve.http.fields import Choice, Field, Flag, Integer, Items, Table, Text, Union, read
from transpect.serve.http.guard import StoppedError
from transpect.serve.http.limits import Limits
from transpect.serve.http.models import Served, alive
from transpect.serve.http.options import LARGEST
from transpect.serve.http.routes.completions import prompts_of
from transpect.serve.http.service import call_of, service_of
from transpect.serve.http.streams import Json

TEXTS = 2048
"""The most texts of one request, as in OpenAI's API."""


def fields(limits: Limits) -> Table:
    """What a request for vectors may hold."""
    ids = Items(Integer(0, LARGEST), limits.body_bytes, 1)
    kinds = (Text(), ids, Items(Text(), TEXTS, 1), Items(ids, TEXTS, 1))
    named = "a string, an array of strings, an array of token ids or an array of such arrays"
    return {
        "model": Field(Text(256)),
        "input": Field(Union(kinds, named), required=True),
        "encoding_format": Field(Choice(("float", "base64"))),
        "dimensions": Field(Integer(1, LARGEST), note="The width of the model's vectors, and no other."),
        "truncate": Field(Flag(), note="Cut texts that are too long, instead of refusing them."),
        "user": Field(Text(512), note="Accepted, and not used."),
    }


async def create(request: Request) -> Response:
    """Answer a request for vectors."""
    service = service_of(request)
    given = read(fields(service.limits), await read_body(request, service.limits))
    model = service.models.get(given.get("model"))
    model.needs("embed")
    width = model.lm.model.config.d_model
    if given.get("dimensions", width) != width:
        raise bad("dimensions", f"The vectors of '{model.id}' have {width} dimensions; they can't be cut.")
    tokenizer, texts = model.lm.tokenizer, prompts_of(given["input"])

    def ids_of() -> list[list[int]]:
        return [tokenizer.encode(own, add_special_tokens=True) if isinstance(own, str) else own for own in texts]

    rows = await service.aside(ids_of)
    cut = given.get("truncate", False)
    vectors = await call(request, model, "embed", rows, "input", truncate=cut)
    found = np.ascontiguousarray(vectors.cpu().float().numpy(), dtype="<f4")
    as_text = given.get("encoding_format") == "base64"
    data = [
        {
            "object": "embedding",
            "index": place,
            "embedding": base64.b64encode(row.tobytes()).decode() if as_text else row.tolist(),
        }
        for place, row in enumerate(found)
    ]
    return Json({"object": "list", "data": data, "model": model.id, "usage": usage(request, read_of(model, rows, cut))})


async def call(request: Request, model: Served, name: str, inputs: Any, param: str, **options: Any) -> Any:
    """Ask the engine of an encoder.

    Raises:
        ApiError: it can't be done, or not now.
    """
    service, own = service_of(request), call_of(request)
    own.model = model.id
    try:
        future = alive(model).engine.call(name, inputs, **options)
        async with service.guarded(request.receive):
            return await asyncio.wrap_future(future)  # which is cancelled with who waits
    except StoppedError as stopped:
        own.ended = stopped.reason
        raise stopped.error() from None
    except Exception as error:
        known = explained(error, param)
        if known.status == 500:
            service.log.fail("request failed", error, id=own.id)
        raise known from error


def read_of(model: Served, rows: Sequence[Sequence[int]], cut: bool) -> list[Sequence[int]]:
    """As much of each text as is read, where those that are too long are cut."""
    return [row[: model.lm.max_length] if cut else row for row in rows]


def usage(request: Request, rows: Sequence[Sequence[int]]) -> dict[str, int]:
    """Tokens read, counted for whose request it was."""
    service, own = service_of(request), call_of(request)
    own.prompt_tokens = sum(map(len, rows))
    own.account.tokens.take(own.prompt_tokens)
    service.metrics.tokens.labels(own.model, "prompt").inc(own.prompt_tokens)
    return {"prompt_tokens": own.prompt_tokens, "total_tokens": own.prompt_tokens}
