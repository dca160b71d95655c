"""A program that is measured: a process of its own that holds a model and does one piece of work whenever it is asked.

Ours is such a process too, so that all are measured alike.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import transpect
from transpect.base.errors import TranspectError

__all__ = ["OURS", "PeerError", "Worker", "script_of", "ticks"]

OURS: Final = "ours"
SCRIPTS: Final = Path(__file__).parent / "workers"
PAUSE, PATIENCE = 0.05, 5.0
"""Seconds between two looks at a process that should be idle, and until it counts as one that never is."""


class PeerError(TranspectError):
    """A program that can't do what it is measured at, or has died."""


def script_of(task: str, who: str) -> Path:
    """The file that does a task with a program, whether it is there or not."""
    return SCRIPTS / task / f"{who.replace('.', '_').replace('-', '_')}.py"


class Worker:
    """See `transpect.bench.workers.loop` for what is spoken.

    Args:
        who: its name in results.
        script: see `script_of`.
        python: the interpreter of its environment.
        threads: how many it may compute with.

    Attributes:
        facts: what it says of itself once it has loaded: ``versions``, ``bits``, ...

    Raises:
        PeerError: of any method; the process can't be started, has died, or says what is wrong.
    """

    def __init__(self, who: str, script: Path, python: str | Path = sys.executable, *, threads: int) -> None:
        self.who, self.facts = who, dict[str, Any]()
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 # see close()
        command = [str(python), str(SCRIPTS / "loop.py"), str(script)]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                env=_environment(threads, ours=who == OURS),
                text=True,
                encoding="utf-8",
            )
        except OSError as error:
            raise PeerError(f"{who}: its interpreter can't be started: {error.strerror}", value=str(python)) from error

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def load(self, **options: Any) -> None:
        """Let it open what ``options`` say."""
        self.facts = self._ask("load", options)["facts"]

    def run(self, **options: Any) -> dict[str, Any]:
        """Let it do its work once. It returns when the process rests again, so that the next one has the cores."""
        answer = self._ask("run", options)
        self._rest()
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.close()
        except OSError:
            self._process.kill()  # it has died with a request unread
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._said.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, what: str, options: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": what, "options": options}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            code = self._process.wait()
            raise PeerError(f"{self.who} died with exit code {code}: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerError(f"{self.who} can't {what}: {answer['error']}")
        return answer

    def _last_words(self) -> str:
        self._said.seek(0)
        lines = [line.strip() for line in self._said.read().splitlines() if line.strip()]
        return lines[-1][:200] if lines else "it said nothing"

    def _rest(self) -> None:
        """Wait until it uses no more time of the processor: threads of some libraries wait for work busily at first."""
        used, end = ticks(self._process.pid), time.monotonic() + PATIENCE
        while used is not None:
            time.sleep(PAUSE)
            now = ticks(self._process.pid)
            if now is None or now == used:
                return
            if time.monotonic() > end:
                raise PeerError(f"{self.who} keeps the processor busy while it waits", value=f"{PATIENCE:g} s")
            used = now


def ticks(pid: int) -> int | None:
    """Time of the processor that a process has used, in the system's ticks; None where the system doesn't say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[11]) + int(fields[12])


def _environment(threads: int, *, ours: bool) -> dict[str, str]:
    """Everyone's threads, nobody's network, and no packages from elsewhere."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    package = {"PYTHONPATH": str(Path(transpect.__file__).parents[1])} if ours else {}
    counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), str(threads))
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    return {**kept, **package, **counts, **quiet, "TOKENIZERS_PARALLELISM": "false", "PYTHONUTF8": "1"}
