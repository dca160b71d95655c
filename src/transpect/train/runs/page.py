"""Runs as one HTML file that needs nothing else: curves, recipes, a table; in English and Chinese."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from transpect.base.i18n import language
from transpect.base.messages import TABLE
from transpect.train.runs.differing import differing
from transpect.train.runs.summary import Summary

PLACE = "/*DATA*/"
MOST = 2000
"""Points of a curve that are drawn; of more, every n-th and the last."""


def write_page(path: Path, runs: Sequence[Summary]) -> None:
    """Write the page; what stands at ``path`` is replaced."""
    words = {key.removeprefix("runs."): dict(row) for key, row in TABLE.items() if key.startswith("runs.")}
    measures = list(dict.fromkeys(name for run in runs for name in run.measures))
    recipes = [run.recipe for run in runs]
    data = {
        "language": language(),
        "words": words,
        "measures": measures,
        "differing": [[key, [_plain(value) for value in values]] for key, values in differing(recipes)],
        "runs": [
            {**run.as_dict(), "curves": {name: _thinned(run.curve(name)) for name in run.measures}} for run in runs
        ],
    }
    # in a script, </ would end it and <!-- begin a comment
    text = json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    template = files("transpect.train.runs").joinpath("page.html").read_text(encoding="utf-8")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(template.replace(PLACE, text), encoding="utf-8")


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _thinned(curve: list[tuple[int, float]]) -> list[tuple[int, float]]:
    every = -(-len(curve) // MOST)
    return curve if every <= 1 else [*curve[:-1:every], curve[-1]]
