"""HTTP/1.1 on a connection, with an end to patience: uvicorn's protocol over h11, and deadlines around it.

h11 reads strictly, and bounds the head of a request. What is added: a head must be there whole by a deadline, counted
from its first byte or from the opening of the connection; a reader that leaves an answer unread is cut off; there is a
most of connections; requests sent ahead of their turn wait outside of the parser, so that a hang-up is always seen.
"""

from __future__ import annotations

import asyncio
import json
import sys
from http import HTTPStatus
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from transpect.serve.http.errors import ApiError, unavailable
from transpect.serve.http.limits import Limits

__all__ = ["GuardedProtocol"]

_PHRASES: Final = {int(own): own.phrase for own in HTTPStatus}

_LINGER: Final = 2.0
"""Seconds for whoever is refused to take the answer."""


class GuardedProtocol(H11Protocol):
    """One connection.

    Args:
        limits: of connections and times.
        config: of uvicorn, as the next ones.
        server_state: likewise.
        app_state: likewise; the connection is put into it, for who must cut it off.
    """

    def __init__(
        self,
        limits: Limits,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, {**app_state, "connection": self}, _loop)
        self._limits = limits
        self._deadline: asyncio.TimerHandle | None = None
        self._last: asyncio.TimerHandle | None = None
        self._ahead = bytearray()
        self._refused = False

    def abort(self) -> None:
        """Close the connection now, whatever is left to send."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            self._refuse(unavailable("The server has as many connections as it can take.", "server_busy"))
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._have_head()
        self._let_read()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._refused or self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body:
            self._ahead += data
            if len(self._ahead) > self._limits.header_bytes:
                self.abort()
            return
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._await_head()
        self._read(data)

    def on_response_complete(self) -> None:
        """The turn of what was sent ahead; and a reader has some time to take what is left in the buffer."""
        super().on_response_complete()
        self._let_read()
        self._last = self.loop.call_later(self._limits.send_seconds, self._cut_off, self.cycle)
        if self._ahead and not self.transport.is_closing():
            data = bytes(self._ahead)
            self._ahead.clear()
            self.loop.call_soon(self.data_received, data)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, or has too long a head."""
        hint = getattr(sys.exception(), "error_status_hint", 400)  # of h11, which uvicorn is handling
        self._refuse(ApiError(hint if hint in _PHRASES else 400, msg, code="invalid_request"))

    def handle_events(self) -> None:
        """See `H11Protocol`; tells the one error that has a status of its own."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._have_head()

    def _read(self, data: bytes) -> None:
        super().data_received(data)

    def _await_head(self) -> None:
        self._have_head()
        self._deadline = self.loop.call_later(self._limits.receive_seconds, self._out_of_time)

    def _have_head(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _let_read(self) -> None:
        if self._last is not None:  # a timer that waits for nothing would keep all of a connection that is gone
            self._last.cancel()
            self._last = None

    def _out_of_time(self) -> None:
        self._deadline = None
        seconds = self._limits.receive_seconds
        self._refuse(ApiError(408, f"The request did not arrive within {seconds:g} seconds.", code="request_timeout"))

    def _cut_off(self, cycle: object) -> None:
        """The answer of a cycle has had its time; another one has its own."""
        if self.cycle is cycle and self.transport.get_write_buffer_size():
            self.abort()

    def _refuse(self, error: ApiError) -> None:
        """Answer and close, whatever the client goes on to send; where an answer has begun, close."""
        if self._refused or self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete and self.cycle.response_started:
            self.abort()
            return
        body = json.dumps(error.body()).encode()
        head = f"HTTP/1.1 {error.status} {_PHRASES[error.status]}\r\ncontent-type: application/json\r\n"
        head += f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(head.encode() + body)
        self._refused = True
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.transport.can_write_eof():
            self.transport.write_eof()  # a connection that is closed on a sender loses the answer
        self.loop.call_later(min(self._limits.send_seconds, _LINGER), self.abort)
