"""Runs from their files: states, curves, differing keys, a page that stands alone."""

import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transpect.base.errors import DataError
from transpect.train import Recipe, train
from transpect.train.runs import chart, differing, find_runs, sparkline, summary_of, write_page

LINES = [{"step": n, "loss": 5.0 / n, "tokens_per_s": 100.0 * n, "seconds": 2.0 * n} for n in range(1, 5)]


def made(folder: Path, lines: list[dict[str, Any]] | None = None, train: str = "{max_steps: 4}") -> Path:
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(f"train: {train}\n", encoding="utf-8")
    text = "".join(json.dumps(line) + "\n" for line in (LINES if lines is None else lines))
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
    return folder


def evaluated(*values: float | None) -> list[dict[str, Any]]:
    return [{"step": n, "loss": 1.0, "valid_loss": value} for n, value in enumerate(values, 1)]


@pytest.mark.parametrize(
    ("lines", "train", "age", "state"),
    [
        (LINES, "{max_steps: 4}", 1e6, "finished"),
        (LINES, "{max_steps: 9}", 1e6, "stopped"),
        (LINES, "{max_steps: 9}", 1.0, "active"),
        ([{**LINES[0]}, {**LINES[1], "seconds": 900.0}], "{max_steps: 9}", 1000.0, "active"),
        (evaluated(2.0, 1.0, 1.5, 1.2), "{max_steps: 9, patience: 2}", 1.0, "early"),
        ([], "{max_steps: 9}", 1e6, "stopped"),
    ],
)
def test_states(lines: Any, train: str, age: float, state: str, tmp_path: Path) -> None:
    run = made(tmp_path / "run", lines, train)
    assert summary_of(run, (run / "metrics.jsonl").stat().st_mtime + age).state == state


def test_the_best_is_that_of_the_recipe_s_metric(tmp_path: Path) -> None:
    lines = evaluated(3.0, None, 1.0, 1.0, 2.0)
    assert (own := summary_of(made(tmp_path / "a", lines))).best_step == 3 and own.best_value == 1.0
    most = summary_of(made(tmp_path / "b", lines, "{max_steps: 9, best: {metric: valid_loss, mode: max}}"))
    assert (most.best_step, most.best_value) == (1, 3.0)
    assert summary_of(made(tmp_path / "c")).best_value is None


def test_a_real_run_is_read_as_it_says_of_itself(recipe_of: Callable[..., Recipe], tmp_path: Path) -> None:
    result = train(recipe_of("causal"), tmp_path / "deep" / "run")
    (found,) = find_runs(tmp_path)
    own = summary_of(found)
    assert (own.step, own.last, own.state) == (7, 7, "finished")
    assert (own.best_step, own.best_value) == (result.best_step, result.best_value)
    assert own.seconds == pytest.approx(result.seconds, rel=0.5)


def test_runs_are_found_at_any_depth_and_not_inside_runs(tmp_path: Path) -> None:
    for name in ("b", "a/x", "a/x/inner", ".hidden/c"):
        made(tmp_path / name) if not (tmp_path / name).exists() else None
    assert find_runs(tmp_path) == [tmp_path / "a" / "x", tmp_path / "b"]
    assert find_runs(tmp_path / "b") == [tmp_path / "b"]
    with pytest.raises(DataError):
        find_runs(tmp_path / "nowhere")


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 5, "lo')
    assert summary_of(run).step == 4


def test_keys_that_differ() -> None:
    a = {"train": {"lr": 1, "seed": 0}, "model": {"d": 2}}
    b = {"train": {"lr": 2, "seed": 0, "new": None}, "model": {"d": 2}}
    assert differing([a, b]) == [("train.lr", [1, 2]), ("train.new", ["—", None])]
    assert differing([a, a, a]) == []


# curves


def test_sparklines() -> None:
    assert sparkline([1, 2, 3, 4, 5, 6, 7, 8]) == "▁▂▃▄▅▆▇█"
    assert sparkline([2.0, 2.0, math.nan]) == "▁▁"
    assert sparkline([]) == sparkline([math.inf]) == ""
    long = sparkline([float(n) for n in range(1000)], 10)
    assert len(long) == 10 and long == "".join(sorted(long))


def dots(rows: list[list[tuple[str, int | None]]]) -> set[tuple[int, int]]:
    """(column, row) of every dot, from the top left."""
    bits = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
    return {
        (2 * c + x, 4 * r + y)
        for r, cells in enumerate(rows)
        for c, (character, curve) in enumerate(cells)
        if curve is not None
        for x in range(2)
        for y in range(4)
        if (ord(character) - 0x2800) & bits[x][y]
    }


def test_a_falling_line_goes_from_the_top_left_to_the_bottom_right() -> None:
    drawn = chart([[(0, 4.0), (10, 0.0)]], width=4, height=2)
    assert drawn is not None and (drawn.low, drawn.high, drawn.first, drawn.last) == (0.0, 4.0, 0, 10)
    assert dots(drawn.rows) == {(n, n) for n in range(8)}


def test_each_curve_has_its_colour_and_what_is_no_number_is_left_out() -> None:
    drawn = chart([[(0, 0.0), (10, 0.0)], [(0, 1.0), (5, math.nan), (10, 1.0)], []], width=3, height=3)
    assert drawn is not None
    assert [{curve for _, curve in row} for row in drawn.rows] == [{1}, {None}, {0}]
    assert chart([[], [(1, math.inf)]]) is None
    one = chart([[(3, 2.0)]], width=2, height=1)
    assert one is not None and len(dots(one.rows)) == 1


# the page


def test_the_page_stands_alone_and_holds_the_numbers(tmp_path: Path) -> None:
    evil = "</script><b>&"
    runs = [summary_of(made(tmp_path / "a")), summary_of(made(tmp_path / "b", train=f"{{max_steps: 4, n: '{evil}'}}"))]
    page = tmp_path / "out" / "runs.html"
    write_page(page, runs)
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"(src|href)\s*=|https?://(?!www\.w3\.org/2000/svg)|@import|fetch\(", text)
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert data["runs"][0]["curves"]["loss"] == [[n, 5.0 / n] for n in range(1, 5)]
    assert data["differing"] == [["train.n", ["—", evil]]]
    assert all({"en", "zh"} <= row.keys() for row in data["words"].values())
    used = set(re.findall(r'word\("([\w.]+)"\)', text)) | set(re.findall(r'data-word="([\w.]+)"', text))
    assert used <= data["words"].keys()


def test_long_curves_are_thinned_and_keep_their_end(tmp_path: Path) -> None:
    lines = [{"step": n, "loss": 1.0 / n} for n in range(1, 9001)]
    page = tmp_path / "runs.html"
    write_page(page, [summary_of(made(tmp_path / "a", lines))])
    found = re.search(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    curve = json.loads(found[1])["runs"][0]["curves"]["loss"]
    assert len(curve) <= 2001 and curve[0][0] == 1 and curve[-1][0] == 9000


def test_the_command_lists_compares_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transpect.cli.main import main

    a, b = made(tmp_path / "a"), made(tmp_path / "b", train="{max_steps: 8}")
    os.utime(b / "metrics.jsonl", (0, 0))

    def says(*words: object) -> str:
        capsys.readouterr()
        assert main([str(word) for word in ("runs", *words)]) == 0
        return capsys.readouterr().out

    listed = says(tmp_path)
    assert "finished" in listed and "stopped" in listed and "4/8" in listed
    compared = says("compare", a, b, "--html", tmp_path / "p.html", "--measure", "loss")
    assert "train.max_steps" in compared and (tmp_path / "p.html").stat().st_size > 5000
    assert any(0x2800 < ord(character) < 0x2900 for character in compared)
    assert [run["step"] for run in json.loads(says(tmp_path, "--json"))] == [4, 4]
    assert main(["runs", "compare", str(a)]) == main(["runs", str(a), str(b)]) == 2
    assert main(["runs", "compare", str(a), str(b), "--measure", "lss"]) == 2
    assert "Did you mean 'loss'" in capsys.readouterr().err
