"""``POST /v1/fill-mask``: what may stand where a text has a mask."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from transpect.serve.http.body import read_body
from transpect.serve.http.errors import bad
from transpect.serve.http.fields import Field, Integer, Items, Table, Text, Union, read
from transpect.serve.http.limits import Limits
from transpect.serve.http.routes.embeddings import call, usage
from transpect.serve.http.service import service_of
from transpect.serve.http.streams import Json

MOST = 100
"""The most proposals for a mask."""


def fields(limits: Limits) -> Table:
    """What a request for masked tokens may hold."""
    kinds = (Text(), Items(Text(), limits.prompts, 1))
    return {
        "model": Field(Text(256)),
        "input": Field(Union(kinds, "a string or an array of strings"), required=True, note="With masks: [MASK]."),
        "top_k": Field(Integer(1, MOST), note="How many proposals for each mask; 5 where it is not said."),
        "user": Field(Text(512), note="Accepted, and not used."),
    }


async def fill(request: Request) -> Response:
    """Answer a request for masked tokens."""
    service = service_of(request)
    given = read(fields(service.limits), await read_body(request, service.limits))
    model = service.models.get(given.get("model"))
    model.needs("fill_mask")
    texts: list[str] = [given["input"]] if isinstance(given["input"], str) else given["input"]
    tokenizer = model.lm.tokenizer

    def ids_of() -> list[list[int]]:
        return [tokenizer.encode(own, add_special_tokens=True) for own in texts]

    rows = await service.aside(ids_of)
    for place, row in enumerate(rows):
        if tokenizer.mask_id not in row:
            mask = "none" if tokenizer.mask_id is None else tokenizer.tokens([tokenizer.mask_id])[0]
            param = "input" if isinstance(given["input"], str) else f"input[{place}]"
            raise bad(param, f"'{param}' has no mask; this model's is {mask}.", "no_mask")
    data: list[dict[str, Any]] = []
    for place, row in enumerate(rows):
        found = await call(request, model, "fill_mask", row, "input", k=given.get("top_k", 5))
        masks = [[{"token": token, "score": score} for token, score in own] for own in found]
        data.append({"object": "fill_mask", "index": place, "masks": masks})
    return Json({"object": "list", "data": data, "model": model.id, "usage": usage(request, rows)})
