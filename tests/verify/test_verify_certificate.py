"""A certificate is written whole, or what was there stays."""

from pathlib import Path

import pytest

from transpect.base.errors import CheckpointError
from transpect.verify import Certificate, write_certificate

CERTIFICATE = Certificate("m", "decoder", 1, "float32", "cpu", 0, (), {}, (), {}, "2026-01-01T00:00:00+00:00")


def test_a_full_disk_leaves_what_was_there_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "certificate.json"
    file.write_text("before")
    right = Path.write_text

    def full(self: Path, text: str, **options: str) -> int:
        right(self, text[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(CheckpointError, match=r"No space left.*--out FILE"):
        write_certificate(CERTIFICATE, file)
    assert [entry.name for entry in tmp_path.iterdir()] == ["certificate.json"] and file.read_text() == "before"


def test_a_directory_is_not_written_over(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"it is a directory.*--out FILE"):
        write_certificate(CERTIFICATE, tmp_path)
