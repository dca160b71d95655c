"""``POST /v1/classify``: the class of each text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from transpect.serve.http.body import read_body
from transpect.serve.http.fields import Field, Flag, Items, Table, Text, Union, read
from transpect.serve.http.limits import Limits
from transpect.serve.http.routes.embeddings import TEXTS, call, read_of, usage
from transpect.serve.http.service import service_of
from transpect.serve.http.streams import Json


def fields(limits: Limits) -> Table:
    """What a request for classes may hold."""
    kinds = (Text(), Items(Text(), TEXTS, 1), Items(Items(Text(), 2, 2), TEXTS, 1))
    named = "a string, an array of strings or an array of pairs of strings"
    return {
        "model": Field(Text(256)),
        "input": Field(Union(kinds, named), required=True),
        "truncate": Field(Flag(), note="Cut texts that are too long, instead of refusing them."),
        "user": Field(Text(512), note="Accepted, and not used."),
    }


async def classify(request: Request) -> Response:
    """Answer a request for classes."""
    service = service_of(request)
    given = read(fields(service.limits), await read_body(request, service.limits))
    model = service.models.get(given.get("model"))
    model.needs("classify")
    texts: Sequence[Any] = [given["input"]] if isinstance(given["input"], str) else given["input"]
    texts = [tuple(own) if isinstance(own, list) else own for own in texts]
    tokenizer = model.lm.tokenizer

    def ids_of() -> list[list[int]]:
        pairs = (own if isinstance(own, tuple) else (own,) for own in texts)
        return [tokenizer.encode_pair(*own)[0] if len(own) == 2 else tokenizer.encode(own[0], True) for own in pairs]

    rows = await service.aside(ids_of)
    cut = given.get("truncate", False)
    found = await call(request, model, "classify", texts, "input", truncate=cut)
    data = [
        {"index": place, "label": own.label, "probs": own.probabilities, "num_classes": len(own.probabilities)}
        for place, own in enumerate(found)
    ]
    return Json({"object": "list", "data": data, "model": model.id, "usage": usage(request, read_of(model, rows, cut))})
