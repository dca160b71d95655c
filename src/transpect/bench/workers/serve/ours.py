"""transpect: `transpect serve`."""

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
    """``model``, ``open`` as for `transpect.load`, ``threads``, ``bits``."""
    import torch

    import transpect

    flags = [word for name, value in options["open"].items() for word in (f"--{name}", value)]
    command = [sys.executable, "-m", "transpect", "serve", f"bench={options['model']}", *flags, "--port"]
    clients = _clients()
    port, pid = clients.started(lambda port: [*command, str(port)], options["threads"])
    versions = {"transpect": transpect.__version__, "torch": torch.__version__}
    more = {"ignore_eos": True}
    return {"versions": versions, "bits": options["bits"], "pids": [pid]}, lambda asked: clients.load(
        port, "bench", asked, more
    )
