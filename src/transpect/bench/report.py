"""What a sitting found, as JSON for programs, as tables for pages and terminals, and as one line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from transpect.bench.harness import Sitting
from transpect.bench.results import Absent, Bar, Figure, Ratio, Results, spread

__all__ = ["about", "as_data", "markdown", "results_of", "summary", "write"]


def as_data(task: str, what: Mapping[str, Any], sitting: Sitting) -> dict[str, Any]:
    """All that is known: the task and its options, the machine and its limits, versions, every value of every round."""
    results, machine = sitting.results, sitting.machine.facts()
    return {
        "task": task,
        "options": {**what, "against": list(sitting.options.against), "rounds": sitting.options.rounds},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "about": about(machine, results.versions),
        "machine": machine,
        "versions": results.versions,
        "figures": [asdict(figure) for figure in results.figures],
        "ratios": [{**asdict(ratio), "median": ratio.median, "holds": ratio.holds} for ratio in results.ratios],
        "absent": [asdict(absent) for absent in results.absent],
        "notes": results.notes,
        "short": results.short,
    }


def results_of(data: Mapping[str, Any]) -> Results:
    """What `as_data` was made of, without the machine: figures, ratios, what there is none of, and notes."""
    return Results(
        figures=[Figure(**{**figure, "values": tuple(figure["values"])}) for figure in data["figures"]],
        ratios=[
            Ratio(own["case"], own["against"], own["measure"], tuple(own["values"]), own["bar"] and Bar(**own["bar"]))
            for own in data["ratios"]
        ],
        absent=[Absent(**absent) for absent in data["absent"]],
        notes=list(data["notes"]),
        versions=data["versions"],
    )


def about(machine: Mapping[str, Any], versions: Mapping[str, Mapping[str, str]]) -> str:
    """A line of the machine and its limits, and a line of who took part."""
    read = machine["read GB/s"]
    gemm = ", ".join(f"{dtype} {value:,.0f}" for dtype, value in machine["gemm G/s"].items())
    programs = "; ".join(f"{who}: {', '.join(f'{k} {v}' for k, v in own.items())}" for who, own in versions.items())
    return (
        f"{machine['cpu']} ({machine['products']}), {machine['threads']} of {machine['cores']} cores; memory gives "
        f"{read['median']:.1f} GB/s ({read['lowest']:.1f}–{read['highest']:.1f}); matrices, 10⁹ operations/s: {gemm}\n"
        f"{programs}"
    )


def write(file: Path, data: Mapping[str, Any]) -> None:
    """Write JSON, with a line's end at its end."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def markdown(results: Results) -> str:
    """Two tables, of figures and of ratios with their bars, and the notes; medians (lowest–highest) of all rounds."""
    lines = []
    if results.figures:
        measures = list(dict.fromkeys((figure.measure, figure.unit) for figure in results.figures))
        lines = [_row("case", "program", *(f"{measure}, {unit}" for measure, unit in measures))]
        lines.append("|---|---|" + "--:|" * len(measures))
        for case, who in dict.fromkeys((figure.case, figure.who) for figure in results.figures):
            own = {figure.measure: figure for figure in results.figures if (figure.case, figure.who) == (case, who)}
            lines.append(_row(case, who, *(_cell(own.get(measure)) for measure, _ in measures)))
        lines.append("")
    lines += [_row("case", "ours over", "measure", "ratio", "bar", ""), "|---|---|---|--:|--:|---|"]
    for ratio in results.ratios:
        verdict = "" if ratio.bar is None else "holds" if ratio.holds else "**falls short**"
        bar = "" if ratio.bar is None else str(ratio.bar)
        lines.append(_row(ratio.case, ratio.against, ratio.measure, spread(ratio.values), bar, verdict))
    lines += ["", *(f"- {absent.case}: {absent.who}: no figure: {absent.why}" for absent in results.absent)]
    lines += [f"- {note}" for note in results.notes]
    return "\n".join(lines).rstrip() + "\n"


def summary(task: str, results: Results) -> str:
    """One line: every ratio that has a bar, and what is under it."""
    judged = [ratio for ratio in results.ratios if ratio.bar is not None]
    told = "; ".join(
        f"{ratio.case} / {ratio.against}{'' if ratio.measure == 'steps' else f' {ratio.measure}'} {ratio.median:.2f}"
        f" ({ratio.bar}{'' if ratio.holds else ', SHORT'})"
        for ratio in judged
    )
    lost = "; ".join(f"{gone.case} / {gone.who} NO FIGURE" for gone in results.absent if gone.barred)
    return f"bench {task}: {'; '.join(filter(None, (told, lost))) or 'no bars'}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(figure: Figure | None) -> str:
    return "" if figure is None else spread(figure.values)
