"""llama.cpp: its own server, as many slots as there are clients."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _clients() -> Any:
    """The file above this one: a peer has no package that it is of."""
    spec = importlib.util.spec_from_file_location("clients", Path(__file__).parents[1] / "clients.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """``server``, the program; ``file``, ``slots``, ``capacity`` of each, ``threads``, ``bits``."""
    threads, slots = str(options["threads"]), str(options["slots"])
    room = str(options["slots"] * options["capacity"])
    command = [options["server"], "-m", options["file"], "-c", room, "-np", slots, "-t", threads, "-tb", threads]
    told = subprocess.run([options["server"], "--version"], capture_output=True, text=True, check=False)
    clients = _clients()
    port, pid = clients.started(lambda port: [*command, "--host", "127.0.0.1", "--port", str(port)], options["threads"])
    versions = {"llama-server": " ".join((told.stderr or told.stdout).split("\n", 1)[0].split()[-2:])}
    more = {"ignore_eos": True}
    return {"versions": versions, "bits": options["bits"], "pids": [pid]}, lambda asked: clients.load(
        port, "bench", asked, more
    )
