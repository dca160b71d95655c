"""Environments of the peers: the current one, one that a person names, or one that is made here on first demand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from transpect.base.codec import did_you_mean
from transpect.base.errors import ConfigError
from transpect.bench.worker import OURS, PeerError, script_of

__all__ = ["PEERS", "check_peers", "home", "interpreter", "named"]


@dataclass(frozen=True)
class Peer:
    """How a peer comes to an environment.

    Attributes:
        install: what ``pip install`` is told in an environment of its own; nothing: it lives in the current one.
        environ: for pip, e.g. flags for a compiler.
        module: what the current environment must have.
        borrows: let its own environment see the packages of the current one too, for those that stand on torch.
    """

    install: tuple[str, ...] = ()
    environ: Mapping[str, str] | None = None
    module: str = "torch"
    borrows: bool = False


PEERS: Final[Mapping[str, Peer]] = {
    # from source, so that its compiler sees this very CPU, and not as it was compiled before for another
    "llama.cpp": Peer(
        ("--no-cache-dir", "--no-binary", "llama-cpp-python", "llama-cpp-python>=0.3.16"),
        {"CMAKE_ARGS": "-DGGML_NATIVE=ON"},
    ),
    "ctranslate2": Peer(("ctranslate2>=4.6",)),
    "transformers": Peer(module="transformers"),
    # with their requirements they would bring another torch
    "litgpt": Peer(
        ("--no-deps", "litgpt>=0.5.12", "lightning", "lightning-utilities", "torchmetrics", "psutil"), borrows=True
    ),
    "nanogpt-style": Peer(),
}
DONE: Final = "complete"
"""A file in an environment in which everything is installed."""


def home() -> Path:
    """Where environments and the files that are made for peers are kept: ``transpect`` in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "transpect"


def check_peers(task: str, against: Sequence[str], scripts: str | None = None) -> None:
    """Refuse peers that a task can't be compared with.

    Args:
        task: its name on the command line.
        against: names.
        scripts: of which task its programs' scripts are; None is its own.

    Raises:
        ConfigError: a name that is none, or one for which there is no script for the task.
    """
    able = [name for name in PEERS if script_of(scripts or task, name).is_file()]
    for name in against:
        if name not in able:
            remedy = f"{did_you_mean(name, able)} {task} is measured against {', '.join(able) or 'nobody'}.".strip()
            raise ConfigError(f"no such peer for `bench {task}`", value=name, remedy=remedy)


def named(texts: Sequence[str]) -> dict[str, Path]:
    """``NAME=PATH`` of ``--peer-python``.

    Raises:
        ConfigError: another form, an unknown name, or no file.
    """
    found = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or name not in PEERS or not Path(path).is_file():
            raise ConfigError(
                "--peer-python must be NAME=PATH, of a peer and an interpreter",
                value=text,
                remedy=f"Peers are {', '.join(PEERS)}.",
            )
        found[name] = Path(path)
    return found


def interpreter(who: str, given: Mapping[str, Path], see: Callable[[str], None] = lambda line: None) -> Path:
    """The interpreter of a program's environment, which is made where there is none yet.

    Args:
        who: ours, or a row of `PEERS`.
        given: interpreters that a person has named.
        see: is told what takes minutes.

    Raises:
        PeerError: what it needs is not installed, or can't be.
    """
    if who in given:
        return given[who]
    if who == OURS:
        return Path(sys.executable)
    peer = PEERS[who]
    if not peer.install:
        if find_spec(peer.module) is None:
            raise PeerError(f"{who} is not installed: pip install {peer.module}")
        return Path(sys.executable)
    folder = home() / "peers" / who
    python = folder / "bin" / "python"
    if not (folder / DONE).is_file():
        see(f"making an environment for {who}: {folder}")
        _make(who, peer, folder, python)
    return python


def _make(who: str, peer: Peer, folder: Path, python: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # half an environment of an earlier attempt
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", *peer.install]
    for command in ([sys.executable, "-m", "venv", str(folder)], pip):
        environ = {**os.environ, **(peer.environ or {})}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["it said nothing"]
            raise PeerError(f"{who} can't be installed: {said[0][:200]}", remedy="Name one by --peer-python.")
    if peer.borrows:
        (packages,) = folder.glob("lib/python*/site-packages")
        (packages / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    (folder / DONE).touch()
