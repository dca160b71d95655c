"""The import contracts of pyproject.toml catch what they are for: each is shown a planted fault.

``make check`` runs them on the sources themselves.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = [  # file, a line planted in it, the contract that must break
    ("base/errors.py", "import transpect.core", "Rooms import downward"),
    ("base/errors.py", "import torch", "What works without torch"),
    ("text/planted.py", "import transpect.core", "Rooms import downward"),
    ("text/planted.py", "def f():\n    import torch", "What works without torch"),
    ("data/fable/planted.py", "import torch", "What works without torch"),
    ("cache/block_pool.py", "import torch", "What works without torch"),
    ("serve/scheduler.py", "import torch", "What works without torch"),
    ("core/planted.py", "import transpect.text", "Rooms import downward"),
    ("core/planted.py", "import transpect.cache", "Rooms import downward"),
    ("core/planted.py", "import safetensors", "core knows torch"),
    ("decode/planted.py", "import transpect.data", "Rooms import downward"),
    ("train/planted.py", "import transpect.doctor", "Rooms import downward"),
    ("train/planted.py", "import transformers", "Only interop imports transformers"),
    ("train/planted.py", "import transpect.compare", "Rooms import downward"),
    ("train/planted.py", "import typer", "Only cli imports typer"),
    ("newroom/planted.py", "import torch", "Rooms import downward"),
]
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def lint(folder: Path, root: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", LINT, "--no-cache", "--config", str(root / "pyproject.toml")],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        check=False,
    )


def plant(package: Path, file: str, line: str) -> None:
    path = package / file
    for folder in reversed(path.relative_to(package).parents):
        (package / folder).mkdir(exist_ok=True)
        (package / folder / "__init__.py").touch()
    path.write_text(f"{path.read_text(encoding='utf-8') if path.exists() else ''}\n{line}\n", encoding="utf-8")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of empty rooms that keeps every contract."""
    for room in ("base", "core", "text", "cache", "decode", "data", "train", "doctor", "compare"):
        plant(tmp_path / "transpect", f"{room}/__init__.py", "")
    plant(tmp_path / "transpect", "base/devices.py", "def f():\n    import torch")
    return tmp_path / "transpect"


def test_without_a_fault_all_are_kept(package: Path, root: Path) -> None:
    result = lint(package.parent, root)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(("file", "line", "contract"), FAULTS, ids=lambda x: x.split("\n")[0])
def test_a_planted_fault_breaks_its_contract(file: str, line: str, contract: str, package: Path, root: Path) -> None:
    plant(package, file, line)
    result = lint(package.parent, root)
    assert result.returncode == 1, result.stdout + result.stderr
    broken = [text for text in result.stdout.splitlines() if "BROKEN" in text]
    assert any(text.startswith(contract) for text in broken), result.stdout
