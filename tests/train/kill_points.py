"""Kills a process before all that a save does to the disk, or fills the disk up there, and looks at what is left.

``python -m tests.train.kill_points RECIPE FOLDER SIZE WAY [EVERY]`` prints "k of K"; run it with ``kill_points.so`` in
LD_PRELOAD. State 2 is on the disk, and state 4 is being written, by one process or by several of which each is the
victim in turn. WAY is ``kill``, or ``full``: from that point on there is no room, which the process must say and end.
What is left must be the newest state that was complete, bit for bit, and the run must go on from there to its end.

One process is forked just before its save, for each point; several, which are connected, train up to it anew.
"""

import ctypes
import os
import shutil
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from tests.train.processes import ended, forked, started

from transpect.base.errors import TranspectError
from transpect.train import load_recipe, train
from transpect.train.parallel import heartbeat
from transpect.train.session import Session
from transpect.train.state import read_state

SHIM = ctypes.CDLL(os.environ["LD_PRELOAD"])
RECIPE, FOLDER, SIZE, FULL = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "full"
EVERY = int(sys.argv[5]) if len(sys.argv) > 5 else 1
BEFORE, AFTER, LAST = 2, 4, 6
KILLED, NAMED = -signal.SIGKILL, 3
SAVE = Session.save

heartbeat.STATUS = (
    NAMED  # with which a process ends whose heart beat first, while it waited for the one that was killed
)


def work(run: Path, steps: int) -> int:
    """Train up to a step; the exit status, which is NAMED where that ends with an error that says what is wrong."""
    try:
        train(load_recipe(RECIPE), run, resume="auto", should_stop=lambda made: made == steps)
    except TranspectError:
        return NAMED
    return 0


def at_the_save(what: Any) -> None:
    """Have something done in the place of the save of state 4, given the session and how to save."""

    def there(session: Session) -> None:
        if session.progress.step == AFTER:
            what(session, lambda: SAVE(session))
        else:
            SAVE(session)

    Session.save = there  # type: ignore[method-assign]


def counted(save: Any, rank: int) -> None:
    """Save, and note how many points that has."""
    SHIM.arm(0, FULL)
    save()
    calls = int(SHIM.calls())
    SHIM.arm(-1, 0)
    (FOLDER / f"calls-{rank}").write_text(str(calls))


class Ends:
    """What is left where a save ended at its points."""

    def __init__(self, right: dict[int, dict[str, torch.Tensor]]) -> None:
        self.tried = self.good = 0
        self.kept: dict[Any, Path] = {}
        self._right, self._newest = right, 0

    def begin(self) -> None:
        """Another process is the victim."""
        self._newest = 0

    def take(self, run: Path, died: int, others: list[int]) -> None:
        """The next point: once the new state was complete it is never again the old one."""
        step, found = tensors(run)
        same = found.keys() == self._right[step].keys() and all(map(torch.equal, found.values(), self._in(step, found)))
        as_asked = died in ((NAMED, 0) if FULL else (KILLED, 0)) and set(others) <= {0, NAMED}
        fine = same and as_asked and step >= self._newest
        self.tried, self.good, self._newest = self.tried + 1, self.good + fine, max(step, self._newest)
        if not fine:
            print(f"{run.name}: state {step}, same {same}, ended {died} {others}", file=sys.stderr, flush=True)
        left = step, tuple(sorted({path.name.partition(".tmp-")[0] for path in run.iterdir()}))
        if left in self.kept:
            shutil.rmtree(run)
        self.kept.setdefault(left, run)

    def _in(self, step: int, found: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        return [self._right[step][name] for name in found]


def tensors(run: Path) -> tuple[int, dict[str, torch.Tensor]]:
    state = read_state(run)
    return state.step, state.tensors


def together(run: Path, steps: int) -> list[int]:
    """Train in processes of their own, which must not hang; their exit statuses."""
    return ended(started(SIZE, lambda: work(run, steps)))


def by_one(base: Path, ends: Ends) -> None:
    """The process that stands before its save is forked for each point."""

    def at_each_point(session: Session, save: Any) -> None:
        for number in range(1, int((FOLDER / "calls-0").read_text()) + 1, EVERY):
            session._run = FOLDER / f"run-{number}"
            shutil.copytree(base, session._run)
            if child := os.fork():
                ends.take(session._run, *ended([child]), [])
                continue
            SHIM.arm(number, FULL)
            save()
            os._exit(0)
        report(ends)
        os._exit(0)

    at_the_save(at_each_point)
    os._exit(work(base, AFTER))  # which a child comes to whose save says that it failed


def by_several(base: Path, ends: Ends) -> None:
    """They train up to the save for each point."""
    for victim in range(SIZE):
        ends.begin()
        for number in range(1, int((FOLDER / f"calls-{victim}").read_text()) + 1, EVERY):
            run = FOLDER / f"run-{victim}-{number}"
            shutil.copytree(base, run)

            def of_one(_session: Session, save: Any, victim: int = victim, number: int = number) -> None:
                if int(os.environ["RANK"]) == victim:
                    SHIM.arm(number, FULL)
                save()

            def act(of_one: Any = of_one, run: Path = run) -> int:
                at_the_save(of_one)
                return work(run, AFTER)

            statuses = ended(started(SIZE, act))
            died = statuses.pop(victim)
            ends.take(run, died, statuses)


def main() -> None:
    torch.set_num_threads(1)
    import_module("transpect.train.parallel.together")
    base, whole = FOLDER / "base", FOLDER / "whole"
    assert forked(lambda: work(FOLDER / "first", BEFORE)) == 0
    assert together(base, BEFORE) == [0] * SIZE
    shutil.copytree(base, whole)

    def count() -> int:
        at_the_save(lambda _session, save: counted(save, int(os.environ["RANK"])))
        return work(whole, AFTER)

    assert ended(started(SIZE, count)) == [0] * SIZE
    ends = Ends(dict(map(tensors, (base, whole))))
    if SIZE == 1:
        by_one(base, ends)
    else:
        by_several(base, ends)
        report(ends)


def report(ends: Ends) -> None:
    """Go on from each kind of end, to the last step, and say how many points were good."""
    Session.save = SAVE  # type: ignore[method-assign]
    gone_on = sum(together(run, LAST) == [0] * SIZE and tensors(run)[0] == LAST for run in ends.kept.values())
    print(f"{ends.good} of {ends.tried}, {gone_on} of {len(ends.kept)} different ends gone on from", flush=True)


main()
