"""`compare`: from a plan to a directory of results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from transpect.base.devices import allowed_cores
from transpect.base.errors import ConfigError, DataError
from transpect.compare.cost import Cost, measure_costs
from transpect.compare.figure import FIGURE, draw_figure
from transpect.compare.plan import Plan
from transpect.compare.pool import Watcher, run_all
from transpect.compare.results import RESULTS, Result, ResultsFile
from transpect.compare.runs import Task, result_key, tasks_of
from transpect.compare.table import TABLE, markdown


@dataclass(frozen=True)
class Outcome:
    """What a comparison found.

    Attributes:
        plan: what was compared.
        results: by variant, those of its seeds.
        costs: time and memory, where they were asked for.
        complete: whether every training came to its end.
    """

    plan: Plan
    results: dict[str, list[Result]]
    costs: dict[str, dict[int, Cost]] | None
    complete: bool


class Silent:
    """A watcher that says nothing."""

    def begin(self, task: Task) -> None:
        """Nothing."""

    def advance(self, task: Task, step: int) -> None:
        """Nothing."""

    def end(self, task: Task, results: list[Result] | None) -> None:
        """Nothing."""


def compare(
    plan: Plan, out: str | Path, *, jobs: int = 1, cost: bool = False, watcher: Watcher | None = None
) -> Outcome:
    """Train and evaluate all that a plan says and ``out`` does not hold yet.

    ::

        out/results.jsonl   a line for each variant and seed
        out/table.md        means and spreads, with what they rest on
        out/figure.svg      loss over length
        out/runs/           the training runs, each a directory as of `transpect.train.train`

    Args:
        plan: of `load_comparison`.
        out: the directory; finished runs in it are not repeated, interrupted ones go on.
        jobs: how many trainings at once, each with its share of the cores.
        cost: measure time and memory as well, afterwards and one by one.
        watcher: told of each training.

    Raises:
        ConfigError: fewer than one job.
        DataError: variants of one seed read different tokens.
    """
    if jobs < 1:
        raise ConfigError("jobs must be at least 1", value=jobs)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    file = ResultsFile(folder / RESULTS)
    tasks = tasks_of(plan, folder, max(1, allowed_cores() // jobs) if jobs > 1 else None)
    due = [task for task in tasks if not _is_done(task, file)]
    complete = True
    for _, results in run_all(due, Silent() if watcher is None else watcher, jobs):
        if results is None:
            complete = False
        else:
            file.add(results)
    found = _collected(plan, tasks, file)
    check_equal_tokens([result for results in found.values() for result in results])
    costs = measure_costs(plan, folder) if cost and complete else None
    outcome = Outcome(plan, found, costs, complete)
    (folder / TABLE).write_text(markdown(plan, found, costs), encoding="utf-8")
    if any(found.values()):
        draw_figure(folder / FIGURE, plan, found)
    return outcome


def pending(plan: Plan, out: str | Path) -> list[Task]:
    """The trainings that `compare` would make."""
    path = Path(out)
    file = ResultsFile(path / RESULTS)
    return [task for task in tasks_of(plan, path) if not _is_done(task, file)]


def check_equal_tokens(results: list[Result]) -> None:
    """All runs of a seed have read the same batches.

    Raises:
        DataError: they have not.
    """
    read: dict[int, Result] = {}
    for result in results:
        first = read.setdefault(result.seed, result) if result.error is None else result
        if first.batches != result.batches:
            raise DataError(
                "variants of one seed must have read the same batches in the same order",
                value=f"{first.variant}: {first.batches}, {result.variant}: {result.batches}",
                remedy="The data changed between the runs: compare anew, in another directory.",
            )


def _is_done(task: Task, file: ResultsFile) -> bool:
    return all(file.get(result_key(task, entry)) is not None for entry in task.entries)


def _collected(plan: Plan, tasks: list[Task], file: ResultsFile) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {entry.variant.name: [] for entry in plan.entries}
    for task in tasks:
        for entry in task.entries:
            result = file.get(result_key(task, entry))
            if result is not None:
                found[entry.variant.name].append(result)
    return found
