"""Means, spreads, reasons and the picture."""

import re
import xml.etree.ElementTree as ET
from statistics import mean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transpect.compare import Measured, Result, Spread, parse_comparison, report
from transpect.compare.cost import cost_of
from transpect.compare.figure import draw_figure
from transpect.compare.table import markdown

VARIANTS = {
    "rope": {"model.positions": "rope"},
    "learned": {"model.positions": "learned", "model.context_length": 16},
    "odd": {"model.positions": "rope", "model.head_dim": 7},
}
LOSSES = {"rope": [2.0, 2.5, 3.0], "learned": [1.0, 1.25, 1.5]}


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=6))
def test_the_spread_is_that_of_a_sample(numbers: list[float]) -> None:
    spread = Spread.of(numbers)
    assert spread.mean == pytest.approx(mean(numbers))
    assert spread.n == len(numbers)
    if len(numbers) == 1:
        assert spread.deviation is None
        assert "±" not in str(spread)
    else:
        assert spread.deviation == pytest.approx(stdev(numbers))
        assert str(spread) == f"{mean(numbers):.3f} ± {stdev(numbers):.3f}"


@pytest.fixture(scope="module")
def plan(plain):
    return parse_comparison(plain(variants=VARIANTS, seeds=3))


def results_of(plan, losses=LOSSES):
    found = {}
    for entry in plan.entries:
        found[entry.variant.name] = [
            Result(
                entry.variant.name,
                seed,
                "",
                "",
                entry.n_parameters,
                3,
                96,
                f"d{seed}",
                {
                    str(n): Measured(loss + 0.1 * n, loss + 0.5 * n, 8 // n, 64)
                    for n in plan.spec.lengths
                    if n not in entry.refused
                },
            )
            for seed, loss in enumerate(losses.get(entry.variant.name, []))
        ]
    return found


def test_cells(plan) -> None:
    grid, last = report(plan, results_of(plan), None).grids
    assert grid.columns[2:] == ("1× (8)", "2× (16)", "4× (32)")
    texts = [[cell.text for cell in row] for row in grid.rows]
    assert texts[0][2:] == ["2.600 ± 0.500", "2.700 ± 0.500", "2.900 ± 0.500"]
    assert texts[1][2:] == ["1.350 ± 0.250", "1.450 ± 0.250", "—¹"]
    assert texts[2][1:] == ["—", "—²", "—²", "—²"]
    assert [[cell.best for cell in row][2:] for row in grid.rows] == [
        [False, False, True],
        [True, True, False],
        [False] * 3,
    ]
    assert last.rows[0][4].text == "4.500 ± 0.500"
    share = plan.entries[1].n_parameters / plan.entries[0].n_parameters - 1
    assert texts[1][1] == f"{plan.entries[1].n_parameters:,} ({share:+.1%})"


def test_the_page_says_why_and_on_what(plan) -> None:
    page = markdown(plan, results_of(plan), None)
    assert re.search(r"¹ learned positions end at 16", page)
    assert re.search(r"² .*must be even", page)
    for words in ("over 3 seeds", "96 tokens in 3 steps, in rows of 8", "0: d0, 1: d1, 2: d2", "4×: 2 (64)"):
        assert words in page
    assert "**1.350 ± 0.250**" in page
    tables = [line for line in page.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in tables}) == 1


def test_what_is_missing_is_told(plan) -> None:
    page = markdown(plan, results_of(plan, {"rope": [2.0]}), None)
    assert "2.100 (n=1)" in page
    assert "one seed" in page
    assert "| — |" in page or "| — " in page
    assert markdown(plan, {}, None)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_both_languages(plan, monkeypatch, lang) -> None:
    monkeypatch.setenv("TRANSPECT_LANG", lang)
    page = markdown(plan, results_of(plan), {"rope": {1: cost_of([(1.0, 10.0)], [(2.0, 5.0)])}})
    assert ("随机种子" in page) == (lang == "zh")
    assert "0.50 (1,000 ms)" in page and "2.00 (10 MiB)" in page


def test_costs_are_ratios_round_by_round() -> None:
    first, mine = [(1.0, 100.0), (2.0, 100.0)], [(2.0, 150.0), (6.0, 250.0)]
    cost = cost_of(mine, first)
    assert (cost.time.mean, cost.memory.mean) == (2.5, 2.0)
    assert cost.time.deviation == pytest.approx(stdev([2.0, 3.0]))
    assert cost_of(first, first).time.mean == 1.0
    assert cost_of(mine, None).time is None


def test_the_picture_is_svg_with_a_line_for_each_that_has_numbers(plan, tmp_path) -> None:
    for name in ("one.svg", "two.svg"):
        draw_figure(tmp_path / name, plan, results_of(plan))
    text = (tmp_path / "one.svg").read_text("utf-8")
    assert text == (tmp_path / "two.svg").read_text("utf-8")
    ET.fromstring(text)
    assert all(word in text for word in ("rope", "learned", "nats a token", "2×"))
    assert ">odd<" not in text


@pytest.mark.parametrize("name", ["$\\foo$", "_private", "a, b", "带 ALiBi", "x < y & z", "nolegend", "5 $"])
def test_the_picture_shows_every_name_as_it_is(plain, tmp_path, name) -> None:
    plan = parse_comparison(plain(variants={name: {}, "rope": {"model.positions": "rope"}}))
    draw_figure(tmp_path / "figure.svg", plan, results_of(plan, {name: [2.0, 2.1], "rope": [2.0, 2.2]}))
    texts = [node.text for node in ET.parse(tmp_path / "figure.svg").iter() if node.tag.endswith("}text")]
    assert [text for text in texts if text in (name, "rope")] == [name, "rope"]


def test_a_measured_step_has_time_and_memory(plan) -> None:
    from transpect.compare.cost import _order, _step
    from transpect.compare.rows import cut_rows
    from transpect.train.material import documents, make_tokenizer

    tokenizer = make_tokenizer(plan.recipe.tokenizer, documents(plan.recipe)[0])
    rows = cut_rows(plan.recipe, tokenizer, plan.spec.lengths)
    order = _order(plan, plan.entries[0], rows[2])
    assert (len(order["ids"]), len(order["ids"][0])) == (2, 16), "as many tokens as a batch of training"
    seconds, mebibytes = _step(order)
    assert seconds > 0.0
    assert mebibytes > 0.0
