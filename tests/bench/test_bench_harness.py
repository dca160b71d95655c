"""The protocol, the turns, the numbers made of them, and what becomes of programs that fail."""

import json
import runpy
import statistics
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transpect.base.errors import ConfigError
from transpect.bench import worker as worker_module
from transpect.bench.harness import Work, check_bits
from transpect.bench.machine import Neighbours
from transpect.bench.report import as_data, markdown, results_of, summary
from transpect.bench.results import Absent, Bar, Ratio, Results, ratios, spread
from transpect.bench.worker import OURS, PeerError, Worker

WORK = Work("work", {"tokens": 10}, {"steps": "tokens/s"})
RATES = st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=7)


def loads(**theirs: dict[str, object]) -> dict[str, dict[str, object]]:
    return {OURS: {"seconds": 2.0, "bits": 32}, **theirs}


def test_a_worker_answers_loads_once_and_hears_only_its_own_threads(script: Path) -> None:
    with Worker("fake", script, threads=3) as worker:
        worker.load(seconds=1.0)
        first, second = worker.run(tokens=5), worker.run(tokens=6)
    assert worker.facts["versions"] == {"fake": "1"}
    assert (first["count"], second["count"]) == ({"steps": 5}, {"steps": 6})
    assert first["pid"] == second["pid"]
    assert first["threads"] == "3"
    assert not [place for place in first["path"] if "workers" in place]  # a file named as a library would hide it


def test_a_worker_says_what_is_wrong(script: Path, tmp_path: Path) -> None:
    with Worker("fake", script, threads=1) as worker:
        with pytest.raises(PeerError, match="can't load: OSError: no such file"):
            worker.load(fails=True)
        with pytest.raises(PeerError, match="run before load"):
            worker.run(tokens=1)
        worker.load(seconds=1.0, dies_at=1)
        for _ in range(2):
            with pytest.raises(PeerError, match="died with exit code 3: out of memory"):
                worker.run(tokens=1)
    with pytest.raises(PeerError, match="can't be started"):
        Worker("fake", script, tmp_path / "nowhere", threads=1)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="time of the processor is read from /proc")
def test_a_program_that_waits_busily_is_found_out(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "PATIENCE", 0.3)
    with Worker("fake", script, threads=1) as worker:
        worker.load(seconds=1.0, spins=True)
        with pytest.raises(PeerError, match="keeps the processor busy while it waits"):
            worker.run(tokens=1)


def test_each_takes_a_turn_a_round_and_a_ratio_is_ours_over_theirs(sitting) -> None:
    bars = {
        ("transformers", "steps"): Bar(1.5),
        ("ctranslate2", "steps"): Bar(1.0),
        ("transformers", "peak"): Bar(0.5, least=False),
    }
    work = Work("work", {"tokens": 10}, {"steps": "tokens/s"}, {"peak": "MB"}, bars, same=lambda a, b: "same")
    slower, faster = {"seconds": 4.0, "bits": 32, "peak": 4}, {"seconds": 1.0, "bits": 32}
    with sitting.field("any", "float32", loads(transformers=slower, ctranslate2=faster)) as field:
        taken = sitting.race(field, work)
    assert {who: len(answers) for who, answers in taken.items()} == {OURS: 3, "transformers": 3, "ctranslate2": 3}
    assert sitting.machine.looks == 4  # with the warm-up, and once a round for all
    found = {(ratio.against, ratio.measure): ratio for ratio in sitting.results.ratios}
    assert found["transformers", "steps"].values == (2.0,) * 3
    assert found["ctranslate2", "steps"].values == (0.5,) * 3
    assert found["transformers", "peak"].values == (0.25,) * 3
    assert [ratio.holds for ratio in found.values()] == [True, False, True, True]
    assert sitting.results.short == ["float32, work, steps against ctranslate2"]
    notes = [note for note in sitting.results.notes if "other processes" not in note]
    assert notes == ["float32, work: transformers: same", "float32, work: ctranslate2: same"]
    assert {figure.values for figure in sitting.results.figures if figure.who == OURS} == {(5.0,) * 3, (1.0,) * 3}


def test_equal_bits_alone_are_compared(sitting) -> None:
    with (
        pytest.raises(ConfigError, match="only equal bits are compared"),
        sitting.field("any", "float32", loads(transformers={"seconds": 1.0, "bits": 16})),
    ):
        pass
    check_bits("int8", "x", 8, None)
    check_bits("int8", "x", 8, 8)


def test_a_peer_that_fails_leaves_the_others_their_figures_and_its_bar_unreached(sitting) -> None:
    dies = {"seconds": 1.0, "dies_at": 3}
    work = Work("work", {"tokens": 10}, {"steps": "tokens/s"}, bars={("ctranslate2", "steps"): Bar(1.0)})
    with sitting.field("any", "f", loads(transformers={"fails": True}, ctranslate2=dies)) as field:
        taken = sitting.race(field, work)
    assert {who: len(answers) for who, answers in taken.items()} == {OURS: 3}
    assert [(gone.who, gone.barred) for gone in sitting.results.absent] == [
        ("transformers", False),
        ("ctranslate2", True),
    ]
    assert len(sitting.results.short) == 1 and "out of memory" in sitting.results.short[0]


def test_ours_must_not_fail(sitting) -> None:
    with pytest.raises(PeerError, match="ours can't load"), sitting.field("any", "f", {OURS: {"fails": True}}):
        pass


def test_all_must_do_the_same_amount_of_work(sitting) -> None:
    with (
        sitting.field("any", "f", loads(transformers={"seconds": 1.0, "count": 9})) as field,
        pytest.raises(AssertionError, match="the same amount"),
    ):
        sitting.race(field, WORK)


@given(RATES)
def test_ratios_go_round_by_round(ours: list[float]) -> None:
    theirs = [2 * rate for rate in ours]
    assert ratios(ours, theirs) == (0.5,) * len(ours)
    ratio = Ratio("c", "x", "steps", tuple(ours))
    assert min(ours) <= ratio.median <= max(ours) and ratio.median == statistics.median(ours)
    assert ratio.holds and Ratio("c", "x", "steps", tuple(ours), Bar(ratio.median)).holds
    assert not Ratio("c", "x", "steps", tuple(ours), Bar(ratio.median * 1.01)).holds
    assert not Ratio("c", "x", "steps", tuple(ours), Bar(ratio.median * 0.99, least=False)).holds


def test_a_spread_is_the_median_and_the_ends() -> None:
    assert spread([3.0, 1.0, 2.0]) == "2 (1–3)"


def test_reports_tell_what_is_short(sitting) -> None:
    with sitting.field("any", "f", loads(transformers={"seconds": 1.0})) as field:
        sitting.race(field, Work("w", {"tokens": 10}, {"steps": "tokens/s"}, bars={("transformers", "steps"): Bar(1)}))
    sitting.judge("f, w", "the machine", "memory read", (0.5, 0.6, 0.7), Bar(0.75))
    text, line = markdown(sitting.results), summary("decode", sitting.results)
    assert "| f, w | ours | 5 (5–5) |" in text
    assert "| f, w | transformers | steps | 0.5 (0.5–0.5) | ≥ 1 | **falls short** |" in text
    assert (
        line
        == "bench decode: f, w / transformers 0.50 (≥ 1, SHORT); f, w / the machine memory read 0.60 (≥ 0.75, SHORT)"
    )
    data = as_data("decode", {"model": "m"}, sitting)
    assert [ratio["holds"] for ratio in data["ratios"]] == [False, False]
    assert data["versions"] == {"ours": {"fake": "1"}, "transformers": {"fake": "1"}}
    again = results_of(json.loads(json.dumps(data)))
    assert markdown(again) == text and again.short == sitting.results.short
    gone = Results(absent=[Absent("c", "llama.cpp", "why", barred=True)])
    assert "NO FIGURE" in summary("x", gone) and "c: llama.cpp: no figure: why" in markdown(gone)
    assert summary("x", Results()) == "bench x: no bars"


def test_pages_hold_the_tables_of_the_results() -> None:
    root = Path(__file__).parents[2]
    tables = runpy.run_path(str(root / "benchmarks" / "tables.py"))
    for page in tables["PAGES"]:
        text = page.read_text(encoding="utf-8")
        assert tables["with_tables"](text) == text, "python benchmarks/tables.py writes them"


def test_a_table_is_written_between_its_marks(tmp_path: Path) -> None:
    with_tables = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "tables.py"))["with_tables"]
    data = {"about": "A machine.", "figures": [], "ratios": [], "absent": [], "notes": ["a note"], "versions": {}}
    (tmp_path / "load.json").write_text(json.dumps(data), encoding="utf-8")
    page = "a\n<!-- bench load -->\nold\n<!-- /bench -->\nb\n<!-- bench decode -->\nkept\n<!-- /bench -->\n"
    made = with_tables(page, tmp_path)
    assert "old" not in made and "kept" in made and "A machine.\n" in made and "- a note\n<!-- /bench -->\nb" in made
    assert with_tables(made, tmp_path) == made


def test_neighbours_are_whoever_else_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([(1000, 100, 50), (2000, 700, 450), (1000, 100, 50), (1010, 110, 50), None, (1, 1, 1)])
    monkeypatch.setattr(Neighbours, "_look", lambda self: next(looks))
    assert Neighbours([]).share() == 0.2  # of 1,000 ticks 600 were busy, 400 of them ours
    assert Neighbours([]).share() is None  # too short
    assert Neighbours([]).share() is None  # a system that doesn't say
