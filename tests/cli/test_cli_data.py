"""`transpect data`: prepare, stats, show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

RECIPE = {
    "model": {"preset": "gpt2", "d_model": 16, "n_layers": 1, "n_heads": 2, "context_length": 32},
    "tokenizer": {"kind": "char", "special_tokens": {"mask": "<mask>"}},
    "data": {"train": {"kind": "fable", "lang": "zh", "stories": 20}, "valid": None},
}


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    rows = [{"text": "天地玄黄"}, {"text": "宇宙洪荒abc"}, {"text": "天地玄黄"}, {"text": "宇宙洪荒abcd"}]
    file = tmp_path / "x.jsonl"
    file.write_text("\n".join([*(json.dumps(row) for row in rows), "{"]), encoding="utf-8")
    return file


def test_data_is_prepared_counted_and_trained_on(cli: Any, lines: Path, tmp_path: Path) -> None:
    text = tmp_path / "x.txt"
    text.write_text("天地玄黄宇宙洪荒abcd\n", encoding="utf-8")
    assert cli("tokenizer", "train", text, "--kind", "char", "--out", tmp_path / "tok").code == 0
    words = ("data", "prepare", lines, text, "--out", tmp_path / "out", "--tokenizer", tmp_path / "tok")
    bad = cli(*words)
    assert bad.code == 2 and f"{lines}:5: a line must be one JSON object" in bad.err
    good = (*words, "--on-bad-line", "skip", "--dedup", "near:0.5", "--shard-tokens", 5)
    assert "begun with another source" in cli(*good).err
    good = (*good[:5], tmp_path / "near", *good[6:])
    answer = cli(*good)
    assert answer.code == 0, answer.err
    assert "3 documents, 23 tokens in 2 shards (0 were there already)" in answer.out
    assert f"1 bad line skipped: {lines}:5: " in answer.out
    assert "(2 were there already)" in cli(*good).out
    counted = json.loads(cli("data", "stats", tmp_path / "near", "--json").out)
    assert (counted["documents"], counted["tokens"], counted["bad_lines"]) == (3, 23, 1)
    recipe = tmp_path / "r.yaml"
    tokens = {"kind": "tokens", "path": str(tmp_path / "near")}
    data = {"train": tokens, "valid": None, "seq_len": 16}
    content = {**RECIPE, "tokenizer": {"path": str(tmp_path / "near" / "tokenizer")}, "data": data}
    recipe.write_text(yaml.safe_dump(content), encoding="utf-8")
    answer = cli("train", recipe, "--out", tmp_path / "run", "--train.max_steps", 1, "--train.batch_size", 1)
    assert answer.code == 0, answer.err


@pytest.mark.parametrize("wrong", ["fuzzy", "near:high", "near:2"])
def test_other_ways_to_find_duplicates_are_refused(wrong: str, cli: Any, lines: Path, tmp_path: Path) -> None:
    cli("tokenizer", "train", lines, "--kind", "char", "--out", tmp_path / "tok")
    (tmp_path / "x.txt").write_text("天", encoding="utf-8")
    cli("tokenizer", "train", tmp_path / "x.txt", "--kind", "char", "--out", tmp_path / "tok")
    words = ("data", "prepare", lines, "--out", tmp_path / "out", "--tokenizer", tmp_path / "tok", "--dedup", wrong)
    assert cli(*words).code == 2
    assert cli("data", "prepare", lines, "--out", tmp_path / "out").err.startswith("error: to be encoded, data needs")


def test_statistics_are_counts(cli: Any, lines: Path) -> None:
    assert cli("data", "stats", lines).code == 2
    found = json.loads(cli("data", "stats", lines, "--on-bad-line", "skip", "--json").out)
    assert found == {
        "documents": 4,
        "characters": 23,
        "duplicates": 1,
        "bad_lines": 1,
        "longest": 8,
        "lengths": {"4": 3, "8": 1},
        "scripts": {"CJK": 16, "LATIN": 7},
    }
    shown = cli("data", "stats", lines, "--on-bad-line", "skip").out
    assert "duplicates" in shown and "4–7" in shown and "69.6%" in shown


@pytest.mark.parametrize(("objective", "preset"), [("causal", "gpt2"), ("masked", "bert-base")])
def test_rows_are_shown_as_training_reads_them(objective: str, preset: str, cli: Any, tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    model = {**RECIPE["model"], "preset": preset}
    file.write_text(yaml.safe_dump({**RECIPE, "model": model}), encoding="utf-8")
    words = ("data", "show", file, "--rows", 2, "--data.objective", objective)
    rows = [json.loads(line) for line in cli(*words, "--json").out.splitlines()]
    assert len(rows) == 2
    for row in rows:
        labelled = [(i, label) for i, label in enumerate(row["label_tokens"]) if label is not None]
        assert labelled
        if objective == "causal":
            follows = [(i, row["tokens"][i + 1]) for i, _ in labelled[:-1] if row["positions"][i + 1]]
            assert set(follows) <= set(labelled)
        else:
            assert any(row["tokens"][i] == "<mask>" for i, _ in labelled)
    shown = cli(*words)
    assert shown.code == 0 and "row 2: " in shown.out
    assert ("<mask>→" in shown.out) == (objective == "masked")


@pytest.mark.parametrize(
    ("objective", "preset"),
    [("classification", "gpt2"), ("contrastive", "bert-base"), ("token_classification", "bert-base")],
)
def test_rows_of_classes_are_shown_with_their_names(objective: str, preset: str, cli: Any, tmp_path: Path) -> None:
    file, rows = tmp_path / "r.yaml", tmp_path / "rows.tsv"
    between = "\n\n" if objective == "token_classification" else "\n"
    rows.write_text("".join(f"some text {n}\tclass-{n % 3}{between}" for n in range(9)), encoding="utf-8")
    kind = "tagged" if objective == "token_classification" else "tsv"
    data = {"train": {"kind": kind, "path": str(rows)}, "valid": None, "objective": objective}
    model = {**RECIPE["model"], "preset": preset}
    file.write_text(yaml.safe_dump({**RECIPE, "model": model, "data": data}), encoding="utf-8")
    words = ("data", "show", file, "--rows", 3)
    shown = cli(*words)
    assert shown.code == 0, shown.err
    assert "s o m e" in shown.out or "s→" in shown.out
    found = [json.loads(line) for line in cli(*words, "--json").out.splitlines()]
    if objective == "classification":
        assert all(f"class: {row['class']}" in shown.out for row in found)
    elif objective == "token_classification":
        assert all([one[:6] for one in row["label_tokens"] if one] == ["class-"] for row in found)
    else:
        assert len(found) == 6 and all(set(row["label_tokens"]) == {None} for row in found)
