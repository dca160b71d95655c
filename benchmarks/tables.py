"""Write the tables of docs/performance.md, in both languages, from the results in benchmarks/results.

    transpect bench decode --out benchmarks/results/decode.json
    python benchmarks/tables.py

A table stands between the marks `<!-- bench TASK -->` and `<!-- /bench -->`; one without a result is left as it is.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from transpect.bench.report import markdown, results_of

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "docs" / "performance.md", ROOT / "docs" / "performance.zh-CN.md")
MARKED = re.compile(r"<!-- bench (?P<task>[\w-]+) -->\n.*?<!-- /bench -->", re.DOTALL)


def with_tables(text: str, results: Path = ROOT / "benchmarks" / "results") -> str:
    """The page with its tables as the results say."""

    def table(found: re.Match[str]) -> str:
        file = results / f"{found['task']}.json"
        if not file.is_file():
            return found[0]
        data = json.loads(file.read_text(encoding="utf-8"))
        return f"<!-- bench {found['task']} -->\n{data['about']}\n\n{markdown(results_of(data))}<!-- /bench -->"

    return MARKED.sub(table, text)


def main() -> int:
    """Rewrite both pages."""
    for page in PAGES:
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
