"""A place that can't be written to is refused before anything is read or trained."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transpect.base.errors import ConfigError
from transpect.cli.command import destination
from transpect.train import Recipe, find_rate, loop, train
from transpect.train.find_rate import finding

Make = Callable[..., Recipe]


@pytest.fixture(autouse=True)
def _nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def built(*_: Any) -> None:
        raise AssertionError("it was not refused before")

    monkeypatch.setattr(loop, "build", built)
    monkeypatch.setattr(finding, "build", built)


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is only read; also to the superuser, whom rights do not bind."""
    folder, asked = tmp_path / "locked", os.access
    folder.mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != folder and asked(path, mode))
    return folder


@pytest.mark.parametrize("begin", [train, find_rate])
@pytest.mark.parametrize("resume", ["never", "auto"])
@pytest.mark.parametrize("below", [".", "run", "many/more/runs"])
def test_a_directory_that_is_only_read(
    begin: Callable[..., Any], resume: str, below: str, locked: Path, recipe_of: Make
) -> None:
    with pytest.raises(
        ConfigError, match=rf"can't be written to \(got {locked}\). Choose another than {locked / below}"
    ):
        begin(recipe_of("causal"), locked / below, resume=resume)
    with pytest.raises(ConfigError, match=r"can't be written to"):
        destination(str(locked / below))
    assert not list(locked.iterdir())


@pytest.mark.parametrize("begin", [train, find_rate])
def test_a_file_in_the_place_of_a_directory(begin: Callable[..., Any], tmp_path: Path, recipe_of: Make) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"needs a directory, and this is a file"):
        begin(recipe_of("causal"), tmp_path / "file" / "run")


def test_a_new_place_and_a_file_to_be_replaced_are_taken(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    assert destination(str(tmp_path / "file")).read_text() == "kept"
    assert not destination(str(tmp_path / "a" / "b")).parent.exists()
