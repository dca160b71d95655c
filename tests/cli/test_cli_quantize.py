"""`transpect quantize` says what fewer bits change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Cli

import transpect
from transpect.quant import Plan, agreement, bits_per_weight, format_named, quantise_model, windows_of

TEXT = "小猫爱吃鱼。小狗爱吃肉。老人在河边卖鱼。今天下雨，小鸟不来。" * 4


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text(TEXT, encoding="utf-8")
    return file


def test_the_numbers_are_those_of_the_library(cli: Cli, tiny: Path, text: Path) -> None:
    full, changed = (transpect.load(tiny, device="cpu", dtype="float32") for _ in range(2))
    ids = full.tokenizer.encode(TEXT)
    quantise_model(changed.model, Plan(format_named("int4"), {"token": format_named("int8"), "down": None}))
    found = agreement(full.model, changed.model, windows_of(ids, 16, 80))
    words = ("quantize", tiny, "--format", "int4", "--eval", text, "--keep", "token=int8", "--keep", "down=full")
    answer = cli(*words, "--tokens", "80", "--length", "16", "--json")
    assert answer.code == 0, answer.err
    values = json.loads(answer.out)
    assert values["n_tokens"] == found.n_tokens == 75
    assert values["perplexity"] == pytest.approx(found.perplexity) != values["perplexity_before"]
    assert values["perplexity_before"] == pytest.approx(found.perplexity_before)
    assert (values["kl"], values["top1"]) == (pytest.approx(found.kl, abs=1e-7), found.top1)
    assert values["bits_per_weight"] == bits_per_weight(changed.model, full.model)
    table = cli(*words, "--tokens", "80", "--length", "16").out
    assert f"{found.perplexity:.4f}" in table and f"{100 * found.top1:.2f} %" in table


def test_gptq_reads_its_own_text(cli: Cli, tiny: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("quantize", tiny, "--format", "int4", "--eval", text, "--json")
    rounded = json.loads(cli(*words).out)
    answer = cli(*words, "--method", "gptq", "--calibration", text)
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["kl"] < rounded["kl"]
    monkeypatch.setenv("TRANSPECT_LANG", "zh")
    assert "首选一致率" in cli(*words[:-1]).out


def test_what_is_saved_is_what_was_compared(cli: Cli, tiny: Path, text: Path, tmp_path: Path) -> None:
    words = ("quantize", tiny, "--format", "int8", "--keep", "token=int8", "--out", tmp_path / "out")
    answer = cli(*words, "--eval", text, "--json")
    assert answer.code == 0, answer.err
    said = json.loads(answer.out)
    full, saved = (transpect.load(place, device="cpu", dtype="float32") for place in (tiny, tmp_path / "out"))
    assert saved.tokenizer.encode(TEXT) == full.tokenizer.encode(TEXT) and saved.generation == full.generation
    found = agreement(full.model, saved.model, windows_of(full.tokenizer.encode(TEXT), 24))
    assert said["out"] == str(tmp_path / "out")
    assert (said["perplexity"], said["top1"]) == (pytest.approx(found.perplexity), found.top1)
    again = cli(*words)
    assert again.code == 0 and str(tmp_path / "out") in again.out and "perplexity" not in again.out


def test_it_has_something_to_do(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    assert "--out DIR" in cli("quantize", tiny).err
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    answer = cli("quantize", tiny, "--out", tmp_path / "notes")
    assert answer.code == 2 and "not replaced" in answer.err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--method", "best"), "Methods: round, gptq, awq"),
        (("--method", "awq"), "--calibration FILE"),
        (("--method", "gptq"), "--calibration FILE"),
        (("--calibration", "x.txt"), "--method gptq"),
        (("--format", "int3"), "no such weight format"),
        (("--keep", "down"), "--keep down=int8"),
        (("--keep", "nothing=int8"), "no weight has a name"),
        (("--eval", "absent.txt"), "can't read"),
        (("--tokens", "3"), "fill a window"),
    ],
)
def test_it_refuses_in_one_line(cli: Cli, tiny: Path, text: Path, words: tuple[str, ...], part: str) -> None:
    answer = cli("quantize", tiny, "--eval", text, *words)
    assert answer.code == 2 and part in answer.err and not answer.out
    assert answer.err.count("\n") <= 2
