"""What needs no torch imports none: ``import transpect``, ``transpect --help``, and the rooms that promise it.

A fresh interpreter says what it loaded, so nothing here depends on the speed of a machine.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import transpect

HEAVY = ("torch", "transformers", "tokenizers", "tensorboard")
LIGHT_ROOMS = ("base", "text", "data/fable", "data/sources")
PACKAGE = Path(transpect.__file__).parent


def loaded_after(code: str) -> set[str]:
    """The heavy packages that a fresh interpreter has imported after running `code`."""
    script = f"import sys\n{code}\nsys.stderr.write('loaded ' + ' '.join(m for m in {HEAVY} if m in sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return set(result.stderr.rsplit("loaded ", 1)[1].split())


def test_import_transpect_loads_nothing_heavy() -> None:
    assert loaded_after("import transpect") == set()


@pytest.mark.parametrize(
    "arguments", [["--help"], ["train", "--help"], ["generate", "--help"], ["model", "--help"]], ids=" ".join
)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        f"sys.argv = ['transpect', *{arguments}]\n"
        "from transpect.cli.main import main\n"
        "try:\n    code = main()\n"
        "except SystemExit as stop:\n    code = stop.code\n"
        "assert not code, code"
    )
    assert loaded_after(code) == set()


@pytest.mark.parametrize("room", LIGHT_ROOMS)
def test_a_room_that_needs_no_torch_loads_none(room: str) -> None:
    files = [file.relative_to(PACKAGE.parent).with_suffix("") for file in sorted((PACKAGE / room).rglob("*.py"))]
    modules = [".".join(file.parts).removesuffix(".__init__") for file in files]
    assert modules
    assert "torch" not in loaded_after("\n".join(f"import {name}" for name in modules))
