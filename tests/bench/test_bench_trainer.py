"""All programs of `benchmarks/training.py` begin with the same weights, read the same rows, end with the same loss."""

from pathlib import Path
from typing import Any

import pytest

from transpect.bench.train import Training
from transpect.bench.trainer import TASK, prepare
from transpect.bench.worker import OURS, script_of
from transpect.bench.workers.loop import _script

TINY = Training(steps=4, rows=2, length=8, layers=1, width=16, heads=2, words=512)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_programs_make_the_same_run(tmp_path: Path, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    common = {**prepare(tmp_path / "made", TINY, dtype), "threads": 1, "keep": False, "compiled": False}
    answers: dict[str, Any] = {}
    for who in (OURS, "transformers", "nanogpt-style"):
        _, run = _script(str(script_of(TASK, who))).load(common)
        answers[who] = run({"steps": TINY.steps})
        assert run({"steps": TINY.steps})["loss"] == answers[who]["loss"], "every round begins anew"
    for answer in answers.values():
        assert answer["count"] == {"run": TINY.steps * TINY.rows * TINY.length}
        assert answer["loss"] == pytest.approx(answers[OURS]["loss"], abs=2e-3 if dtype == "float32" else 2e-2)
    shares = answers[OURS]["shares"]
    assert shares.keys() == {"input", "logging", "evaluation", "checkpoints", "best checkpoint"}
    assert all(share >= 0 for share in shares.values()) and sum(shares.values()) < 1
