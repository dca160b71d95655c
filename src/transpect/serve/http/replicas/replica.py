"""One process that serves: it is started, asked by HTTP over the loopback interface, and started again when it ends."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import h11

from transpect.serve.http.replicas.fleet import Answer, Asked, LostError

__all__ = ["Replica"]

STARTING: Final = 600.0
"""Seconds until it must listen."""
_PAUSES: Final = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Seconds before it is started again; one that dies at once waits longer and longer."""
_STEADY: Final = 60.0
"""Seconds after which a start counts as a good one."""


class Replica:
    """A process.

    Args:
        name: of it.
        command: starts it; the first line that it writes is ``{"port": …}``, and it ends when its input does.
        environ: more for its environment.
        tell: is told of starts and ends, by keywords.

    Attributes:
        port: where it listens; None while it does not.
        load: requests that it has now.
        restarts: how often it was started again.
    """

    def __init__(self, name: str, command: Sequence[str], environ: Mapping[str, str], tell: Callable[..., Any]) -> None:
        self.name, self._command, self._environ, self._tell = name, list(command), dict(environ), tell
        self.port: int | None = None
        self.load = self.restarts = 0
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._pending = set[int]()

    @property
    def pid(self) -> int | None:
        """Of the process; None where there is none."""
        return None if self._process is None else self._process.pid

    @property
    def status(self) -> int | None:
        """How the process has ended; None where it runs, or there is none."""
        return None if self._process is None else self._process.returncode

    async def keep(self, told: Callable[[Replica], object] = lambda _: None) -> None:
        """Start it, and again whenever it ends, until `stop`.

        Args:
            told: is called each time that it listens, or does not start.
        """
        loop, failures = asyncio.get_running_loop(), 0
        while not self._stopping:
            await asyncio.sleep(_PAUSES[min(failures, len(_PAUSES) - 1)])
            since = loop.time()
            try:
                await self._start()
            except (OSError, ValueError, TimeoutError) as error:
                self._tell("replica does not start", level="error", replica=self.name, error=str(error))
            told(self)
            if self._process is not None:
                status = await self._process.wait()
                self.port = None
                if not self._stopping:
                    self._tell("replica ended", level="error", replica=self.name, status=status)
            failures = 1 if loop.time() - since > _STEADY else failures + 1
            self.restarts += not self._stopping

    def signal(self, number: int) -> None:
        """Send it a signal, if it runs; while it starts it would die of it, so that it gets it once it listens."""
        if self._process is None or self._process.returncode is not None:
            return
        if self.port is None:
            self._pending.add(number)
            return
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def stop(self, seconds: float) -> None:
        """End it in good order, or at once when the time is over."""
        self._stopping = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), seconds)
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    @asynccontextmanager
    async def ask(self, asked: Asked) -> AsyncIterator[Answer]:
        """Send a request; leaving before the end hangs up.

        Raises:
            LostError: it can't be reached, or goes before its answer begins.
        """
        port = self.port
        if port is None:
            raise LostError(self.name)
        self.load += 1
        writer = None
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            connection = h11.Connection(h11.CLIENT)
            size = b"%d" % len(asked.body)
            own = [(b"host", b"127.0.0.1:%d" % port), (b"content-length", size), (b"connection", b"close")]
            request = h11.Request(method=asked.method, target=asked.target, headers=[*asked.headers, *own])
            for event in (request, h11.Data(data=asked.body), h11.EndOfMessage()):
                writer.write(connection.send(event) or b"")
            await writer.drain()
            head = await _next(connection, reader)
            if not isinstance(head, h11.Response):
                raise LostError(self.name)
            yield Answer(self.name, head.status_code, list(head.headers), _body(self.name, connection, reader))
        except (OSError, h11.RemoteProtocolError) as error:
            raise LostError(self.name) from error
        finally:
            self.load -= 1
            if writer is not None:
                writer.close()

    async def _start(self) -> None:
        self._pending.clear()
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=sys.stderr,
            env={**os.environ, **self._environ},
            start_new_session=True,  # Ctrl-C is for who listens, who ends the others in good order
        )
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), STARTING)
            self.port = int(json.loads(line)["port"])
        except (ValueError, TimeoutError):
            with suppress(ProcessLookupError):
                self._process.kill()
            raise
        self._tell("replica listens", replica=self.name, port=self.port, pid=self.pid)
        while self._pending:
            self.signal(self._pending.pop())


async def _next(connection: h11.Connection, reader: asyncio.StreamReader) -> Any:
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await reader.read(65536))
    return event


async def _body(name: str, connection: h11.Connection, reader: asyncio.StreamReader) -> AsyncGenerator[bytes, None]:
    try:
        while isinstance(event := await _next(connection, reader), h11.Data):
            yield bytes(event.data)
    except (OSError, h11.RemoteProtocolError) as error:
        raise LostError(name) from error
    if not isinstance(event, h11.EndOfMessage):
        raise LostError(name)
