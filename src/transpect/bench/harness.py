"""Rounds in which programs take turns at the same work, and what comes of them: rates, ratios, bars.

    with Sitting(options) as sitting:
        with sitting.field("decode", "float32", {"ours": {...}, "llama.cpp": {...}}) as field:  # who, what each loads
            sitting.race(field, Work("batch 1", {"prompts": ...}, {"steps": "tokens/s"}, bars=...))

Everyone stays loaded for a whole sitting and does the work once a round, one after another: A B A B. A ratio is ours
over theirs in one round, so that what disturbs the machine for longer than a round disturbs neither side alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from transpect.base.errors import ConfigError
from transpect.bench.machine import Machine, Neighbours
from transpect.bench.peers import interpreter
from transpect.bench.results import Absent, Bar, Figure, Ratio, Results, ratios
from transpect.bench.worker import OURS, PeerError, Worker, script_of

__all__ = ["READ", "Field", "Options", "Sitting", "Taken", "Work"]


DISTURBED: Final = 0.05
"""Of all cores, from which on a reader is told that others were at work."""
READ: Final = "machine read"
"""Of an answer: GB/s that memory gave in its round."""


@dataclass(frozen=True)
class Options:
    """What all tasks share.

    Attributes:
        against: the peers, by name.
        rounds: how often everyone does each piece of work, after once for warming up.
        threads: how many each program computes with.
        peer_python: interpreters of peers that have an environment already.
        see: is told in a line what is being measured.
    """

    against: tuple[str, ...]
    rounds: int = 5
    threads: int = 1
    peer_python: Mapping[str, Path] = field(default_factory=dict)
    see: Callable[[str], None] = lambda line: None


@dataclass(frozen=True)
class Work:
    """What everyone in a field does.

    Attributes:
        name: stands after the field's in a case.
        asked: what each program's ``run`` is given, the same for all.
        units: measure → unit, of the rates (count over seconds, more is better).
        sizes: measure → unit, of what an answer holds under ``sizes`` (less is better).
        bars: (peer, measure) → what our ratio must be.
        same: let an answer of each be compared with ours, and say in a line how they differ.
    """

    name: str
    asked: Mapping[str, Any]
    units: Mapping[str, str]
    sizes: Mapping[str, str] = field(default_factory=dict)
    bars: Mapping[tuple[str, str], Bar] = field(default_factory=dict)
    same: Callable[[Mapping[str, Any], Mapping[str, Any]], str] | None = None


@dataclass(frozen=True)
class Field:
    """Programs that have loaded the same model; ours is one of them."""

    name: str
    workers: Mapping[str, Worker]


Taken = dict[str, list[dict[str, Any]]]
"""Answers by program, one a round."""


class Sitting:
    """One run of a task: who takes part, what is measured, and of which machine.

    Attributes:
        results: so far.
        machine: its limits, measured as often as everything else.
    """

    def __init__(self, options: Options) -> None:
        self.options, self.results = options, Results()
        self.machine = Machine(options.threads)

    def __enter__(self) -> Sitting:
        self.options.see("measuring the machine")
        self.machine.measure()
        return self

    def __exit__(self, *_: object) -> None:
        self.machine.close()

    @contextmanager
    def field(
        self, task: str, name: str, loads: Mapping[str, Mapping[str, Any]], barred: Collection[str] = ()
    ) -> Iterator[Field]:
        """Let every program load; peers that can't are told of as absent. They end with the block.

        Args:
            task: see `script_of`.
            name: of the cases, e.g. the number format.
            loads: program → what its ``load`` is given. A peer's name may go on after a blank (``llama.cpp Q4_0``).
                Ours is among them.
            barred: peers for which there are bars, which can't be judged without them.

        Raises:
            PeerError: ours can't.
            ConfigError: a peer's weights have other bits than ours, where both say how many.
        """
        workers: dict[str, Worker] = {}
        try:
            for who in sorted(loads, key=lambda who: who != OURS):
                try:
                    self._enter(task, name, who, loads[who], workers)
                except PeerError as error:
                    if who == OURS:
                        raise
                    self.results.absent.append(Absent(name, who, str(error), who.partition(" ")[0] in barred))
            yield Field(name, workers)
        finally:
            for worker in workers.values():
                worker.close()

    def _enter(self, task: str, case: str, who: str, options: Mapping[str, Any], workers: dict[str, Worker]) -> None:
        peer = who.partition(" ")[0]
        self.options.see(f"{case}: {who} loads")
        worker = Worker(
            who,
            script_of(task, peer),
            interpreter(peer, self.options.peer_python, self.options.see, task),
            threads=self.options.threads,
        )
        try:
            worker.load(threads=self.options.threads, **options)
            ours = workers[OURS].facts if who != OURS else worker.facts
            check_bits(case, who, ours.get("bits"), worker.facts.get("bits"))
        except BaseException:
            worker.close()
            raise
        workers[who] = worker
        self.results.versions[peer] = worker.facts.get("versions", {})

    def race(self, field: Field, work: Work) -> Taken:
        """Warm up, let all take their turns, keep figures and ratios; a peer that dies is absent from then on."""
        case = ", ".join(filter(None, (field.name, work.name)))
        racing = dict(field.workers)
        children = [pid for worker in racing.values() for pid in (worker.pid, *worker.facts.get("pids", ()))]
        neighbours = Neighbours([*self.machine.pids, *children])
        taken: Taken = {who: [] for who in racing}
        for number in range(self.options.rounds + 1):
            self.options.see(f"{case}: {f'round {number} of {self.options.rounds}' if number else 'warming up'}")
            read = self.machine.look()
            for who in list(racing):
                try:
                    taken[who].append({**racing[who].run(**work.asked), READ: read})
                except PeerError as error:
                    if who == OURS:
                        raise
                    barred = any(peer == who.partition(" ")[0] for peer, _ in work.bars)
                    self.results.absent.append(Absent(case, who, str(error), barred))
                    del racing[who], taken[who]
        share = neighbours.share()
        if share is not None and share > DISTURBED:
            note = f"{case}: other processes took {share:.0%} of the machine meanwhile; measure again when it is free"
            self.results.notes.append(note)
        warm = {who: answers.pop(0) for who, answers in taken.items()}
        for who, first in warm.items():
            if work.same is not None and who != OURS:
                self.results.notes.append(f"{case}: {who}: {work.same(warm[OURS], first)}")
        self._keep(case, work, taken)
        return taken

    def judge(self, case: str, against: str, measure: str, values: tuple[float, ...], bar: Bar | None = None) -> None:
        """Keep ours over something that is no program: a limit of the machine, a time that was promised."""
        self.results.ratios.append(Ratio(case, against, measure, values, bar))

    def _keep(self, case: str, work: Work, taken: Taken) -> None:
        counts = [answer.get("count") for answers in taken.values() for answer in answers]
        assert all(count == counts[0] for count in counts), f"all do the same amount of work: {counts}"
        for measure, unit in (*work.units.items(), *work.sizes.items()):
            values = {
                who: tuple(_value(answer, measure, rate=measure in work.units) for answer in answers)
                for who, answers in taken.items()
            }
            self.results.figures += [Figure(case, who, measure, unit, own) for who, own in values.items()]
            for who, theirs in values.items():
                if who != OURS:
                    bar = work.bars.get((who.partition(" ")[0], measure))
                    self.results.ratios.append(Ratio(case, who, measure, ratios(values[OURS], theirs), bar))


def check_bits(case: str, who: str, ours: int | None, theirs: int | None) -> None:
    """Refuse to compare numbers of different widths.

    Raises:
        ConfigError: both widths are known and differ.
    """
    if ours is not None and theirs is not None and ours != theirs:
        raise ConfigError(
            f"{case}: only equal bits are compared",
            value=f"ours has {ours}, {who} has {theirs}",
            remedy="Choose a format that both have.",
        )


def _value(answer: Mapping[str, Any], measure: str, *, rate: bool) -> float:
    if not rate:
        return float(answer["sizes"][measure])
    return float(answer["count"][measure]) / float(answer["seconds"][measure])
