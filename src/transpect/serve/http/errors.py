"""What goes wrong, as the error objects of OpenAI's API: ``{"error": {"message", "type", "param", "code"}}``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final, Self

from transpect.base.errors import ContextLengthError, GenerationError, TokenizerError, TranspectError
from transpect.serve.errors import Busy, Draining, EngineDead, Expired, ServeError

__all__ = ["ApiError", "bad", "busy", "explained", "unavailable"]

_TYPES: Final[Mapping[int, str]] = {
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
    504: "server_error",
}

_FIELDS: Final[Mapping[str, str]] = {
    **{
        name: name for name in ("best_of", "frequency_penalty", "grammar", "length_penalty", "logit_bias", "min_p", "n")
    },
    **{name: name for name in ("num_beams", "presence_penalty", "regex", "repetition_penalty", "seed", "stop")},
    **{name: name for name in ("target_language", "temperature", "top_k", "top_p", "choices", "ignore_eos")},
    "json_schema": "response_format",
    "logprobs": "logprobs",
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
}
"""Parameters of decoding, as the fields of a request that set them."""


class ApiError(Exception):
    """An answer that is an error.

    Args:
        status: of HTTP.
        message: for a person.
        param: the field of the request that is at fault.
        code: for a program.
        type: the kind of error in OpenAI's words; None goes by the status.
        headers: of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        type: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status, self.message, self.param, self.code = status, message, param, code
        self.type = type or _TYPES.get(status, "invalid_request_error")
        self.headers = dict(headers or {})
        super().__init__(message)

    def of(self, names: Mapping[str, str]) -> Self:
        """The same error of a request that has other names for some fields, given by the names that are known here."""
        known = sorted(names, key=len, reverse=True)
        inner = next(
            (own for own in known if self.param is not None and re.match(rf"{re.escape(own)}\b", self.param)), ""
        )
        if inner and self.param is not None:
            self.param = names[inner] + self.param.removeprefix(inner)
            self.message = self.message.replace(f"'{inner}", f"'{names[inner]}")
        return self

    def body(self) -> dict[str, Any]:
        """The error object."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


def bad(param: str | None, message: str, code: str = "invalid_value") -> ApiError:
    """A request that can't be done as it is: 400."""
    return ApiError(400, message, param=param, code=code)


def busy(message: str, retry_after: float, code: str = "rate_limit_exceeded") -> ApiError:
    """A request that can be done later: 429, with the seconds to wait as a whole number from 1."""
    return ApiError(429, message, code=code, headers={"Retry-After": str(max(1, math.ceil(retry_after)))})


def unavailable(message: str, code: str) -> ApiError:
    """A server that can't do anything now: 503."""
    return ApiError(503, message, code=code, headers={"Retry-After": "1"})


def explained(error: BaseException, param: str | None = None, *, running: bool = False) -> ApiError:
    """What an exception of the layers below means to a client.

    Args:
        error: the exception.
        param: the field that holds the prompt, for errors that name no other.
        running: the request was found sound before, so that an error that is about none of its fields is ours.
    """
    if running and isinstance(error, TranspectError) and not isinstance(error, ServeError) and not _field(error, None):
        return ApiError(500, f"The model failed at this request: {error.rule}.", code="model_failed")
    match error:
        case ApiError():
            return error
        case Busy():
            return busy(str(error), error.retry_after)
        case Draining():
            return unavailable(str(error), "shutting_down")
        case EngineDead():
            return unavailable("The engine has failed and is being started again.", "engine_dead")  # the log says how
        case Expired():
            return ApiError(504, str(error), code="request_deadline")
        case ContextLengthError():
            return bad(_field(error, param), str(error), "context_length_exceeded")
        case GenerationError():
            return bad(_field(error, param), str(error))
        case TokenizerError():
            return bad(param, str(error))
        case TranspectError():
            return ApiError(400, str(error), code="unsupported")
    return ApiError(500, "The server failed at this request; its log says how.", code="internal_error")


def _field(error: TranspectError, param: str | None) -> str | None:
    """The field that an error of decoding is about: the first of its words that names a parameter."""
    told = error.value if isinstance(error.value, str) and re.match(r"[a-z_]+=", error.value) else ""
    words = re.findall(r"[a-z_]+", f"{error.rule} {told}")
    return next((_FIELDS[word] for word in words if word in _FIELDS), param)
