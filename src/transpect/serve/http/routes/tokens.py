"""``POST /tokenize`` and ``POST /detokenize``: text to ids and back."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from transpect.serve.http.body import read_body
from transpect.serve.http.errors import bad, explained
from transpect.serve.http.fields import Field, Flag, Integer, Items, Table, Text, read
from transpect.serve.http.limits import Limits
from transpect.serve.http.messages import Messages, template_of
from transpect.serve.http.options import LARGEST
from transpect.serve.http.service import service_of
from transpect.serve.http.streams import Json


def fields(limits: Limits) -> Table:
    """What a request for ids may hold: a prompt or messages."""
    return {
        "model": Field(Text(256)),
        "prompt": Field(Text()),
        "messages": Field(Messages(limits)),
        "add_special_tokens": Field(Flag(), note="Of a prompt: with what stands around it. True by default."),
        "return_token_strs": Field(Flag(), note="With the tokens as a person reads them."),
    }


def back_fields(limits: Limits) -> Table:
    """What a request for text may hold."""
    return {
        "model": Field(Text(256)),
        "tokens": Field(Items(Integer(0, LARGEST), limits.body_bytes), required=True),
        "skip_special_tokens": Field(Flag()),
    }


async def tokenize(request: Request) -> Response:
    """Answer a request for ids."""
    service = service_of(request)
    given = read(fields(service.limits), await read_body(request, service.limits))
    model = service.models.get(given.get("model"))
    if ("prompt" in given) == ("messages" in given):
        raise bad("prompt", "Give either 'prompt' or 'messages'.", "missing_required_parameter")
    lm = model.lm

    def ids_of() -> list[int]:
        if "messages" in given:
            return lm.chat_prompt(given["messages"], template=template_of(model))
        if not given.get("add_special_tokens", True):
            return lm.tokenizer.encode(given["prompt"])
        (own,) = lm.requests([given["prompt"]], max_new_tokens=0, overflow="stop")
        return list(own.prompt if own.source is None else own.source)

    try:
        ids = await service.aside(ids_of)
    except Exception as error:
        raise explained(error, "messages" if "messages" in given else "prompt") from error
    names = {"token_strs": lm.tokenizer.tokens(ids)} if given.get("return_token_strs") else {}
    return Json({"tokens": ids, "count": len(ids), "max_model_len": model.context, **names})


async def detokenize(request: Request) -> Response:
    """Answer a request for text."""
    service = service_of(request)
    given = read(back_fields(service.limits), await read_body(request, service.limits))
    model = service.models.get(given.get("model"))
    ids, size = given["tokens"], model.lm.model.config.vocab_size
    worst = max(ids, default=0)
    if worst >= size:
        raise bad("tokens", f"'tokens' has the id {worst}; the vocabulary has the ids 0 to {size - 1}.")
    known = [own for own in ids if model.lm.tokenizer.id_to_token(own) is not None]
    text = await service.aside(lambda: model.lm.tokenizer.decode(known, given.get("skip_special_tokens", False)))
    return Json({"prompt": text})
