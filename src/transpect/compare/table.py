"""The table of a comparison: cells and footnotes, and the same as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transpect.base.i18n import tr
from transpect.compare.cost import ROUNDS, Cost
from transpect.compare.plan import Entry, Plan
from transpect.compare.results import Result, Spread, spread_at

TABLE = "table.md"
NOTHING = "—"
MARKS = "¹²³⁴⁵⁶⁷⁸⁹"


@dataclass(frozen=True)
class Cell:
    """A cell, and whether it is the best of its column."""

    text: str
    best: bool = False


@dataclass(frozen=True)
class Grid:
    """Cells under headings.

    Attributes:
        title: what the numbers are.
        columns: headings.
        rows: as many cells as columns in each.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Report:
    """Everything that a person reads of a comparison.

    Attributes:
        grids: loss over all tokens, loss over the last part, and costs where they were measured.
        footnotes: (mark, reason).
        notes: what the numbers rest on.
    """

    grids: tuple[Grid, ...]
    footnotes: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def report(
    plan: Plan, results: Mapping[str, Sequence[Result]], costs: Mapping[str, Mapping[int, Cost]] | None
) -> Report:
    """What to show of results, in the reader's language."""
    footnotes = _Footnotes()
    grids = [_losses(plan, results, footnotes, last=last) for last in (False, True)]
    if max(plan.spec.lengths) == 1:
        del grids[1]  # the same numbers
    if costs is not None:
        grids += [_costs(plan, costs, memory=memory) for memory in (False, True)]
    return Report(tuple(grids), tuple(footnotes.marks.items()), tuple(_notes(plan, results, costs is not None)))


def markdown(
    plan: Plan, results: Mapping[str, Sequence[Result]], costs: Mapping[str, Mapping[int, Cost]] | None
) -> str:
    """The report as a Markdown page."""
    shown = report(plan, results, costs)
    parts = []
    for grid in shown.grids:
        lines = [grid.columns, ["---", *["---:"] * (len(grid.columns) - 1)]]
        lines += [[f"**{cell.text}**" if cell.best else cell.text for cell in row] for row in grid.rows]
        table = "\n".join(f"| {' | '.join(cell.replace('|', '∣') for cell in line)} |" for line in lines)
        parts.append(f"{grid.title}\n\n{table}")
    parts += [f"{mark} {text}" for text, mark in shown.footnotes]
    parts.append("\n".join(f"- {note}" for note in shown.notes))
    return "\n\n".join(parts) + "\n"


class _Footnotes:
    """Reasons, each with a mark."""

    def __init__(self) -> None:
        self.marks: dict[str, str] = {}

    def mark(self, text: str) -> str:
        number = len(self.marks)
        return self.marks.setdefault(text, MARKS[number] if number < len(MARKS) else f"({number + 1})")


def _losses(plan: Plan, results: Mapping[str, Sequence[Result]], footnotes: _Footnotes, *, last: bool) -> Grid:
    spreads = {
        (entry.variant.name, n): spread_at(results.get(entry.variant.name, ()), n, last=last)
        for entry in plan.entries
        for n in plan.spec.lengths
    }
    best = {
        n: min((s.mean for (_, at), s in spreads.items() if at == n and s is not None), default=None)
        for n in plan.spec.lengths
    }
    rows = []
    for entry in plan.entries:
        row = [Cell(entry.variant.name), Cell(_parameters(plan, entry))]
        for n in plan.spec.lengths:
            spread = spreads[entry.variant.name, n]
            if spread is None:
                why = _why(entry, results.get(entry.variant.name, ()), n)
                row.append(Cell(NOTHING + (footnotes.mark(why) if why else "")))
            else:
                fewer = f" (n={spread.n})" if spread.n < plan.spec.seeds else ""
                row.append(Cell(f"{spread}{fewer}", best=spread.mean == best[n]))
        rows.append(tuple(row))
    title = tr("compare.last" if last else "compare.all", part=plan.part)
    return Grid(title, (tr("compare.variant"), tr("compare.parameters"), *_headings(plan)), tuple(rows))


def _headings(plan: Plan) -> list[str]:
    return [f"{n}× ({n * plan.part})" for n in plan.spec.lengths]


def _why(entry: Entry, results: Sequence[Result], n: int) -> str:
    if n in entry.refused:
        return entry.refused[n]
    return next((result.error for result in results if result.error is not None), "")


def _parameters(plan: Plan, entry: Entry) -> str:
    """The count, and by how much it differs from the first variant's."""
    if entry.training is None:
        return NOTHING
    first = next((one.n_parameters for one in plan.entries if one.training is not None), entry.n_parameters)
    share = entry.n_parameters / first - 1
    digits = 1 if abs(share) >= 0.001 else 3
    return f"{entry.n_parameters:,}" + ("" if entry.n_parameters == first else f" ({share:+.{digits}%})")


def _costs(plan: Plan, costs: Mapping[str, Mapping[int, Cost]], *, memory: bool) -> Grid:
    rows = []
    for entry in plan.entries:
        row = [Cell(entry.variant.name)]
        for n in plan.spec.lengths:
            cost = costs.get(entry.variant.name, {}).get(n)
            row.append(Cell(NOTHING if cost is None else _cost(cost, memory=memory)))
        rows.append(tuple(row))
    first = plan.entries[0].variant.name
    title = tr("compare.memory" if memory else "compare.time", first=first)
    return Grid(title, (tr("compare.variant"), *_headings(plan)), tuple(rows))


def _cost(cost: Cost, *, memory: bool) -> str:
    ratio: Spread | None = cost.memory if memory else cost.time
    absolute = f"{cost.mebibytes.mean:,.0f} MiB" if memory else f"{cost.seconds.mean * 1000:,.0f} ms"
    return absolute if ratio is None else f"{ratio.text(2)} ({absolute})"


def _notes(plan: Plan, results: Mapping[str, Sequence[Result]], cost: bool) -> list[str]:
    done = [result for of_variant in results.values() for result in of_variant if result.error is None]
    spec = plan.recipe.train
    seeds = sorted({result.seed for result in done})
    notes = [tr("compare.spread", seeds=len(seeds)) if len(seeds) > 1 else tr("compare.one_seed")]
    if done:
        tokens = sorted({result.tokens for result in done})
        notes.append(
            tr(
                "compare.trained",
                tokens=" / ".join(f"{count:,}" for count in tokens),
                steps=f"{spec.max_steps:,}",
                length=plan.part,
                digests=", ".join(f"{seed}: {_digest(done, seed)}" for seed in seeds),
            )
        )
    rows = {n: one for result in done for n, one in sorted(result.lengths.items(), key=lambda pair: int(pair[0]))}
    if rows:
        counts = ", ".join(f"{n}×: {one.n_rows:,} ({one.n_tokens:,})" for n, one in rows.items())
        notes.append(tr("compare.rows", counts=counts))
    for entry in plan.entries:
        if entry.d_ff is not None:
            notes.append(tr("compare.d_ff", variant=entry.variant.name, d_ff=entry.d_ff))
    if cost:
        notes.append(tr("compare.cost_note", rounds=ROUNDS))
    return notes


def _digest(done: Sequence[Result], seed: int) -> str:
    return next(result.batches for result in done if result.seed == seed)
