"""transformers: `transformers serve`, as it comes: one request after another."""

from __future__ import annotations

import importlib.util
import sys
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
    """``directory``, of a model that no token ends; ``dtype``, ``threads``, ``bits``."""
    import torch
    import transformers

    directory = options["directory"]
    module = "transformers.cli.transformers"  # an environment that borrows packages has no program of theirs
    command = [
        sys.executable,
        "-m",
        module,
        "serve",
        directory,
        "--device",
        "cpu",
        "--dtype",
        options["dtype"],
        "--port",
    ]
    clients, environ = _clients(), {"HF_HUB_OFFLINE": "1"}
    port, pid = clients.started(lambda port: [*command, str(port)], options["threads"], environ)
    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    return {"versions": versions, "bits": options["bits"], "pids": [pid]}, lambda asked: clients.load(
        port, directory, asked, {}
    )
