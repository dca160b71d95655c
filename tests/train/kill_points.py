"""Kills a process at every write, fsync and rename of a save, and looks at what is left to go on from.

``python tests/train/kill_points.py RECIPE FOLDER SIZE [EVERY]`` prints "k of K"; run it with ``kill_points.so`` in
LD_PRELOAD. State 2 is on disk, and state 4 being written, by one process or by several of which each is killed in turn.
"""

import ctypes
import os
import shutil
import signal
import socket
import sys
import time
from importlib import import_module
from pathlib import Path

import torch

from transpect.train import TrainingError, load_recipe, train
from transpect.train.session import Session
from transpect.train.state import read_state

SHIM = ctypes.CDLL(os.environ["LD_PRELOAD"])
RECIPE, FOLDER, SIZE = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
EVERY = int(sys.argv[4]) if len(sys.argv) > 4 else 1
KILLED, NAMED = -signal.SIGKILL, 3


def work(run: Path, steps: int, number: int | None) -> None:
    """Train up to a step; with a number, die at that call of the save of step 4, or with 0 only count the calls."""
    save = Session.save

    def armed_save(session: Session) -> None:
        if number is not None and session.progress.step == 4:
            SHIM.arm(number)
        save(session)

    Session.save = armed_save  # type: ignore[method-assign]
    train(load_recipe(RECIPE), run, resume="auto", should_stop=lambda made: made == steps)
    if number == 0:
        calls = SHIM.calls()
        SHIM.arm(-1)
        (FOLDER / f"calls-{os.environ.get('RANK', '0')}").write_text(str(calls))


def processes(run: Path, steps: int, victim: int, number: int | None, size: int = SIZE) -> list[int]:
    """The exit statuses of all processes; −SIGKILL is one that was killed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(size):
        child = os.fork()
        if not child:
            place = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            os.environ.update({name: str(value) for name, value in place.items()})
            try:
                work(run, steps, number if rank == victim or number == 0 else None)
            except TrainingError:
                os._exit(NAMED)
            except BaseException as error:
                print(f"process {rank}: {error!r}", file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        children.append(child)
    until, found = time.monotonic() + 60, {}
    while len(found) < size:
        for child in set(children) - found.keys():
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                found[child] = os.waitstatus_to_exitcode(status)
        assert time.monotonic() < until, "a process hangs"
        time.sleep(0.002)
    return [found[child] for child in children]


def tensors(run: Path) -> tuple[int, dict[str, torch.Tensor]]:
    state = read_state(run)
    return state.step, state.tensors


def main() -> None:
    torch.set_num_threads(1)
    import_module("transpect.train.parallel.together")
    work(FOLDER / "first", 2, None)  # whatever is imported on the way is then there for all children
    base, whole = FOLDER / "base", FOLDER / "whole"
    assert processes(base, 2, 0, None) == [0] * SIZE
    shutil.copytree(base, whole)
    assert processes(whole, 4, 0, 0) == [0] * SIZE
    right = dict(map(tensors, (base, whole)))
    assert set(right) == {2, 4}
    tried = good = 0
    ends: dict[tuple[int, tuple[str, ...]], Path] = {}
    for victim in range(SIZE):
        calls = int((FOLDER / f"calls-{victim}").read_text())
        for number in range(1, calls + 1, EVERY):
            run = FOLDER / f"run-{victim}-{number}"
            shutil.copytree(base, run)
            statuses = processes(run, 4, victim, number)
            died = statuses.pop(victim)
            step, found = tensors(run)
            same = found.keys() == right[step].keys() and all(torch.equal(found[n], right[step][n]) for n in found)
            tried += 1
            good += died in (KILLED, 0) and set(statuses) <= {0, NAMED} and same
            left = tuple(sorted({path.name.partition(".tmp-")[0] for path in run.iterdir()}))
            if (step, left) in ends:
                shutil.rmtree(run)
            ends.setdefault((step, left), run)
    for run in ends.values():  # and from what was left, the run goes on to its end, and clears up
        assert processes(run, 6, 0, None) == [0] * SIZE
        assert tensors(run)[0] == 6
    print(f"{good} of {tried}, {len(ends)} different ends")


main()
