"""Lines that can't be read: a run names the first, or counts them all in its metrics and at its end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transpect.base.codec import dump_yaml
from transpect.base.errors import ConfigError, DataError
from transpect.train import load_recipe, read_metrics, train


def test_bad_lines_are_named_or_counted(
    plain: Callable[..., dict[str, Any]], told: Any, tmp_path: Path, corpora: dict[str, Path]
) -> None:
    file, pairs = tmp_path / "recipe.yaml", tmp_path / "pairs.tsv"
    pairs.write_text(f"{corpora['seq2seq'].read_text(encoding='utf-8')}bad\n\tbad\n", encoding="utf-8")
    recipe = plain("seq2seq")
    recipe["data"]["train"]["path"] = str(pairs)
    recipe["data"]["valid"] = dict(recipe["data"]["train"])
    recipe["train"]["max_steps"] = 1
    file.write_text(dump_yaml(recipe), encoding="utf-8")
    with pytest.raises(DataError, match=f"{pairs}:13: a line must have 2 columns"):
        train(load_recipe(file), tmp_path / "run")
    train(load_recipe(file, on_bad_line="skip"), tmp_path / "run", loggers=[told])
    assert [line["bad_lines"] for line in read_metrics(tmp_path / "run")] == [4]
    assert told.all("note")[-2].startswith(f"4 bad lines skipped: {pairs}:13: ")
    assert load_recipe(tmp_path / "run" / "recipe.yaml").data.train == load_recipe(file, on_bad_line="skip").data.train
    with pytest.raises(ConfigError, match="error or skip"):
        load_recipe(file, on_bad_line="ignore")
