"""The language is chosen as POSIX says, and the table speaks both languages in every row."""

import ast
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from transpect.base.i18n import language, tr
from transpect.base.messages import TABLE

SRC = Path(__file__).resolve().parents[2] / "src" / "transpect"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "en"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_TW"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "en_US.UTF-8"}, "en"),
        ({"LC_MESSAGES": "zh_CN.UTF-8", "LANG": "en_US.UTF-8"}, "zh"),
        ({"LC_ALL": "C", "LC_MESSAGES": "zh_CN.UTF-8", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"TRANSPECT_LANG": "zh", "LC_ALL": "en_US.UTF-8"}, "zh"),
        ({"TRANSPECT_LANG": "en", "LC_ALL": "zh_CN.UTF-8"}, "en"),
        ({"TRANSPECT_LANG": "ZH-Hans"}, "zh"),
        ({"TRANSPECT_LANG": "fr", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"TRANSPECT_LANG": "", "LC_ALL": "", "LANG": "zh_CN.UTF-8"}, "zh"),
    ],
)
def test_the_first_variable_that_is_set_decides(environ: dict[str, str], expected: str) -> None:
    assert language(environ) == expected


def test_tr_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSPECT_LANG", "zh")
    assert tr("cli.train") == TABLE["cli.train"]["zh"]
    monkeypatch.setenv("TRANSPECT_LANG", "en")
    assert tr("cli.train") == TABLE["cli.train"]["en"]
    assert tr("cli.train", lang="zh") == TABLE["cli.train"]["zh"]


def test_an_unknown_key_says_where_rows_are_added() -> None:
    with pytest.raises(KeyError, match=r"cli\.nonsense.*transpect/base/messages"):
        tr("cli.nonsense")


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("key", TABLE)
def test_a_row_has_both_languages_and_the_same_placeholders(key: str) -> None:
    row = TABLE[key]
    assert set(row) == {"en", "zh"}
    assert row["en"].strip()
    assert row["zh"].strip()
    assert placeholders(row["en"]) == placeholders(row["zh"])
    assert "" not in placeholders(row["en"]), "placeholders have names"


@pytest.mark.parametrize("key", TABLE)
def test_chinese_texts_are_chinese_and_english_texts_are_not_translations_left_over(key: str) -> None:
    """Words of the example sentence may stand in an English text; a Chinese text without any Chinese is a slip."""
    letters = [c for c in TABLE[key]["zh"] if c.isalpha()]
    assert not letters or any("\u4e00" <= c <= "\u9fff" for c in letters)


def calls_of_tr() -> Iterator[tuple[str, ast.Call]]:
    for file in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "tr":
                yield f"{file.relative_to(SRC)}:{node.lineno}", node


def test_each_literal_key_in_the_sources_has_a_row_and_its_values() -> None:
    wrong = []
    for where, call in calls_of_tr():
        if not (call.args and isinstance(call.args[0], ast.Constant)):
            continue
        key, given = call.args[0].value, {keyword.arg for keyword in call.keywords}
        if key not in TABLE:
            wrong.append(f"{where}: no message {key!r}")
        elif None not in given and (missing := placeholders(TABLE[key]["en"]) - given):
            wrong.append(f"{where}: {key!r} wants {sorted(missing)}")
    assert not wrong
