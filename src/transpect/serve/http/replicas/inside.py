"""An ASGI app asked in its own process: a whole request in, its answer out piece by piece."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from starlette.types import ASGIApp, Message

from transpect.serve.http.replicas.fleet import Asked, Headers

__all__ = ["Head", "answered"]

LINGER: Final = 1.0
"""Seconds for an app to notice that nobody waits any more, before it is cancelled."""


class Head(NamedTuple):
    """What an answer begins with.

    Attributes:
        name: who answers.
        status: of HTTP.
        headers: of the answer.
    """

    name: str
    status: int
    headers: Headers


async def answered(app: ASGIApp, asked: Asked, name: str = "") -> AsyncGenerator[Head | bytes, None]:
    """What an app answers: a `Head`, and then its body. Whoever leaves before the end has hung up.

    Args:
        app: is asked.
        asked: the request.
        name: for the head.

    Raises:
        Exception: what the app raises.
    """
    sent: asyncio.Queue[Message | None] = asyncio.Queue()  # a request says itself how long its answer becomes at most
    left = asyncio.Event()
    parts = iter([{"type": "http.request", "body": asked.body, "more_body": False}])

    async def receive() -> Message:
        for part in parts:
            return part
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.put_nowait(message)

    async def run() -> None:
        try:
            await app(_scope(asked), receive, send)
        finally:
            sent.put_nowait(None)

    task = asyncio.create_task(run())
    try:
        over = False
        while not over:
            messages = [await sent.get()]
            while not sent.empty():
                messages.append(sent.get_nowait())
            over = messages[-1] is None
            there = [own for own in messages if own is not None]
            for own in there:
                if own["type"] == "http.response.start":
                    yield Head(name, own["status"], list(own["headers"]))
            if body := b"".join(own.get("body", b"") for own in there):
                yield body
        await task
    finally:
        left.set()
        await asyncio.wait([task], timeout=LINGER)
        task.cancel()


def _scope(asked: Asked) -> dict[str, Any]:
    path, _, query = asked.target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": asked.method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "root_path": "",
        "headers": [(b"content-length", b"%d" % len(asked.body)), *asked.headers],
        "client": None,
        "server": None,
        "state": {},
    }
