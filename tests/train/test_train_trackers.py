"""Trackers of others: what they are told, by a stand-in that keeps it; and the packages themselves, where installed."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from transpect.base.errors import ConfigError
from transpect.train import Recipe, read_metrics, train

Make = Callable[..., Recipe]
SAMPLES = {"logging.samples": {"prompts": ["<b>"], "max_new_tokens": 2}}


class Standing:
    """As much of either package as is used, with what it was told."""

    def __init__(self) -> None:
        self.begun: list[dict[str, Any]] = []
        self.logged: list[tuple[int, dict[str, Any]]] = []
        self.finished = 0

    def init(self, **options: Any) -> Any:
        self.begun.append(options)
        return SimpleNamespace(log=self.log, finish=self.finish)

    def log(self, data: dict[str, Any], step: int) -> None:
        self.logged.append((step, data))

    def finish(self) -> None:
        self.finished += 1

    @staticmethod
    def Settings(**options: Any) -> dict[str, Any]:  # noqa: N802
        return options

    @staticmethod
    def Html(page: str) -> str:  # noqa: N802
        return page

    @staticmethod
    def Text(text: str, caption: str) -> str:  # noqa: N802
        return f"{caption}: {text}"


@pytest.mark.parametrize("kind", ["wandb", "swanlab"])
def test_it_is_told_what_the_metrics_file_is(
    kind: str, recipe_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Standing()
    monkeypatch.setitem(sys.modules, kind, package)
    recipe = recipe_of("causal", SAMPLES | {"logging.trackers": [{"kind": kind, "project": "p", "tags": ["a"]}]})
    train(recipe, tmp_path / "run", should_stop=lambda step: step == 4)
    train(recipe, tmp_path / "run", resume="auto")
    assert package.finished == len(package.begun) == 2
    assert all(own["mode"] == "offline" and own["name"] == "run" for own in package.begun)
    assert package.begun[0]["config"]["train"]["max_steps"] == 7
    assert package.begun[0].get("id") == package.begun[1].get("id")
    told = [(step, data) for step, data in package.logged if "train/loss" in data]
    for line, (step, data) in zip(read_metrics(tmp_path / "run"), told, strict=True):
        assert (line["step"], line["loss"]) == (step, data["train/loss"])
        assert line.get("valid_loss") == data.get("valid/loss")
    written = [data["samples/<b>"] for _, data in package.logged if "samples/<b>" in data]
    assert written and all(text.startswith("<b>&lt;b&gt;</b>" if kind == "wandb" else "<b>: ") for text in written)


@pytest.mark.parametrize("kind", ["wandb", "swanlab"])
def test_without_the_package_it_says_how_to_have_it(
    kind: str, recipe_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, kind, None)
    with pytest.raises(ConfigError, match="needs the package") as caught:
        train(recipe_of("causal", {"logging.trackers": [kind]}), tmp_path / "run")
    assert f"transpect[{kind}]" in caught.value.remedy


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wandb", "swanlab"])
def test_the_package_itself_takes_it_offline(kind: str, recipe_of: Make, tmp_path: Path) -> None:
    pytest.importorskip(kind)
    train(recipe_of("causal", SAMPLES | {"logging.trackers": [kind]}), tmp_path / "run")
    files = [file for file in (tmp_path / "run" / kind).rglob("*") if file.is_file() and file.name != "id"]
    assert sum(file.stat().st_size for file in files) > 1000
