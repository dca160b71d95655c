"""`transpect demo` on a model too small to learn: it leaves a run, and what it tells is true."""

import re
from pathlib import Path

import pytest

from transpect.cli.demo import TEXT, recipe_file
from transpect.data.fable import Fable

SMALL = (
    "--model.d_model=16",
    "--model.n_layers=2",
    "--model.n_heads=2",
    "--train.max_steps=2",
    "--train.batch_size=2",
    "--train.threads=1",
    "--data.valid.stories=5",
    "--tokenizer.texts=300",
    "--logging.tensorboard=false",
)


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("demo") / "run"


def test_it_trains_walks_and_leaves_a_run(cli, out, monkeypatch) -> None:
    monkeypatch.setenv("TRANSPECT_LANG", "en")
    answer = cli("demo", "--out", out, *SMALL)
    assert answer.code == 0, answer.err
    assert {"best", "last", "metrics.jsonl", "recipe.yaml"} <= {path.name for path in out.iterdir()}

    world = Fable("zh")
    assert world.story(0, 0).text("zh") in answer.out
    valid = [world.story(2, i).text("zh") for i in range(5)]
    loss, floor, gap = (
        float(number)
        for number in re.search(r"loss is (\S+) .* is (\S+): the model is (\S+) above", answer.out).groups()
    )
    assert floor == pytest.approx(world.optimal_loss(valid), abs=1e-4)
    assert gap == pytest.approx(loss - floor, abs=2e-4)
    table = answer.out[answer.out.index("The end:") :]
    rows = re.findall(r"^(\S+) +(0\.\d{4}) +(\d\.\d{4})", table, re.MULTILINE)
    assert len(rows) == 5
    exact = world.next_char("小猫爱吃")
    assert [float(true) for _, _, true in rows] == pytest.approx(
        [exact.get(char, 0.0) for char, _, _ in rows], abs=1e-4
    )

    monkeypatch.setenv("TRANSPECT_LANG", "zh")
    again = cli("demo", "--out", out, *SMALL, "--text", "小狗")
    assert again.code == 0, again.err
    assert "Nothing to do" in again.out, "a finished run is looked at, not trained again"
    assert "“小狗” 走过网络" in again.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--text", "鱼爱吃小猫"), "must begin a story.*'鱼'"),
        (("--data.train", "{kind: text, path: poems.txt}"), "world of fable"),
        (("--model.d_modle", "3"), "--model.d_modle: .*Did you mean 'd_model'"),
    ],
)
def test_what_can_t_be_is_refused_before_any_training(cli, tmp_path, words, says) -> None:
    answer = cli("demo", "--out", tmp_path / "run", *words)
    assert answer.code == 2
    assert answer.out == ""
    assert re.match(r"error: [^\n]+\n$", answer.err)
    assert re.search(says, answer.err), answer.err
    assert not (tmp_path / "run").exists()


def test_in_the_world_fish_comes_first() -> None:
    assert next(iter(Fable("zh").next_char(TEXT))) == "鱼"


def test_the_recipe_comes_with_the_package() -> None:
    assert recipe_file("demo.yaml").name == "demo.yaml"
