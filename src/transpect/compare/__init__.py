"""Controlled comparisons: variants of one recipe on equal tokens, over seeds, evaluated beyond the trained length."""

from transpect.compare.comparison import Outcome, Silent, compare, pending
from transpect.compare.cost import Cost
from transpect.compare.measure import Measured
from transpect.compare.plan import Entry, Plan, Training, load_comparison, parse_comparison
from transpect.compare.pool import Watcher
from transpect.compare.results import Result, Spread, read_results
from transpect.compare.runs import Task
from transpect.compare.spec import Spec, Variant
from transpect.compare.table import Report, markdown, report

__all__ = [
    "Cost",
    "Entry",
    "Measured",
    "Outcome",
    "Plan",
    "Report",
    "Result",
    "Silent",
    "Spec",
    "Spread",
    "Task",
    "Training",
    "Variant",
    "Watcher",
    "compare",
    "load_comparison",
    "markdown",
    "parse_comparison",
    "pending",
    "read_results",
    "report",
]
