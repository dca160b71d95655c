"""A directory is replaced as a whole: whenever the writer dies, a reader finds a complete one."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from transpect.base.errors import CheckpointError
from transpect.interop import atomic_directory, settled

FILES = ("a", "b", "c")


def write(path: Path, text: str) -> None:
    with atomic_directory(path) as staging:
        for name in FILES:
            (staging / name).write_text(text)


def read(path: Path) -> str:
    """What all files say; a torn directory fails here."""
    folder = settled(path)
    texts = {name: (folder / name).read_text() for name in FILES}
    assert len(set(texts.values())) == 1, texts
    return texts["a"]


STEPS = [
    (os, "fsync"),
    (os, "rename"),
    (Path, "rename"),
    (Path, "chmod"),
    (shutil, "rmtree"),
    (os, "unlink"),
    (os, "link"),
]


@contextmanager
def watching(monkeypatch: pytest.MonkeyPatch, look: Callable[[str], None]) -> Iterator[None]:
    """Call `look` before every step that changes what is on the disk."""
    with monkeypatch.context() as patch:
        for owner, name in STEPS:
            original = getattr(owner, name)

            def stepped(
                *args: object, _name: str = name, _original: Callable[..., object] = original, **more: object
            ) -> object:
                look(_name)
                return _original(*args, **more)

            patch.setattr(owner, name, stepped)
        yield


def test_at_every_step_a_reader_finds_a_complete_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, seen = tmp_path / "best", []
    write(target, "old")

    def look(step: str) -> None:
        seen.append((step, read(target)))

    with watching(monkeypatch, look):
        write(target, "new")
    texts = [text for _, text in seen]
    assert texts == sorted(texts, reverse=True), "once new, never old again"
    assert {"old", "new"} <= set(texts)
    assert {step for step, _ in seen} >= {"fsync", "rename", "rmtree"}


def test_after_a_death_at_any_step_the_next_writer_and_reader_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each copy of the disk as it was before a step is what a crash at that step leaves."""
    disk, crashes = tmp_path / "disk", tmp_path / "crashes"
    write(disk / "best", "old")

    def look(step: str) -> None:
        shutil.copytree(disk, crashes / str(len(list(crashes.iterdir()))), symlinks=True)

    crashes.mkdir()
    with watching(monkeypatch, look):
        write(disk / "best", "new")
    states = sorted(crashes.iterdir())
    assert len(states) > 6
    for state in states:
        assert read(state / "best") in ("old", "new")
        write(state / "best", "newest")
        assert read(state / "best") == "newest"
        assert [entry.name for entry in state.iterdir()] == ["best"], "what a dead writer left is cleared away"


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_an_error_leaves_what_was_there(tmp_path: Path, exists: bool, error: BaseException) -> None:
    target = tmp_path / "best"
    if exists:
        write(target, "old")
    expected = CheckpointError if isinstance(error, OSError) else type(error)

    def attempt() -> None:
        with atomic_directory(target) as staging:
            (staging / "a").write_text("half")
            raise error

    with pytest.raises(expected):
        attempt()
    assert [entry.name for entry in tmp_path.iterdir()] == (["best"] if exists else [])
    if exists:
        assert read(target) == "old"


def test_chosen_entries_go_over_to_the_new_directory(tmp_path: Path) -> None:
    target = tmp_path / "best"
    write(target, "old")
    (target / "deep" / "er").mkdir(parents=True)
    (target / "deep" / "er" / "file").write_text("kept")
    (target / "link").symlink_to("deep")
    with atomic_directory(target, keep=lambda name: name != "b") as staging:
        (staging / "a").write_text("new")
    assert (target / "a").read_text() == "new", "what is written wins over what is kept"
    assert not (target / "b").exists()
    assert (target / "c").read_text() == "old"
    assert (target / "link" / "er" / "file").read_text() == "kept"


def test_a_link_to_a_directory_stays_a_link(tmp_path: Path) -> None:
    write(tmp_path / "real", "old")
    (tmp_path / "best").symlink_to("real")
    write(tmp_path / "best", "new")
    assert (tmp_path / "best").is_symlink()
    assert read(tmp_path / "real") == "new"


def test_permissions_are_those_of_a_new_directory(tmp_path: Path) -> None:
    write(tmp_path / "best", "x")
    (tmp_path / "plain").mkdir()
    assert (tmp_path / "best").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_neighbours_of_a_similar_name_are_left_alone(tmp_path: Path) -> None:
    for name in (".best.1.new", ".best.1.old", ".best.1.tmp-x", ".bes.new"):
        (tmp_path / name).mkdir()
    write(tmp_path / "best", "x")
    assert len(list(tmp_path.iterdir())) == 5


def test_parents_are_made_and_a_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "one" / "two", "x")
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match="this is a file"):
        write(tmp_path / "file", "x")
    with pytest.raises(CheckpointError, match="can't write here"):
        write(tmp_path / "file" / "below", "x")


def whole(folder: Path) -> list[str]:
    """All names below a directory."""
    return sorted(str(entry.relative_to(folder)) for entry in folder.rglob("*"))


@pytest.mark.parametrize("exists", [True, False])
def test_an_error_of_the_disk_at_any_step_leaves_what_was_there(
    tmp_path: Path, exists: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of the last ones, where names change: a mount point that the system does not show as one is busy there."""
    steps: list[str] = []
    with watching(monkeypatch, steps.append):
        write(tmp_path / "trial" / "best", "old")
        del steps[: len(steps) if exists else 0]
        if exists:
            write(tmp_path / "trial" / "best", "new")
    last = len(steps) - 1 - steps[::-1].index("fsync")  # after it only what is of no use any more is removed
    for failing in range(last + 1):
        room = tmp_path / str(failing)
        room.mkdir()
        if exists:
            write(room / "best", "old")
        left = [failing]

        def look(step: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == -1:
                raise OSError(16, "Device or resource busy")

        before = whole(room)
        with watching(monkeypatch, look), pytest.raises(CheckpointError, match="busy"):
            write(room / "best", "new")
        assert whole(room) == before, (failing, steps[failing])
        assert not exists or read(room / "best") == "old"


def test_what_no_directory_can_take_the_place_of_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here" / "deep").mkdir(parents=True)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "mount").mkdir()
    (tmp_path / "to-mount").symlink_to("mount")
    (tmp_path / "beside").mkdir()
    monkeypatch.chdir(tmp_path / "here" / "deep")
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == tmp_path / "mount")
    before = whole(tmp_path)
    for place, rule in (
        (tmp_path / "mount", "mount point"),
        (tmp_path / "to-mount", "mount point"),
        (tmp_path / "loop", "leads back to itself"),
        (Path(), "working directory"),
        (Path(".."), "working directory"),
        (tmp_path / "here", "working directory"),
        (Path("a\0b"), "no file can have this name"),
        (Path("a\ud800b"), "no file can have this name"),
    ):
        with pytest.raises(CheckpointError, match=rule):
            write(place, "x")
        assert whole(tmp_path) == before
    write(tmp_path / "beside", "x")
    write(Path("new"), "x")


def test_a_working_directory_that_was_removed_stands_in_no_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for text in ("old", "new"):
        write(tmp_path / "best", text)
