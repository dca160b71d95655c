"""The body of a request: received within bounds and in time, and read as strict JSON.

Strict means that every reader would take it to mean the same: UTF-8, no key twice, no NaN, no number of thousands of
digits, no half of a surrogate pair, and no more depth and parts than a program can look through at once.
"""

from __future__ import annotations

import asyncio
import json
import re
from itertools import accumulate
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request

from transpect.base.files import unique_keys
from transpect.serve.http.errors import ApiError
from transpect.serve.http.limits import Limits

__all__ = ["parse", "read_body", "read_bytes"]

_DIGITS: Final = 1000
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_NOT_PARTS: Final = bytes(set(range(256)) - set(b"[]{},"))
_STEP: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


async def read_body(request: Request, limits: Limits) -> dict[str, Any]:
    """The object that a request holds.

    Raises:
        ApiError: 415 another type than JSON, or compressed; as `read_bytes` and `parse`.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # which also keeps out forms that a foreign web page can send
        raise ApiError(415, "The content type must be application/json.", code="unsupported_media_type")
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise ApiError(415, "The body must not be compressed.", code="unsupported_encoding")
    found = parse(await read_bytes(request, limits), limits)
    if not isinstance(found, dict):
        raise _not_json("it must be an object")
    return found


async def read_bytes(request: Request, limits: Limits) -> bytes:
    """The body of a request.

    Raises:
        ApiError: 408 where it does not arrive in time, 413 a longer body.
    """
    said = request.headers.get("content-length", "")
    if said.isdigit() and int(said) > limits.body_bytes:
        raise _too_long(limits)
    body = bytearray()
    try:
        async with asyncio.timeout(limits.receive_seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limits.body_bytes:
                    raise _too_long(limits)
    except TimeoutError:
        message = f"The request did not arrive within {limits.receive_seconds:g} seconds."
        raise ApiError(408, message, code="request_timeout", headers={"Connection": "close"}) from None
    except ClientDisconnect:
        raise ApiError(499, "The client hung up.", code="client_closed_request") from None
    return bytes(body)


def parse(body: bytes, limits: Limits) -> Any:
    """What JSON means.

    Raises:
        ApiError: 400, not valid JSON, ambiguous, too deep or of too many parts.
    """
    skeleton = _STRING.sub(b"", body)
    if len(skeleton.translate(None, _NOT_PARTS)) > limits.json_parts:
        raise _not_json(f"it may have at most {limits.json_parts} parts")
    brackets = skeleton.translate(None, _NOT_BRACKETS)
    if max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > limits.json_depth:
        raise _not_json(f"it may nest at most {limits.json_depth} deep")
    try:
        text = body.decode("utf-8")
        found = json.loads(
            text, object_pairs_hook=unique_keys, parse_constant=_no_constant, parse_float=_finite, parse_int=_whole
        )
        if _SURROGATE.search(text):
            json.dumps(found, ensure_ascii=False).encode("utf-8")
    except UnicodeError:
        raise _not_json("its text must be valid UTF-8, without halves of surrogate pairs") from None
    except json.JSONDecodeError as error:
        raise _not_json(f"{error.msg} at character {error.pos}") from None
    except ValueError as error:
        raise _not_json(str(error)) from None
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number is larger than a float can be")
    return value


def _whole(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"a whole number has more than {_DIGITS} digits")
    return int(text)


def _not_json(why: str) -> ApiError:
    return ApiError(400, f"We could not parse the JSON body of your request: {why}.", code="invalid_json")


def _too_long(limits: Limits) -> ApiError:
    message = f"The body may have at most {limits.body_bytes} bytes."
    return ApiError(413, message, code="request_too_large", headers={"Connection": "close"})
