"""What happens, as lines of JSON: one for each request, and one for each thing that an operator wants to know.

No line holds a prompt or an answer unless that was asked for.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from typing import IO, Any

__all__ = ["Log", "quieten"]


class Log:
    """Lines of JSON. What can't be written (a full disk, a pipe that nobody reads any more) stops no request: lines are
    lost, and the next one that can be written is preceded by how many.

    Args:
        stream: where they go; None is stderr.

    Attributes:
        lost: lines since the last one that was written.
    """

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = stream
        self.lost = 0

    def tell(self, event: str, /, *, level: str = "info", **fields: Any) -> None:
        """Write a line.

        Args:
            event: what happened.
            level: info, warning or error.
            fields: more about it; those that are None are left out.
        """
        known = {name: value for name, value in fields.items() if value is not None}
        lines = [{"time": _now(), "level": level, "event": event, **known}]
        if self.lost:
            lines.insert(0, {"time": _now(), "level": "error", "event": "lines lost", "count": self.lost})
        stream = self._stream or sys.stderr
        try:
            for line in lines:
                stream.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
            stream.flush()
        except (OSError, ValueError):  # the second is a stream that has been closed
            self.lost += 1
        else:
            self.lost = 0

    def fail(self, event: str, error: BaseException, /, **fields: Any) -> None:
        """Write a line about an error that nobody expected, with where it came from."""
        trace = "".join(traceback.format_exception(error))
        self.tell(event, level="error", error=f"{type(error).__name__}: {error}", trace=trace, **fields)


class _Forward(logging.Handler):
    """What the network library has to say, in our own form."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        level = "error" if record.levelno >= logging.ERROR else "warning"
        trace = "".join(traceback.format_exception(record.exc_info[1])) if record.exc_info else None
        self._log.tell("network", level=level, message=record.getMessage(), trace=trace)


def quieten(log: Log) -> None:
    """Send the warnings of the network library to a log, and nothing else of it anywhere."""
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [_Forward(log)] if name == "uvicorn.error" else []
        logger.propagate = False
        logger.setLevel(logging.WARNING)


def _now() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
