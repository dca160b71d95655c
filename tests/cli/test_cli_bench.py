"""`transpect bench`: its pages, what it refuses before anything runs, its tables, its exit code."""

import json
from pathlib import Path

import pytest

from transpect.base.messages import TABLE
from transpect.bench import decode
from transpect.bench.harness import Options, Sitting
from transpect.bench.results import Bar, Ratio
from transpect.cli.page import COMMANDS

TASKS = COMMANDS["bench"]


@pytest.mark.parametrize("task", TASKS)
def test_each_task_has_a_page(cli, task: str) -> None:
    answer = cli("bench", task, "--help")
    assert answer.code == 0
    assert TABLE[f"cli.bench.{task}"]["en"].split()[0] in answer.out
    assert "--rounds" in answer.out and "--out" in answer.out


def test_a_task_that_there_is_none_of_is_refused(cli) -> None:
    answer = cli("bench", "fly")
    assert answer.code == 2
    assert "fly" in answer.err and "transpect bench --help" in answer.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--against", "llama"), "Did you mean 'llama.cpp'"),
        (("--against", "nanogpt-style"), "decode is measured against llama.cpp, ctranslate2, transformers"),
        (("--formats", "float3"), "Did you mean 'float32'"),
        (("--batch", "1,x"), "whole numbers"),
        (("--batch", "0"), "whole numbers"),
        (("--new", "1"), "--new must be at least 2"),
        (("--rounds", "0"), "--rounds must be at least 1"),
        (("--threads", "0"), "--threads must be at least 1"),
        (("--peer-python", "llama.cpp"), "NAME=PATH"),
        (("--peer-python", "llama.cpp=nowhere"), "NAME=PATH"),
        (("--peer-python", "nobody=/bin/sh"), "Peers are llama.cpp"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_runs(cli, words: tuple[str, ...], said: str) -> None:
    answer = cli("bench", "decode", *words)
    assert answer.code == 2
    assert said in answer.err


@pytest.mark.parametrize(("value", "code"), [(1.5, 0), (0.5, 1)])
def test_the_exit_code_tells_whether_all_bars_are_reached(
    cli, value: float, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(options: Options, what: decode.Decoding) -> Sitting:
        sitting = Sitting(options)
        sitting.machine.gemm, sitting.machine.reads = {"float32": 1.0}, [10.0]
        assert (what.formats, what.batches, what.new) == (("float32",), (2, 3), 5)
        sitting.results.ratios.append(Ratio("float32", "llama.cpp", "steps", (value,), Bar(1.0)))
        return sitting

    monkeypatch.setattr(decode, "measure", measure)
    options = ("--formats", "float32", "--batch", "2,3", "--new", "5", "--out", tmp_path / "a" / "decode.json")
    answer = cli("bench", "decode", *options)
    assert answer.code == code
    assert answer.out.splitlines()[-1].startswith(f"bench decode: float32 / llama.cpp {value:.2f} (≥ 1")
    data = json.loads((tmp_path / "a" / "decode.json").read_text(encoding="utf-8"))
    assert data["options"]["formats"] == ["float32"]
    assert data["ratios"][0]["holds"] is (code == 0)
