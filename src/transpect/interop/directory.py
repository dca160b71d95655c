"""Directories that are replaced as a whole: a reader finds the old one or the new one, never a half-written one.

While ``run/best`` is replaced, these stand beside it::

    .best.tmp-…   being written; worth nothing
    .best.new     complete, about to take the name
    .best.old     what had the name until a moment ago

`settled` finds the complete one if the writer died between two renames.
"""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from transpect.base.errors import CheckpointError

__all__ = ["atomic_directory", "atomic_file", "check_replaceable", "settled"]


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Give the name of a file to write; when the block ends without an error, it takes the name ``path``.

    It is called as ``path`` is and stands in a hidden directory beside it; what else is written there (numbers that a
    format keeps in a second file) takes its place beside ``path`` first.

    Raises:
        CheckpointError: it can't be written, or ``path`` is a directory.
    """
    target = _real(path)
    if target.is_dir():
        raise CheckpointError("a file is to be written, and this is a directory", value=target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _clear_away(target)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.tmp-", dir=target.parent))
    except OSError as error:
        raise CheckpointError(f"can't write here: {error}", value=target) from error
    try:
        yield staging / target.name
        _sync_tree(staging)
        beside = sorted(staging.iterdir(), key=lambda file: file.name == target.name)
        for file in beside:
            file.chmod(0o666 & ~_umask())
            file.replace(target.parent / file.name)
        _sync(target.parent)
    except OSError as error:
        raise CheckpointError(
            f"can't write the checkpoint: {error}", value=target, remedy="Make room there."
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def atomic_directory(
    path: str | Path, *, keep: Callable[[str], bool] = lambda name: False, former: Path | None = None
) -> Iterator[Path]:
    """Give an empty directory to fill; when the block ends without an error, it takes the name ``path``.

    Everything is on the disk (fsync) before the name changes. After an error nothing remains of the attempt, and what
    stood at ``path`` stands there still. One writer at a time: the next one clears away what a dead one left.

    Args:
        path: the directory to make or to replace.
        keep: which entries (by name) of the directory that is replaced also belong to the new one, unless it has an
            entry of that name itself. They are hard-linked where the file system can, otherwise copied.
        former: the directory that what is replaced is kept as, in the place of what was replaced before it; None keeps
            nothing.

    Raises:
        CheckpointError: it can't be written, or a directory can't take the name ``path`` (see `check_replaceable`).
    """
    target = check_replaceable(path)
    fresh, old = _beside(target, "new"), _beside(target, "old")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _finish_interrupted(target, former)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.tmp-", dir=target.parent))
    except OSError as error:
        raise CheckpointError(f"can't write here: {error}", value=target) from error
    try:
        yield staging
        if target.is_dir():
            _carry_over(target, staging, keep)
        staging.chmod(0o777 & ~_umask())
        _sync_tree(staging)
        staging.rename(fresh)
        _give_name(fresh, target, old)
        _retire(old, former)
    except (OSError, SafetensorError) as error:  # which says of a full disk so too
        shutil.rmtree(fresh, ignore_errors=True)
        raise CheckpointError(
            f"can't write the checkpoint: {error}", value=target, remedy="Make room there, or choose another directory."
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)  # after the rename there is none


def check_replaceable(path: str | Path) -> Path:
    """The real path of a directory that can be made, or can be replaced by another one, for all that can be known.

    Raises:
        CheckpointError: it is a file, a link that leads back to itself, the root of a file system, or a directory that
            this process works in.
    """
    target = _real(path)
    if target.is_symlink():  # links are followed already, unless they never end
        raise CheckpointError("this link leads back to itself", value=target, remedy="Remove it, or choose a new name.")
    if target.exists() and not target.is_dir():
        raise CheckpointError(
            "a checkpoint is a directory, and this is a file", value=target, remedy="Choose a new name."
        )
    if os.path.ismount(target):
        raise CheckpointError(
            "a directory is replaced as a whole, and a mount point can't be",
            value=target,
            remedy=f"Name a directory below it, e.g. {target / 'model'}.",
        )
    if target.is_dir() and _working_directory().is_relative_to(target):
        raise CheckpointError(
            "a directory is replaced as a whole, and the working directory lies in this one",
            value=target,
            remedy="Name a directory below it, or go out of it first.",
        )
    return target


def settled(path: str | Path) -> Path:
    """``path``, or the complete directory that was about to take or had just lost its name when its writer died."""
    target = Path(path)
    if target.exists():
        return target
    beside = Path(os.path.realpath(path))
    return next((place for place in (_beside(beside, "new"), _beside(beside, "old")) if place.is_dir()), target)


def _give_name(fresh: Path, target: Path, old: Path) -> None:
    """Let the new directory take the name; where that fails, the one that had it has it again."""
    try:
        if target.is_dir():
            target.rename(old)
        fresh.rename(target)
        _sync(target.parent)
    except OSError:
        if not fresh.is_dir():
            target.rename(fresh)
        if old.is_dir():
            old.rename(target)
        raise


def _retire(old: Path, former: Path | None) -> None:
    """What was replaced goes, or is kept in the place of what was replaced before it."""
    if former is None or not old.is_dir():
        shutil.rmtree(old, ignore_errors=True)
        return
    if former.is_dir():
        aside = former.with_name(f".{former.name}.tmp-old")  # for which a full disk has room
        former.rename(aside)
        old.rename(former)
        shutil.rmtree(aside, ignore_errors=True)
    else:
        old.rename(former)


def _finish_interrupted(target: Path, former: Path | None) -> None:
    """Do what a writer that died between two renames had left to do, and clear away what it left."""
    found = settled(target)
    if found != target and found.is_dir():
        found.rename(target)
    if _beside(target, "new").is_dir():
        shutil.rmtree(_beside(target, "new"))
    _retire(_beside(target, "old"), former)
    _clear_away(target)
    if former is not None:
        _clear_away(former)


def _clear_away(target: Path) -> None:
    """What writers that died left of their attempts."""
    for leftover in target.parent.glob(f".{glob.escape(target.name)}.tmp-*"):
        if leftover.is_dir():
            shutil.rmtree(leftover)


def _real(path: str | Path) -> Path:
    try:
        return Path(os.path.realpath(path))
    except ValueError as error:  # a NUL, or half of a surrogate pair
        raise CheckpointError(f"no file can have this name: {error}", value=str(path)) from error


def _working_directory() -> Path:
    try:
        return Path(os.path.realpath(os.getcwd()))
    except FileNotFoundError:  # somebody removed it: then nothing is above it
        return Path(os.devnull)


def _beside(target: Path, stage: str) -> Path:
    return target.with_name(f".{target.name}.{stage}")


def _carry_over(old: Path, new: Path, keep: Callable[[str], bool]) -> None:
    for entry in old.iterdir():
        if not keep(entry.name) or (new / entry.name).exists():
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.copytree(entry, new / entry.name, symlinks=True, copy_function=_link)
        else:
            _link(str(entry), str(new / entry.name))


def _link(source: str, destination: str) -> str:
    try:
        os.link(source, destination, follow_symlinks=False)
    except OSError:  # a file system without hard links
        shutil.copy2(source, destination, follow_symlinks=False)
    return destination


def _sync_tree(folder: Path) -> None:
    for root, _, files in os.walk(folder):
        for name in files:
            file = Path(root, name)
            if not file.is_symlink():
                _sync(file)
        _sync(Path(root))


def _sync(path: Path) -> None:
    if path.is_dir() and os.name == "nt":  # a directory can't be opened there, and renames are journalled
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
