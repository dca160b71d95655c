"""Ctrl-C and SIGTERM, politely: the first asks the run to stop after its step, the second stops at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interruption:
    """While it is entered, SIGINT and SIGTERM set ``requested`` instead of ending the process.

    After the first signal the former handlers are back, so that a second one does what it always does. Off the main
    thread, where Python can't hear signals, nothing is changed.

    Attributes:
        requested: the name of the signal that came, or None.
    """

    def __init__(self, *, listen: bool = True) -> None:
        self.requested: str | None = None
        self._listen = listen
        self._former: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        if self._listen and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._former[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        self.requested = signal.Signals(number).name
        self._release()

    def _release(self) -> None:
        for number, handler in self._former.items():
            # None: set by something that is not Python, and can't be put back by it
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._former = {}
