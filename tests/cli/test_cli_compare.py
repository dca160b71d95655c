"""`transpect compare` from the command line: what it prints, leaves and refuses."""

import pytest

RECIPE = """\
model: {preset: gpt2, d_model: 16, n_heads: 2, n_layers: 1, context_length: 16}
tokenizer: char
data:
  train: {kind: text, path: TEXT, by: file}
  valid: 0.3
  objective: {kind: causal, pack: false}
  seq_len: 8
train: {max_steps: 2, batch_size: 2, threads: 1}
logging: {tensorboard: false}
"""
SECTION = """\
compare:
  lengths: [1, 2]
  seeds: 2
  variants:
    one: {model.positions: rope}
    two: {model.positions: [alibi]}
"""


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("".join(chr(97 + i * i % 23) for i in range(400)), encoding="utf-8")
    (tmp_path / "r.yaml").write_text(RECIPE.replace("TEXT", "text.txt"), encoding="utf-8")
    (tmp_path / "bad.yaml").write_text(RECIPE.replace("TEXT", "text.txt") + SECTION, encoding="utf-8")
    (tmp_path / "good.yaml").write_text(
        RECIPE.replace("TEXT", "text.txt") + SECTION.replace("[alibi]", "alibi"), encoding="utf-8"
    )
    return "r.yaml"


def test_values_on_the_command_line(cli, recipe, tmp_path) -> None:
    words = ["compare", recipe, "--vary", "model.positions=rope,far=rope{theta: 5e5}", "--lengths", "1,2"]
    answer = cli(*words, "--seeds", 2, "--train.max_steps", 1)
    assert answer.code == 0, answer.err
    assert "2 variants, 4 trainings of 1 steps (0 of them done), into runs/compare-r" in answer.out
    for text in ("[4/4] far, seed 1: loss 1× ", "2× (16)", "± ", "over 2 seeds"):
        assert text in answer.out
    out = tmp_path / "runs" / "compare-r"
    assert {path.name for path in out.iterdir()} == {"results.jsonl", "table.md", "figure.svg", "runs"}
    again = cli(*words, "--seeds", 2, "--train.max_steps", 1)
    assert again.code == 0
    assert "(4 of them done)" in again.out
    assert again.out.split("\n\n", 1)[1] == answer.out.split("\n\n", 1)[1]


def test_a_section_of_the_recipe_and_options_over_it(cli, recipe) -> None:
    answer = cli("compare", "good.yaml", "--seeds", 1, "--out", "there", "--lengths", "1", "--equal", "parameters")
    assert answer.code == 0, answer.err
    assert "[2/2] two, seed 0" in answer.out
    assert "2× (16)" not in answer.out


def test_a_stopped_comparison_says_how_to_go_on(cli, recipe, monkeypatch) -> None:
    monkeypatch.setattr("transpect.compare.pool.run_task", lambda task, **_: None)
    answer = cli("compare", "good.yaml")
    assert answer.code == 130
    assert "same command goes on" in answer.out


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("compare r.yaml", "at least two variants.*--vary"),
        ("compare r.yaml --vary model.positions=rope", "at least two variants"),
        ("compare r.yaml --vary model.positions", "dotted key and its values"),
        ("compare r.yaml --vary model.positions=rope,roap", "option --vary model.positions: variant 'roap'.*'rope'"),
        ("compare r.yaml --vary model.position=rope,alibi", "no key 'position'.*'positions'"),
        ("compare r.yaml --vary data.seq_len=4,8", "read the same tokens"),
        ("compare r.yaml --vary model.d_model=16,32 --vary model.d_model=8,16", "varied once.*model.d_model"),
        ("compare good.yaml --lengths 1,two", "--lengths must be whole numbers"),
        ("compare good.yaml --lengths 2,1", "lengths must be multiples"),
        ("compare good.yaml --lengths 1,99", "tokens of a row at 99 times"),
        ("compare good.yaml --equal time", "--equal can be parameters"),
        ("compare good.yaml --seeds 0", "seeds must be at least 1"),
        ("compare good.yaml --jobs 0", "jobs must be at least 1"),
        ("compare bad.yaml", r"bad.yaml:1\d: variant 'two'"),
        ("compare missing.yaml", "missing.yaml: no such file"),
        ("compare good.yaml --model.d_modle 8", "d_modle.*d_model"),
    ],
)
def test_a_slip_is_one_line_and_trains_nothing(cli, recipe, tmp_path, line, says) -> None:
    import re

    answer = cli(*line.split())
    assert answer.code == 2, answer.out
    assert re.search(f"^error: .*{says}[^\n]*\n$", answer.err), answer.err
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").glob("*/runs"))
