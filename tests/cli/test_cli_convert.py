"""`transpect convert`, and names of models wherever a command takes a model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transpect.interop import load_config, load_model

Cli = Callable[..., Any]


@pytest.fixture
def packed(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The tiny model as a package that is installed."""
    import shutil

    site = tmp_path / "site"
    shutil.copytree(tiny, site / "tiny_model" / "data")
    info = site / "tiny_model-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
    files = [file.relative_to(site) for file in site.rglob("*") if file.is_file()]
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    monkeypatch.syspath_prepend(str(site))
    return "pip:tiny-model"


def test_convert_says_what_it_wrote(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    answer = cli("convert", tiny, tmp_path / "out", "--dtype", "bfloat16")
    assert answer.code == 0
    assert answer.err == ""
    assert str(tmp_path / "out") in answer.out
    assert "gpt2" in answer.out
    assert load_model(tmp_path / "out").token.weight.dtype == torch.bfloat16


def test_convert_in_chinese(cli: Cli, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSPECT_LANG", "zh")
    assert "个参数" in cli("convert", tiny, tmp_path / "out").out


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--to", "ggml"), "Use hf, gguf, onnx"),
        (("--dtype", "q8_0"), "float32"),
        (("--to", "gguf"), "Name a .gguf file"),
    ],
)
def test_convert_refuses_in_one_line(cli: Cli, tiny: Path, tmp_path: Path, words: tuple[str, ...], part: str) -> None:
    answer = cli("convert", tiny, tmp_path / "out", *words)
    assert answer.code == 2
    assert answer.out == ""
    assert part in answer.err
    assert answer.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_convert_needs_to_be_allowed_pickles(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    source = tmp_path / "source"
    cli("convert", tiny, source)
    torch.save(load_file(source / "model.safetensors"), source / "pytorch_model.bin")
    (source / "model.safetensors").unlink()
    assert "--allow-pickle" in cli("convert", source, tmp_path / "out").err
    for words in (("convert", source, tmp_path / "out"), ("generate", source, "小", "--max-new-tokens", "1")):
        assert cli(*words, "--allow-pickle").code == 0


def test_every_command_that_takes_a_model_takes_a_name(cli: Cli, packed: str, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("小猫爱吃鱼。\n小狗爱吃肉。\n", encoding="utf-8")
    for words in (
        ("generate", "小猫", "--temperature", "0", "--max-new-tokens", "3"),
        ("eval", "--data", tmp_path / "data.txt", "--json"),
    ):
        command, *rest = words
        by_name, by_path = cli(command, packed, *rest), cli(command, tiny, *rest)
        assert by_name == by_path
        assert by_name.code == 0
    for first, *rest in (("encode", "小猫"), ("decode", "3", "4")):
        assert cli("tokenizer", first, packed, *rest) == cli("tokenizer", first, tiny, *rest)
    shown = cli("model", "show", packed, "--config")
    assert shown == cli("model", "show", tiny, "--config")
    assert shown.code == 0
    assert cli("convert", packed, tmp_path / "out").code == 0
    assert load_config(tmp_path / "out") == load_config(tiny)


def test_an_absent_package_names_the_command(cli: Cli) -> None:
    for words in (("generate", "pip:llm-never-made", "x"), ("model", "show", "pip:llm-never-made")):
        answer = cli(*words)
        assert answer.code == 2
        assert "pip install llm-never-made" in answer.err


def test_what_is_written_opens_by_its_config(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    cli("convert", tiny, tmp_path / "out")
    assert json.loads((tmp_path / "out/config.json").read_text())["model_type"] == "gpt2"
