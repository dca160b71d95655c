"""Loss over length as a picture: a line a variant, a band for the spread over seeds."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transpect.compare.plan import Plan
from transpect.compare.results import Result, spread_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

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
            drawn = {
                entry.variant.name: _line(axis, number, lengths, results.get(entry.variant.name, ()), last=last)
                for number, entry in enumerate(plan.entries)
            }
            axis.set_title(title, fontsize=9)
            axis.set_xscale("log", base=2)
            axis.set_xticks(lengths, [f"{n}×" for n in lengths])
            axis.minorticks_off()
            axis.set_xlabel(f"row length, multiples of the {plan.part} tokens trained on")
            axis.grid(alpha=0.25, linewidth=0.5)
            axis.spines[["top", "right"]].set_visible(False)
        axes[0].set_ylabel("loss, nats a token")
        names = [name for name, line in drawn.items() if line is not None]
        lines = [line for line in drawn.values() if line is not None]
        legend = figure.legend(lines, ["?"] * len(lines), loc="outside right upper", frameon=False, handlelength=3.5)
        for text, name in zip(legend.get_texts(), names, strict=True):
            # not as labels: a leading underscore would hide them, and dollars would be mathematics
            text.set(text=name, parse_math=False)
        with warnings.catch_warnings():
            # text stays text in the file, and whatever shows it has its own fonts
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
            figure.savefig(path, format="svg", metadata={"Date": None})


def _line(axis: Axes, number: int, lengths: Sequence[int], results: Sequence[Result], *, last: bool) -> Line2D | None:
    """Draw what a variant has numbers for."""
    found = [(n, spread) for n in lengths if (spread := spread_at(results, n, last=last)) is not None]
    if not found:
        return None
    x, means = [n for n, _ in found], [spread.mean for _, spread in found]
    colour = COLOURS[number % len(COLOURS)]
    (line,) = axis.plot(
        x,
        means,
        color=colour,
        linestyle=LINES[number % len(LINES)],
        marker=MARKERS[number % len(MARKERS)],
        markersize=4,
        linewidth=1.3,
    )
    below, above = zip(*((s.mean - (s.deviation or 0), s.mean + (s.deviation or 0)) for _, s in found), strict=True)
    axis.fill_between(x, below, above, color=colour, alpha=0.18, linewidth=0)
    return line
