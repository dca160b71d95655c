"""The replicas of one machine: processes that this one has started."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from transpect.serve.http.replicas.fleet import Answer, Asked, LostError, NobodyError, Page
from transpect.serve.http.replicas.replica import Replica
from transpect.serve.http.replicas.routing import Router

__all__ = ["Local"]

PATIENCE: Final = 5.0
"""Seconds in which a replica has to say how it is."""


class Local:
    """See `Fleet`.

    Args:
        replicas: who answer.
        secret: a key of theirs, by which they are asked how they are; empty where they have none.
    """

    def __init__(self, replicas: Sequence[Replica], secret: str = "") -> None:
        self.replicas, self.router = tuple(replicas), Router()
        self._key = [(b"authorization", b"Bearer " + secret.encode())] if secret else []

    @asynccontextmanager
    async def ask(self, asked: Asked, tried: Collection[str] = ()) -> AsyncIterator[Answer]:
        """See `Fleet.ask`."""
        there = {own.name: own for own in self.replicas if own.port is not None and own.name not in tried}
        if not there:
            raise NobodyError
        name = self.router.choose(asked.body, asked.salt, {name: own.load for name, own in there.items()})
        async with there[name].ask(asked) as answer:
            yield answer

    async def each(self, path: str) -> Mapping[str, Page]:
        """See `Fleet.each`."""
        pages = await asyncio.gather(*(self._page(own, path) for own in self.replicas))
        return {own.name: page for own, page in zip(self.replicas, pages, strict=True)}

    def numbers(self) -> Mapping[str, Mapping[str, float]]:
        """See `Fleet.numbers`."""
        return {
            "load": {own.name: own.load for own in self.replicas},
            "restarts": {own.name: own.restarts for own in self.replicas},
        }

    async def _page(self, replica: Replica, path: str) -> Page:
        try:
            async with asyncio.timeout(PATIENCE), replica.ask(Asked("GET", path, self._key)) as answer:
                return answer.status, b"".join([part async for part in answer.parts()])
        except (LostError, TimeoutError):
            return 503, b""
