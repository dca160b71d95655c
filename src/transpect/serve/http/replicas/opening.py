"""From a configuration to a listener and its replicas."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from transpect.base.codec import dump_yaml
from transpect.serve.http.keys import VARIABLE
from transpect.serve.http.logs import Log
from transpect.serve.http.models import Models
from transpect.serve.http.opening import ServerConfig, check_keys, keys_of
from transpect.serve.http.replicas.replica import Replica
from transpect.serve.http.replicas.server import FrontServer, front_server
from transpect.serve.http.service import Service
from transpect.serve.http.tracing import tracing_of

__all__ = ["open_front"]

FRONT = "transpect-front"
"""The name of the key by which the listener asks replicas how they are."""
THREADS = "OMP_NUM_THREADS"


def open_front(
    config: ServerConfig,
    read: Callable[[], ServerConfig],
    environ: Mapping[str, str] = os.environ,
    **options: Any,
) -> FrontServer:
    """A server before ``config.replicas`` processes; each has its share of the cores, and the memory of its own engine.

    Args:
        config: of all.
        read: reads it again, at SIGHUP.
        environ: of this process.
        options: of `front_server`.

    Raises:
        ConfigError: as `open_service`.
    """
    keys = keys_of(config, environ)
    check_keys(config, keys)
    folder = tempfile.TemporaryDirectory(prefix="transpect-")  # ends with the server
    file, log = Path(folder.name) / "serve.yaml", Log()
    file.write_text(dump_yaml(config), encoding="utf-8")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    more = {} if THREADS in environ else {THREADS: str(max(1, cores // config.replicas))}
    secret = ""
    if len(keys):
        secret = secrets.token_urlsafe(32)
        known = environ.get(VARIABLE, "")
        more[VARIABLE] = f"{known},{FRONT}:{secret}" if known else f"{FRONT}:{secret}"
    command = [sys.executable, "-m", "transpect.serve.http.replicas.child", str(file)]
    replicas = [Replica(str(n), command, more, log.tell) for n in range(config.replicas)]
    service = Service(Models(()), limits=config.limits, keys=keys, log=log, tracing=tracing_of(environ))

    async def reload() -> None:
        try:
            changed = await asyncio.to_thread(read)
            keys = await asyncio.to_thread(keys_of, changed, environ)
            check_keys(replace(changed, host=config.host), keys)
            Path(folder.name, file.name).write_text(dump_yaml(changed), encoding="utf-8")
            service.keys = keys
        except Exception as error:
            log.tell("not reloaded", level="error", error=str(error))
            return
        for own in replicas:
            own.signal(signal.SIGHUP)

    return front_server(service, replicas, secret, host=config.host, port=config.port, reload=reload, **options)
