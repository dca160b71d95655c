"""The learning-rate range test: a loss at each of many growing rates, and which rate that speaks for.

Source: Smith 2017 ("Cyclical learning rates"), §3.3.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

BETA = 0.8
"""Of the running mean of losses."""
MARGIN = 10.0
"""How far a rate should stay below the one with the lowest loss: beyond that they do harm soon."""
DIVERGED = 4.0
"""The test is over where the smoothed loss is so many times its lowest."""
BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Point:
    """One update of the test.

    Attributes:
        rate: that it was made at.
        loss: before it, nats a label.
        smoothed: the running mean up to here, without the bias of its beginning.
    """

    rate: float
    loss: float
    smoothed: float


def rates(low: float, high: float, count: int) -> list[float]:
    """From ``low`` to ``high``, each the same multiple of the one before."""
    return [low * (high / low) ** (n / (count - 1)) for n in range(count)]


def sweep(step: Callable[[float], float], along: Iterable[float]) -> list[Point]:
    """Make an update at each rate, until the loss diverges.

    Args:
        step: makes an update at a rate, and gives the loss before it.
        along: growing rates.
    """
    points: list[Point] = []
    mean = 0.0
    for rate in along:
        loss = step(rate)
        if not math.isfinite(loss):
            break
        mean = BETA * mean + (1.0 - BETA) * loss
        points.append(Point(rate, loss, mean / (1.0 - BETA ** (len(points) + 1))))
        if points[-1].smoothed > DIVERGED * min(point.smoothed for point in points):
            break
    return points


def lowest(points: Sequence[Point]) -> Point:
    """Where the smoothed loss is lowest; beyond, rates do harm."""
    return min(points, key=lambda point: point.smoothed)


def steepest(points: Sequence[Point]) -> Point | None:
    """Where the smoothed loss falls fastest over the logarithm of the rate, before it is `lowest`; None if it never
    falls. Of neighbours three apart, since one update's loss says little."""
    last = points.index(lowest(points))
    falls = [(points[n - 3].smoothed - points[n].smoothed, n) for n in range(3, last + 1)]
    fall, at = max(falls, default=(0.0, 0))
    return points[at - 1] if fall > 0.0 else None


def suggested(points: Sequence[Point]) -> float | None:
    """The rate at which the loss falls fastest, and at most a tenth of that with the lowest loss; None if it never
    falls."""
    best = steepest(points)
    return None if best is None else min(best.rate, lowest(points).rate / MARGIN)


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """Values as bars of eight heights, at most ``width`` of them, each the mean of its share."""
    if not values:
        return ""
    width = min(width, len(values))
    shares = [values[len(values) * n // width : len(values) * (n + 1) // width] for n in range(width)]
    means = [sum(share) / len(share) for share in shares]
    low, high = min(means), max(means)
    return "".join(BARS[round((mean - low) / (high - low or 1.0) * (len(BARS) - 1))] for mean in means)


def write_points(path: Path, points: Sequence[Point]) -> None:
    """A JSON object a line."""
    path.write_text("".join(json.dumps(asdict(point)) + "\n" for point in points), encoding="utf-8")


def draw_points(path: Path, points: Sequence[Point], suggestion: float | None) -> None:
    """Loss over rate as SVG, with the suggestion; the same points give the same bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "transpect", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(6.4, 3.8), layout="constrained")
        axis = figure.subplots()
        along = [point.rate for point in points]
        axis.plot(along, [point.loss for point in points], color="#56B4E9", linewidth=0.8, label="loss")
        axis.plot(along, [point.smoothed for point in points], color="#0072B2", linewidth=1.6, label="smoothed")
        if suggestion is not None:
            axis.axvline(suggestion, color="#D55E00", linestyle="--", linewidth=1.2, label=f"{suggestion:.2g}")
        axis.set_xscale("log")
        axis.set_xlabel("learning rate")
        axis.set_ylabel("loss, nats a label")
        axis.grid(alpha=0.25, linewidth=0.5)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False)
        figure.savefig(path, format="svg", metadata={"Date": None})
