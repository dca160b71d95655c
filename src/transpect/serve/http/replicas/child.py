"""The process of a replica: a server on a free port of the loopback interface, until the one that asks it has gone.

python -m transpect.serve.http.replicas.child FILE
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from threading import Thread

from transpect.base.codec import load_config
from transpect.base.errors import TranspectError, one_line
from transpect.serve.http.opening import ServerConfig, open_service, reloading
from transpect.serve.http.server import Server


def main(file: str) -> None:
    """Serve what a configuration says."""

    def read() -> ServerConfig:
        return replace(load_config(ServerConfig, file), host="127.0.0.1", port=0, replicas=1)

    service = open_service(read())
    for own in service.models.all:
        for note in own.engine.notes:
            sys.stderr.write(f"{own.id}: {note}\n")
    Thread(target=_end_with_parent, daemon=True).start()

    def tell(address: str) -> None:
        sys.stdout.write(json.dumps({"port": int(address.rpartition(":")[2])}) + "\n")
        sys.stdout.flush()

    Server(service, port=0, reload=reloading(service, read), started=tell).run()


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1024):  # a buffer's lock that a thread holds at the end would abort the process
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except TranspectError as problem:
        sys.exit(f"error: {one_line(problem)}")
