"""Work in forked processes, alone or as `torchrun` starts them: a kill is a kill, and nothing is imported twice."""

import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence


def started(size: int, work: Callable[[], int | None]) -> list[int]:
    """The ids of processes that do something, as `torchrun` would start them; each ends with what ``work`` gives."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(size):
        child = os.fork()
        if not child:
            place = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            os.environ.update({name: str(value) for name, value in place.items()})
            status = 1
            try:
                status = work() or 0
            except BaseException:  # what whoever waits is told, whatever it is
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        children.append(child)
    return children


def ended(children: Sequence[int], seconds: float = 600.0) -> list[int]:
    """The exit statuses of processes, none of which may hang; −9 is SIGKILL."""
    until, found = time.monotonic() + seconds, dict[int, int]()
    while len(found) < len(children):
        for child in set(children) - found.keys():
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                found[child] = os.waitstatus_to_exitcode(status)
        assert time.monotonic() < until, "a process hangs"
        time.sleep(0.001)
    return [found[child] for child in children]


def forked(work: Callable[[], int | None]) -> int:
    """Do something in a process of its own; its exit status."""
    return ended(started(1, work))[0]
