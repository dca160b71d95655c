"""Lines keep to their width in both scripts, and lose nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transpect.cli.layout import page_width, rows, width_of, wrap

TEXTS = st.text(alphabet="ab cd中文字，。（）「」- éé", max_size=80)


@given(TEXTS, st.integers(8, 40))
def test_wrapped_lines_hold_every_character_but_the_spaces_at_breaks(text: str, width: int) -> None:
    joined = "".join(wrap(text, width))
    assert joined.replace(" ", "") == text.replace(" ", "")


@given(st.text(alphabet="中文字，。a ", max_size=80), st.integers(8, 40))
def test_no_line_is_wider_than_asked_where_pieces_are_short(text: str, width: int) -> None:
    # punctuation may not begin a line, so a run of it hangs on
    if any(mark * 2 in text for mark in "，。a") or "，。" in text or "。，" in text:
        return
    assert all(width_of(line) <= width for line in wrap(text, width))


@given(TEXTS)
def test_no_chinese_line_begins_with_punctuation_that_closes(text: str) -> None:
    clean = text.replace(" ", "").lstrip("，。）」")
    assert not [line for line in wrap(clean, 10) if line[:1] in {"，", "。", "）", "」"}]


@pytest.mark.parametrize(("text", "columns"), [("abc", 3), ("猫", 2), ("小猫 a", 6), ("e\u0301", 1), ("", 0)])
def test_width_counts_columns(text: str, columns: int) -> None:
    assert width_of(text) == columns


def test_explanations_begin_in_one_column() -> None:
    text = rows([("a", "first"), ("猫猫", "第二"), ("x" * 40, "third")], 60)
    lines = text.splitlines()
    assert lines == ["  a     first", "  猫猫  第二", f"  {'x' * 40}", "        third"]


@pytest.mark.parametrize(("columns", "width"), [("10", 40), ("100", 100), ("1000", 120), ("wide", 80)])
def test_the_page_is_as_wide_as_the_terminal_within_reason(
    columns: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert page_width() == width
