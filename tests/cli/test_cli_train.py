"""A run from the command line: train, go on, generate, evaluate."""

import json
import math
from pathlib import Path

import pytest
import yaml

RECIPE = """\
model: {preset: gpt2, d_model: 32, n_heads: 2, n_layers: 1, context_length: 32}
tokenizer: char
data:
  train: {kind: fable, stories: 60}
  valid: {kind: fable, stories: 10, seed: 1}
train: {max_steps: 8, batch_size: 4, save_every: 4, eval_every: 4, log_every: 2, threads: 1}
logging: {tensorboard: false}
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("recipes") / "tiny.yaml"
    file.write_text(RECIPE, encoding="utf-8")
    return file


def metrics(run: Path) -> list[dict[str, float]]:
    timings = {"seconds", "tokens_per_s"}
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{key: value for key, value in row.items() if key not in timings} for row in rows]


def weights(run: Path) -> bytes:
    return (run / "last" / "model.safetensors").read_bytes()


def test_from_recipe_to_text(cli, recipe, tmp_path) -> None:
    """The whole way: a run, the same again, its text, its measures."""
    whole = tmp_path / "whole"
    answer = cli("train", recipe, "--out", whole)
    assert answer.code == 0, answer.err
    assert "max_steps: 8" in answer.out, "the resolved recipe is printed"
    assert {"best", "last", "metrics.jsonl", "recipe.yaml"} <= {path.name for path in whole.iterdir()}

    assert cli("train", recipe, "--out", tmp_path / "again", "--resume", "auto").code == 0, "auto may start anew"
    assert metrics(tmp_path / "again") == metrics(whole)
    assert weights(tmp_path / "again") == weights(whole)

    text = cli("generate", whole, "小猫爱吃", "--temperature", 0, "--max-new-tokens", 4)
    assert text.code == 0, text.err
    assert text.out.startswith("小猫爱吃")

    last = metrics(whole)[-1]
    for model in (whole, whole / "last"):
        measured = json.loads(cli("eval", model, "--json").out)
        assert measured["n_documents"] == 10
        assert measured["bits_per_character"] > 0
    assert measured["loss"] == pytest.approx(last["valid_loss"], abs=1e-5)
    assert measured["perplexity"] == pytest.approx(math.exp(last["valid_loss"]), rel=1e-4)

    shown = cli("model", "show", whole, "--config")
    assert yaml.safe_load(shown.out)["d_model"] == 32


def test_a_stopped_run_is_saved_and_goes_on_to_the_same_end(cli, recipe, tmp_path, monkeypatch) -> None:
    from transpect.train import loop

    whole, run = tmp_path / "whole", tmp_path / "run"
    assert cli("train", recipe, "--out", whole).code == 0
    session = loop.Session.go
    with monkeypatch.context() as patch:
        patch.setattr(loop.Session, "go", lambda self, stop: session(self, lambda step: stop(step) or step == 5))
        stopped = cli("train", recipe, "--out", run)
    assert stopped.code == 130
    assert "--resume auto" in stopped.out
    assert cli("train", recipe, "--out", run, "--resume", "auto").code == 0
    assert metrics(run) == metrics(whole)
    assert weights(run) == weights(whole)


def test_data_on_the_command_line_replaces_the_recipe_s(cli, recipe, tmp_path) -> None:
    data = tmp_path / "poems.txt"
    data.write_text("".join(f"床前明月光{chr(0x4E00 + i)}。\n" for i in range(40)), encoding="utf-8")
    run = tmp_path / "run"
    answer = cli("train", recipe, "--out", run, "--data", data, "--train.max_steps", 1)
    assert answer.code == 0, answer.err
    used = yaml.safe_load((run / "recipe.yaml").read_text(encoding="utf-8"))
    assert used["data"]["train"] == {"kind": "text", "path": str(data), "by": "auto", "on_bad_line": "error"}
    assert json.loads(cli("eval", run, "--json").out)["n_documents"] == 2, "a twentieth is held out"


@pytest.mark.parametrize(
    "words",
    [
        ("--model.d_model", "16", "--train.max_steps", "1"),
        ("--model.d_model=16", "--train.max_steps=1"),
    ],
)
@pytest.mark.parametrize("before", [True, False])
def test_overrides_stand_anywhere_and_in_either_form(cli, recipe, tmp_path, words, before) -> None:
    line = [*words, recipe, "--out", tmp_path / "run"] if before else [recipe, "--out", tmp_path / "run", *words]
    assert cli("train", *line).code == 0
    used = yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text(encoding="utf-8"))
    assert (used["model"]["d_model"], used["train"]["max_steps"]) == (16, 1)


def test_a_run_is_never_written_over(cli, recipe, tmp_path) -> None:
    cli("train", recipe, "--out", tmp_path / "run", "--train.max_steps", 1)
    before = weights(tmp_path / "run")
    answer = cli("train", recipe, "--out", tmp_path / "run", "--train.max_steps", 1, "--train.seed", 9)
    assert answer.code == 2
    assert "--resume auto" in answer.err
    assert weights(tmp_path / "run") == before
