"""Every file that git tracks: finished, and at home on any machine."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SELF = "tests/architecture/test_tracked_files.py"


def tracked() -> list[tuple[str, str]]:
    """(name, text) of each text file that git tracks."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    files = []
    for name in filter(None, listing.stdout.split("\0")):
        try:
            files.append((name, (ROOT / name).read_text(encoding="utf-8")))
        except (UnicodeDecodeError, FileNotFoundError):
            continue
    assert files
    return files


# Scratch folders stand in tests as examples of hostile names, and nowhere else.
MACHINE_PATH = re.compile(r"(?<![\w./~$}-])/(?:work|root|home|Users)/\w")
SCRATCH_PATH = re.compile(r"(?<![\w./~$}-])/(?:tmp|mnt|opt)/\w")
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")


@pytest.mark.parametrize(
    ("pattern", "exempt"),
    [(MACHINE_PATH, SELF), (SCRATCH_PATH, "tests/"), (UNFINISHED, SELF)],
    ids=["path of one machine", "scratch path", "unfinished"],
)
def test_no_tracked_file_holds_a(pattern: "re.Pattern[str]", exempt: str) -> None:
    wrong = [
        f"{name}:{number}: {line.strip()}"
        for name, text in tracked()
        if not name.startswith(exempt)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]
    assert not wrong, "\n".join(wrong)


def test_a_machine_path_is_recognised() -> None:
    assert all(MACHINE_PATH.search(text) for text in ("/home/me/x", "'/home/x'", "see /work/main", "file:/root/a"))
    assert not any(MACHINE_PATH.search(text) for text in ("../shared/data", "src/work/x", "/sys/fs", "/path/to/x"))
