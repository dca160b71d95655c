"""What holds for every test: one thread each, as many workers as cores, and where the shared data is."""

import os
from pathlib import Path

import pytest

# Before anything imports torch. Workers already fill the cores, and a fixed number of threads keeps sums bit for bit.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["TRANSPECT_LANG"] = "en"

from transpect.base.devices import allowed_cores

ROOT = Path(__file__).resolve().parents[1]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """``-n auto``: the cores that a quota leaves us, not those of the machine; each worker holds torch in memory."""
    return min(allowed_cores(), 8)


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The data that tests borrow and the repository does not hold: ``$TRANSPECT_SHARED``, or ``../shared``."""
    folder = Path(os.environ.get("TRANSPECT_SHARED") or ROOT.parent / "shared")
    if not (folder / "data").is_dir():
        pytest.skip(f"no shared data in {folder}; set TRANSPECT_SHARED to a folder that has data/")
    return folder
