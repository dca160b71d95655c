"""JSON schemas, grammars and regular expressions of strangers, tried in a process that can be killed.

What passes there is read again here, by the same program and within about the same time; what was read once is known.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Final

from transpect.serve.http.errors import ApiError, bad, unavailable
from transpect.serve.http.limits import Limits

__all__ = ["SchemaCheck"]

_KNOWN: Final = 1024
_STARTS_IN: Final = 20.0
"""Seconds until the process must have started on a busy machine; the time of a schema begins after that."""


class SchemaCheck:
    """One process for one server; it is started at first use, and anew after it had to be killed.

    Args:
        limits: ``schema_bytes``, ``schema_seconds`` and ``schema_mebibytes``.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self.kills = 0

    async def check(self, kind: str, text: str, param: str) -> None:
        """Refuse what can't be read within the limits.

        Args:
            kind: ``json_schema``, ``regex`` or ``grammar``.
            text: of it.
            param: the field it came from.

        Raises:
            ApiError: 400.
        """
        question = json.dumps([kind, text]).encode()
        if len(text.encode()) > self._limits.schema_bytes:
            raise bad(param, f"'{param}' may have at most {self._limits.schema_bytes} bytes.", "schema_too_large")
        mark = hashlib.sha256(question).digest()
        if mark in self._known:
            self._known.move_to_end(mark)
            return
        async with self._lock:
            problem = await self._ask(question, param)
        if problem and not problem.startswith("WARNING"):
            raise bad(param, f"'{param}' can't be used: {_first(problem)}", "invalid_schema")
        self._known[mark] = None
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)

    async def close(self) -> None:
        """End the process."""
        async with self._lock:
            await self._kill()

    async def _ask(self, question: bytes, param: str) -> str:
        process = await self._running()
        assert process.stdin is not None and process.stdout is not None
        try:
            async with asyncio.timeout(self._limits.schema_seconds):
                process.stdin.write(question + b"\n")
                await process.stdin.drain()
                line = await process.stdout.readline()
        except TimeoutError:
            await self._kill()
            message = f"'{param}' takes more than {self._limits.schema_seconds:g} seconds to read."
            raise bad(param, message, "schema_too_complex") from None
        except (BrokenPipeError, ConnectionResetError):
            line = b""
        except BaseException:  # whoever asked is gone; the answer must not be taken for that to the next question
            await asyncio.shield(self._kill())
            raise
        if not line:
            await self._kill()
            message = f"'{param}' takes more than {self._limits.schema_mebibytes} MiB of memory to read."
            raise bad(param, message, "schema_too_complex")
        found = json.loads(line)
        assert isinstance(found, str), "the worker answers with a text"
        return found

    async def _running(self) -> asyncio.subprocess.Process:
        """The process, ready."""
        if self._process is None or self._process.returncode is not None:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-I",
                    str(Path(__file__).with_name("schema_worker.py")),
                    str(self._limits.schema_mebibytes),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.DEVNULL,
                )
            except OSError:  # no descriptors, no memory
                raise _no_worker() from None
            await self._greet(self._process)
        return self._process

    async def _greet(self, process: asyncio.subprocess.Process) -> None:
        """Wait until it has started: it answers to an easy question."""
        assert process.stdin is not None and process.stdout is not None
        try:
            async with asyncio.timeout(_STARTS_IN):
                process.stdin.write(b'["regex", "a"]\n')
                line = await process.stdout.readline()
        except TimeoutError:
            line = b""
        except BaseException:
            await asyncio.shield(self._kill())
            raise
        if not line:
            await self._kill()
            raise _no_worker()

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            self.kills += 1
            process.kill()
            await process.wait()


def _no_worker() -> ApiError:
    return unavailable("Schemas can't be read now: their process does not start.", "schema_worker_failed")


def _first(problem: str) -> str:
    if problem == "NoExtensionBias":  # how llguidance says it
        return "it allows no text at all."
    lines = [line.strip() for line in problem.splitlines() if line.strip()]
    return next((line for line in lines if line.startswith("error:")), lines[0])[:300]
