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

__all__ = ["PEERS", "check_peers", "home", "interpreter", "named", "server_of"]


@dataclass(frozen=True)
class Peer:
    """How a peer comes to an environment.

    Attributes:
        install: what ``pip install`` is told in an environment of its own; nothing: it lives in the current one.
        environ: for pip, e.g. flags for a compiler.
        module: what the current environment must have.
        borrows: let its own environment see the packages of the current one too, for those that stand on torch.
        program: what it is compiled to, where it is no module: see `server_of`.
    """

    install: tuple[str, ...] = ()
    environ: Mapping[str, str] | None = None
    module: str = "torch"
    borrows: bool = False
    program: str = ""


LLAMA: Final = "llama-cpp-python>=0.3.16"
"""Its source has that of llama.cpp's own server in it."""
PEERS: Final[Mapping[str, Peer]] = {
    # from source, so that its compiler sees this very CPU, and not as it was compiled before for another
    "llama.cpp": Peer(
        ("--no-cache-dir", "--no-binary", "llama-cpp-python", LLAMA),
        {"CMAKE_ARGS": "-DGGML_NATIVE=ON"},
    ),
    "ctranslate2": Peer(("ctranslate2>=4.6",)),
    "transformers": Peer(module="transformers"),
    # with their requirements they would bring another torch
    "litgpt": Peer(
        ("--no-deps", "litgpt>=0.5.12", "lightning", "lightning-utilities", "torchmetrics", "psutil"), borrows=True
    ),
    "nanogpt-style": Peer(),
    "llama-server": Peer(("cmake", "ninja"), program="llama-server"),
}

FOR_TASK: Final[Mapping[tuple[str, str], Peer]] = {
    ("serve", "transformers"): Peer(("fastapi>=0.115", "pydantic>=2", "uvicorn>=0.34"), borrows=True),
}
"""By task and peer, where a task needs more than the peer itself: here what the extra `serving` names."""

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


def interpreter(
    who: str, given: Mapping[str, Path], see: Callable[[str], None] = lambda line: None, task: str = ""
) -> Path:
    """The interpreter of a program's environment, which is made where there is none yet.

    Args:
        who: ours, or a row of `PEERS`.
        given: interpreters that a person has named.
        see: is told what takes minutes.
        task: what is to be done, see `FOR_TASK`.

    Raises:
        PeerError: what it needs is not installed, or can't be.
    """
    if who == OURS or PEERS[who].program:
        return Path(sys.executable)
    if who in given:
        return given[who]
    if not PEERS[who].install and find_spec(PEERS[who].module) is None:
        raise PeerError(f"{who} is not installed: pip install {PEERS[who].module}")
    peer = FOR_TASK.get((task, who), PEERS[who])
    if not peer.install:
        return Path(sys.executable)
    folder = home() / "peers" / (f"{who}-{task}" if (task, who) in FOR_TASK else who)
    python = folder / "bin" / "python"
    if not (folder / DONE).is_file():
        see(f"making an environment for {who}: {folder}")
        _make(who, peer, folder, python)
    return python


def server_of(who: str, given: Mapping[str, Path], see: Callable[[str], None] = lambda line: None) -> Path:
    """A peer's program, which is compiled from llama-cpp-python's source where there is none yet.

    Args:
        who: a row of `PEERS` with a program.
        given, see: as for `interpreter`.

    Raises:
        PeerError: it can't be compiled.
    """
    if who in given:
        return given[who]
    folder, peer = home() / "peers" / who, PEERS[who]
    if not (folder / DONE).is_file():
        see(f"compiling {who}, which takes minutes: {folder}")
        _make(who, peer, folder, folder / "bin" / "python")
        (folder / DONE).unlink()
        tools = {**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        ask = ["download", "--no-deps", "--no-binary", "llama-cpp-python", "--dest", str(folder / "source"), LLAMA]
        _run(who, [str(folder / "bin" / "python"), "-m", "pip", *ask], tools)
        (packed,) = (folder / "source").glob("*.tar.gz")
        shutil.unpack_archive(packed, folder / "source", filter="data")
        (source,) = (folder / "source").glob("*/vendor/llama.cpp")
        build, options = (
            str(folder / "build"),
            ("BUILD_TESTS", "BUILD_EXAMPLES", "BUILD_UI", "USE_PREBUILT_UI", "OPENSSL"),
        )
        off = [f"-DLLAMA_{name}=OFF" for name in options]
        kind = ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DBUILD_SHARED_LIBS=OFF"]
        _run(who, ["cmake", "-S", str(source), "-B", build, *kind, *off], tools)
        _run(who, ["cmake", "--build", build, "--target", peer.program], tools)
        (folder / DONE).touch()
    return folder / "build" / "bin" / peer.program


def _make(who: str, peer: Peer, folder: Path, python: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # half an environment of an earlier attempt
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", *peer.install]
    for command in ([sys.executable, "-m", "venv", str(folder)], pip):
        _run(who, command, {**os.environ, **(peer.environ or {})})
    if peer.borrows:
        (packages,) = folder.glob("lib/python*/site-packages")
        (packages / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    (folder / DONE).touch()


def _run(who: str, command: Sequence[str], environ: Mapping[str, str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["it said nothing"]
        raise PeerError(f"{who} can't be installed: {said[0][:200]}", remedy="Name one by --peer-python.")
