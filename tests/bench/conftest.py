"""Programs to measure that do nothing but say how long they took."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from transpect.bench import harness
from transpect.bench.harness import Options, Sitting

SCRIPT = """
import os, sys, threading
def load(options):
    print("loading")  # a library that talks must not disturb the answers
    if options.get("fails"):
        raise OSError("no such file")
    turn = [0]
    def run(asked):
        turn[0] += 1
        if turn[0] == options.get("dies_at"):
            sys.stderr.write("out of memory\\n")
            sys.stderr.flush()
            os._exit(3)
        if options.get("spins"):
            threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()
        count = options.get("count", asked["tokens"])
        return {"count": {"steps": count}, "seconds": {"steps": options["seconds"]}, "ids": [[1, 2]],
                "sizes": {"peak": options.get("peak", 1)}, "pid": os.getpid(), "threads": os.environ["OMP_NUM_THREADS"],
                "path": sys.path}
    return {"versions": {"fake": "1"}, "bits": options.get("bits")}, run
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "fake.py"
    file.write_text(SCRIPT, encoding="utf-8")
    return file


class FakeMachine:
    def __init__(self, threads: int) -> None:
        self.threads, self.reads, self.looks, self.pids = threads, [10.0], 0, list[int]()

    def measure(self) -> None: ...

    def close(self) -> None: ...

    def look(self) -> float:
        self.looks += 1
        return 10.0

    def facts(self) -> dict[str, object]:
        read = {"median": 10.0, "lowest": 9.0, "highest": 11.0}
        return {
            "cpu": "slow",
            "products": "plain",
            "cores": 2,
            "threads": self.threads,
            "read GB/s": read,
            "gemm G/s": {"float32": 1.0},
        }


@pytest.fixture
def sitting(script: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sitting]:
    """One whose programs are all made up, and whose machine is not measured."""
    monkeypatch.setattr(harness, "Machine", FakeMachine)
    monkeypatch.setattr(harness, "script_of", lambda task, who: script)
    with Sitting(Options(("transformers", "ctranslate2"), rounds=3, peer_python=pythons())) as made:
        yield made


def pythons() -> dict[str, Path]:
    import sys

    return {name: Path(sys.executable) for name in ("transformers", "ctranslate2", "llama.cpp")}
