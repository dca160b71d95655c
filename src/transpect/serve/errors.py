"""Why an engine does not take a request, or did not end it: what to say to whom it came from."""

from __future__ import annotations

from transpect.base.errors import TranspectError


class ServeError(TranspectError):
    """Something between a request and its engine; the request itself may be sound."""


class Busy(ServeError):  # noqa: N818 # a state, as people say it
    """There is too much to do already (HTTP 429).

    Args:
        retry_after: seconds after which it is worth another try.
    """

    def __init__(self, rule: str, *, value: object = None, retry_after: float = 1.0) -> None:
        super().__init__(rule, value=value, remedy=f"Try again in {retry_after:.0f} s.")
        self.retry_after = retry_after


class Draining(ServeError):  # noqa: N818 # a state, as people say it
    """The engine ends what it has and takes nothing new (HTTP 503)."""

    def __init__(self) -> None:
        super().__init__("the engine is about to stop and takes no new requests", remedy="Ask another replica.")


class EngineDead(ServeError):  # noqa: N818 # a state, as people say it
    """The engine has failed, or was stopped (HTTP 503). What failed is its ``__cause__``."""

    def __init__(self, rule: str = "the engine has stopped") -> None:
        super().__init__(rule, remedy="Try again once it has been restarted.")


class Expired(ServeError):  # noqa: N818 # a state, as people say it
    """The deadline of a request came before its end (HTTP 504)."""

    def __init__(self) -> None:
        super().__init__("the request's time is over", remedy="Ask for fewer tokens, or allow more time.")
