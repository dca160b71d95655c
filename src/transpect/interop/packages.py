"""Weights that an installed package carries. Its list of files is read; its code never runs."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Final

from transpect.base.codec import did_you_mean
from transpect.base.errors import CheckpointError

__all__ = ["locate"]

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_WEIGHTS: Final = re.compile(r"(model|pytorch_model)[\w.-]*\.(safetensors|bin)(\.index\.json)?")


def locate(name: str, *, weights: bool, allow_pickle: bool) -> Path:
    """The checkpoint in the package ``name``; ``NAME/PART`` is one of several.

    Raises:
        CheckpointError: no such package here, or no checkpoint in it, or several.
    """
    package, _, part = name.partition("/")
    if not _NAME.fullmatch(package):
        raise CheckpointError("pip: must be followed by the name of a package", value=f"pip:{name}")
    try:
        distribution = metadata.distribution(package)
    except metadata.PackageNotFoundError as error:
        raise CheckpointError(
            "this package is not installed", value=f"pip:{package}", remedy=f"Install it: pip install {package}."
        ) from error
    files = [PurePosixPath(file) for file in distribution.files or ()]
    found = _checkpoints(files)
    if not found:
        raise CheckpointError(
            "no checkpoint in this package: neither a .gguf file nor a config.json with weights beside it",
            value=f"pip:{package}",
            remedy=_holds(files),
        )
    matching = {label: place for label, place in found.items() if not part or _ends_with(label, part)}
    if len(matching) != 1:
        labels = ", ".join(f"pip:{package}/{label}" for label in _short(list(found)))
        rule = "several checkpoints in this package" if not part else "no such checkpoint in this package"
        guess = f"{did_you_mean(part, _short(list(found)))} " if part and not matching else ""
        raise CheckpointError(rule, value=f"pip:{name}", remedy=f"{guess}Name one of them: {labels}.")
    (place,) = matching.values()
    path = Path(str(distribution.locate_file(str(place))))
    if not path.exists():
        raise CheckpointError(
            "the package lists this file, and it is not there",
            value=path,
            remedy=f"Install it again: pip install --force-reinstall {package}.",
        )
    return path


def _checkpoints(files: list[PurePosixPath]) -> dict[PurePosixPath, PurePosixPath]:
    """Path of each checkpoint in the list of files: directories with a config and weights, and ``.gguf`` files."""
    configs = {file.parent for file in files if file.name in ("config.json", "modules.json")}
    heavy = {file.parent for file in files if _WEIGHTS.fullmatch(file.name)}
    # what modules.json calls its Transformer may lie one directory below it
    nested = {folder for folder in heavy if folder in configs and folder.parent in configs - heavy}
    found = (configs & heavy) - nested | {folder.parent for folder in nested}
    return {place: place for place in sorted([*found, *(file for file in files if file.suffix == ".gguf")])}


def _ends_with(place: PurePosixPath, part: str) -> bool:
    """Whether ``part`` is the end of a path, or the end of it without its suffix."""
    wanted = PurePosixPath(part).parts
    return wanted in (place.parts[-len(wanted) :], place.with_suffix("").parts[-len(wanted) :])


def _short(places: list[PurePosixPath]) -> list[str]:
    """The last names of paths, where these tell them apart."""
    names = [place.name for place in places]
    return names if len(set(names)) == len(names) else [str(place) for place in places]


def _holds(files: list[PurePosixPath]) -> str:
    """What stands in a package instead."""
    own = [file for file in files if ".." not in file.parts and not file.parts[0].endswith(".dist-info")]
    data = [str(file) for file in own if file.suffix not in (".py", ".pyi", ".pyc", ".so", ".pyd")]
    if not data:
        return "It holds code alone." if files else "It does not list its files."
    more = f" and {len(data) - 6} more files" if len(data) > 6 else ""
    return f"It holds {', '.join(data[:6])}{more}."
