"""Several that answer alike, whoever runs them: what they are asked, and what comes back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

__all__ = ["Answer", "Asked", "Fleet", "LostError", "NobodyError"]

Headers = list[tuple[bytes, bytes]]
Page = tuple[int, bytes]
"""Of an answer: status and body."""


class LostError(Exception):
    """A replica has gone while it was asked, or can't be reached.

    Args:
        name: of it, where it is known.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        super().__init__(name)


class NobodyError(Exception):
    """There is no replica, or none that was not asked already."""


class Asked(NamedTuple):
    """A request, whole.

    Attributes:
        method: of HTTP.
        target: path and query.
        headers: without those that are about one connection.
        body: as it came.
        salt: whose it is: what another one has sent says nothing of where it should go.
    """

    method: str
    target: str
    headers: Headers
    body: bytes = b""
    salt: bytes = b""


class Answer:
    """What a replica answers.

    Attributes:
        name: of the replica.
        status: of HTTP.
        headers: as they came.
    """

    def __init__(self, name: str, status: int, headers: Headers, parts: AsyncGenerator[bytes, None]) -> None:
        self.name, self.status, self.headers, self._parts = name, status, headers, parts

    @property
    def streams(self) -> bool:
        """Whether its body comes as events, one after another."""
        kinds = [value for name, value in self.headers if name == b"content-type"]
        return any(kind.startswith(b"text/event-stream") for kind in kinds)

    def parts(self) -> AsyncGenerator[bytes, None]:
        """The body, as it comes.

        Raises:
            LostError: it breaks off.
        """
        return self._parts


class Fleet(Protocol):
    """The replicas."""

    def ask(self, asked: Asked, tried: Collection[str] = ()) -> AbstractAsyncContextManager[Answer]:
        """The answer of one of them; leaving before its end hangs up.

        Args:
            asked: a request.
            tried: names of those that should not be asked.

        Raises:
            LostError: the one that was asked has gone before its answer began.
            NobodyError: there is none to ask.
        """

    async def each(self, path: str) -> Mapping[str, Page]:
        """What each says at a path of its own, by name; 503 where it does not answer."""

    def numbers(self) -> Mapping[str, Mapping[str, float]]:
        """What is known of them here, for metrics: of each number by replica."""
