"""``make demo`` does what the README says of it: 鱼 comes first, and the loss is near the floor of fable."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

MAX_GAP = 0.05  # nats per token above the loss of the world's own probabilities


@pytest.mark.slow
def test_the_demo_ends_with_fish_and_near_the_floor(tmp_path: Path, root: Path) -> None:
    environ = os.environ | {"PYTHONPATH": str(root / "src"), "COLUMNS": "120"}
    environ.pop("OMP_NUM_THREADS", None)  # alone on the machine, as a newcomer runs it

    def python(code: str) -> str:
        command = [sys.executable, "-c", code]
        result = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        return result.stdout

    page = python("import sys; from transpect.cli.main import main; sys.exit(main(['demo']))")
    told = re.search(r"the model is (-?\d+\.\d+) above", page)
    assert told is not None, page
    assert float(told[1]) <= MAX_GAP
    assert python("import transpect; print(transpect.load('runs/demo').next_token('小猫爱吃', 1)[0][0])") == "鱼\n"
    assert (tmp_path / "runs" / "demo" / "best" / "model.safetensors").is_file()
