"""Loss over length as a picture: a line a variant, a band for the spread over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transpect.compare.plan import Plan
from transpect.compare.results import Result, spread_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIGURE = "figure.svg"
# Okabe & Ito 2008, told apart by the colour-blind; in grey, line and marker tell them apart
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
LINES = ("-", "--", "-.", ":")
MARKERS = "osD^vPX*<>"


def draw_figure(path: Path, plan: Plan, results: Mapping[str, Sequence[Result]]) -> None:
    """Write an SVG with two panels: the loss over all tokens of a row, and over its last part.

    The same results give the same bytes.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    lengths = plan.spec.lengths
    panels = [(False, "all tokens of a row"), (True, f"its last {plan.part} tokens")][: 1 if lengths == (1,) else 2]
    with mpl.rc_context({"svg.hashsalt": "transpect", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(4.2 * len(panels) + 2.2, 3.8), layout="constrained")
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, (last, title) in zip(axes, panels, strict=True):
            for number, entry in enumerate(plan.entries):
                _line(axis, number, entry.variant.name, lengths, results.get(entry.variant.name, ()), last=last)
            axis.set_title(title, fontsize=9)
            axis.set_xscale("log", base=2)
            axis.set_xticks(lengths, [f"{n}×" for n in lengths])
            axis.minorticks_off()
            axis.set_xlabel(f"row length, multiples of the {plan.part} tokens trained on")
            axis.grid(alpha=0.25, linewidth=0.5)
            axis.spines[["top", "right"]].set_visible(False)
        axes[0].set_ylabel("loss, nats a token")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper", frameon=False, handlelength=3.5)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _line(axis: Axes, number: int, name: str, lengths: Sequence[int], results: Sequence[Result], *, last: bool) -> None:
    found = [(n, spread) for n in lengths if (spread := spread_at(results, n, last=last)) is not None]
    if not found:
        return
    x, means = [n for n, _ in found], [spread.mean for _, spread in found]
    colour = COLOURS[number % len(COLOURS)]
    axis.plot(
        x,
        means,
        label=name,
        color=colour,
        linestyle=LINES[number % len(LINES)],
        marker=MARKERS[number % len(MARKERS)],
        markersize=4,
        linewidth=1.3,
    )
    below, above = zip(*((s.mean - (s.deviation or 0), s.mean + (s.deviation or 0)) for _, s in found), strict=True)
    axis.fill_between(x, below, above, color=colour, alpha=0.18, linewidth=0)
