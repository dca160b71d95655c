"""The table of messages: key → the text in English and in Chinese.

One file a subject, each a dict ``ROWS``. To add a message, add a row there; to add a subject, add its file and name
it below. A text may hold ``{placeholders}``, the same ones in both languages; a brace that is meant is written twice.
"""

from __future__ import annotations

from collections.abc import Mapping

from transpect.base.messages import (
    bench,
    cli,
    compare,
    data,
    demo,
    options,
    parameters,
    plan,
    quantize,
    runs,
    serve,
    tables,
    verify,
    writing,
)
from transpect.base.messages.row import Row

__all__ = ["TABLE", "Row"]


def _joined(*parts: Mapping[str, Row]) -> dict[str, Row]:
    table: dict[str, Row] = {}
    for rows in parts:
        twice = table.keys() & rows.keys()
        assert not twice, f"messages defined twice: {sorted(twice)}"
        table |= rows
    return table


TABLE: Mapping[str, Row] = _joined(
    cli.ROWS,
    options.ROWS,
    writing.ROWS,
    parameters.ROWS,
    tables.ROWS,
    demo.ROWS,
    verify.ROWS,
    compare.ROWS,
    data.ROWS,
    bench.ROWS,
    quantize.ROWS,
    serve.ROWS,
    plan.ROWS,
    runs.ROWS,
)
