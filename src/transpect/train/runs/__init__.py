"""Runs that were made: found, listed, compared and drawn, from their files alone."""

from transpect.train.runs.chart import chart, sparkline
from transpect.train.runs.differing import differing
from transpect.train.runs.page import write_page
from transpect.train.runs.summary import Summary, find_runs, summary_of

__all__ = ["Summary", "chart", "differing", "find_runs", "sparkline", "summary_of", "write_page"]
