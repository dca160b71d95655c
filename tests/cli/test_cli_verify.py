"""`transpect verify` prints a table, leaves a certificate, and ends with 1 when a row falls short."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from transpect.cache import DenseCache
from transpect.core import Pooled, Transformer, override, preset
from transpect.core.kernels import Sdpa
from transpect.interop.gguf import write_gguf
from transpect.lm import LanguageModel
from transpect.text import train_tokenizer

CONTEXT = 24  # of the model `tiny`


@pytest.fixture
def own(tiny: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model that a test may write beside."""
    return Path(shutil.copytree(tiny, tmp_path / "own"))


def test_a_sound_model_gets_a_certificate_beside_its_weights(cli, own: Path) -> None:
    answer = cli("verify", own, "--no-peers")
    assert answer.code == 0, answer.out + answer.err
    certificate = json.loads((own / "certificate.json").read_text(encoding="utf-8"))
    assert str(own / "certificate.json") in answer.out
    assert certificate["passes"] is True and certificate["kind"] == "decoder" and certificate["dtype"] == "float32"
    weights = (own / "model.safetensors").read_bytes()
    assert certificate["weights"] == {"model.safetensors": hashlib.sha256(weights).hexdigest()}
    assert certificate["versions"]["torch"] == torch.__version__
    ways = {(row["way"], row["detail"]): row for row in certificate["rows"]}
    assert {("kernel", "naive"), ("cached", "1"), ("padded", "left"), ("engine", "8")} <= ways.keys()
    assert ways.pop(("kernel", "flex"))["verdict"] == ("pass" if torch.cuda.is_available() else "skip")
    for row in ways.values():
        assert row["verdict"] == "pass"
        assert row["max_delta"] is None or 0 <= row["max_delta"] <= row["tolerance"] < 1e-3
    assert {label for label, _ in certificate["samples"]} >= {"zh", "random ids, 9"}


def test_the_same_seed_gives_the_same_numbers(cli, own: Path) -> None:
    def numbers(seed: int) -> list[tuple[object, ...]]:
        answer = cli("verify", own, "--no-peers", "--json", "--seed", seed)
        return [(row["max_delta"], row["tolerance"]) for row in json.loads(answer.out)["rows"]]

    assert numbers(5) == numbers(5) != numbers(6)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_fault_ends_with_1_and_names_its_row(cli, own: Path, monkeypatch: pytest.MonkeyPatch, language: str) -> None:
    monkeypatch.setenv("TRANSPECT_LANG", language)
    right = DenseCache.next_position.fget
    monkeypatch.setattr(DenseCache, "next_position", property(lambda self: right(self) + bool(self.length)))
    answer = cli("verify", own, "--no-peers")
    assert answer.code == 1 and not answer.err
    wrong = {"en": "DIFFERS", "zh": "不一致"}[language]
    lines = [line for line in answer.out.splitlines() if wrong in line]
    cached = {"en": "with a cache, token by token", "zh": "用缓存，逐个词元"}[language]
    assert any(line.startswith(cached) for line in lines)
    assert not any("naive" in line for line in lines)
    assert json.loads((own / "certificate.json").read_text(encoding="utf-8"))["passes"] is False


def test_numbers_that_are_none_still_make_valid_json(cli, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Sdpa.attend
    monkeypatch.setattr(Sdpa, "attend", lambda *a, **rest: right(*a, **rest) * float("nan"))
    answer = cli("verify", own, "--no-peers", "--json")
    assert answer.code == 1

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    rows = json.loads(answer.out, parse_constant=refuse)["rows"]
    assert {row["max_delta"] for row in rows if row["verdict"] == "fail" and row["way"] == "kernel"} == {None}


def test_out_names_the_file_and_nothing_is_left_beside_the_weights(cli, own: Path, tmp_path: Path) -> None:
    before = sorted(entry.name for entry in own.iterdir())
    assert cli("verify", own, "--no-peers", "--out", tmp_path / "mine.json").code == 0
    assert json.loads((tmp_path / "mine.json").read_text(encoding="utf-8"))["passes"]
    assert sorted(entry.name for entry in own.iterdir()) == before


def test_weights_that_are_not_the_person_s_get_theirs_in_the_working_directory(
    cli, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.access", lambda place, _: Path(place) != own)
    answer = cli("verify", own, "--no-peers")
    assert answer.code == 0 and not (own / "certificate.json").exists()
    assert (tmp_path / "own.certificate.json").is_file()
    assert "own.certificate.json" in answer.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "nowhere"),
        (["OWN", "--dtype", "int8"], "dtype"),
        (["OWN", "--out", "no/such/folder/c.json"], "--out"),
        (["OWN", "--onnx", "none.onnx"], "no ONNX graph there"),
        (["OWN", "--seed", str(2**63)], "64 bits"),
        (["OWN", "--seed", str(-(2**70))], "64 bits"),
    ],
)
def test_what_can_t_be_done_ends_with_2_and_says_why(cli, own: Path, words: list[str], said: str) -> None:
    answer = cli(
        "verify", *(own if word == "OWN" else word for word in words), *([] if "--onnx" in words else ["--no-peers"])
    )
    assert answer.code == 2 and said in answer.err
    assert len(answer.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("place", "fault"),
    [("", "it is a directory"), ("no/such/c.json", "there is no directory"), ("config.json/c", "there is no")],
)
def test_a_place_that_can_t_be_written_to_is_refused_before_anything_is_measured(
    cli, own: Path, monkeypatch: pytest.MonkeyPatch, place: str, fault: str
) -> None:
    monkeypatch.setattr("transpect.verify.verify", lambda *_, **__: pytest.fail("it measured"))
    before = sorted(own.iterdir())
    answer = cli("verify", own, "--out", own / place)
    assert answer.code == 2 and fault in answer.err and "--out FILE" in answer.err
    assert sorted(own.iterdir()) == before


def test_a_model_below_its_directory_is_read_with_its_tokenizer_and_named_by_its_weights(cli, tmp_path: Path) -> None:
    """Older directories of sentence-transformers keep the model itself in one of their own."""
    config = override(preset("bert-base"), [("d_model", 32), ("n_heads", 4), ("n_layers", 1), ("vocab_size", 40)])
    tokenizer = train_tokenizer("char", ["The old lamp"], special_tokens={"unk": "<unk>"})
    model = Transformer(replace(config, head=Pooled()), seed=1)
    LanguageModel(model, tokenizer).save(tmp_path)
    (below := tmp_path / "0_Transformer").mkdir()
    for file in [file for file in tmp_path.iterdir() if file.is_file() and file.name != "modules.json"]:
        file.rename(below / file.name)
    modules = json.loads((tmp_path / "modules.json").read_text(encoding="utf-8"))
    modules[0]["path"] = below.name
    (tmp_path / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    answer = cli("verify", tmp_path, "--no-peers", "--json")
    assert answer.code == 0 and not answer.err
    certificate = json.loads(answer.out)
    assert certificate["weights"] == {
        "model.safetensors": hashlib.sha256((below / "model.safetensors").read_bytes()).hexdigest()
    }
    assert {label for label, _ in certificate["samples"]} >= {"en"}


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_model_that_gives_no_numbers_is_not_compared(cli, own: Path, number: float) -> None:
    damage(own, lambda tensor: tensor * number)
    answer = cli("verify", own, "--no-peers")
    assert answer.code == 2 and "must be finite numbers" in answer.err and len(answer.err.splitlines()) == 1
    assert not (own / "certificate.json").exists()


def test_numbers_that_one_sample_alone_lacks_are_seen(cli, own: Path) -> None:
    def spoil(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.ndim == 2 and len(tensor) == CONTEXT:  # the table of positions: only long samples reach its end
            tensor[-1] = float("nan")
        return tensor

    damage(own, spoil)
    answer = cli("verify", own, "--no-peers")
    assert answer.code == 2 and "must be finite numbers" in answer.err


@pytest.mark.parametrize("content", [None, "{"])
def test_a_tokenizer_that_can_t_be_read_is_said(cli, own: Path, content: str | None) -> None:
    if content is None:
        (own / "tokenizer.json").unlink()
    else:
        (own / "tokenizer.json").write_text(content, encoding="utf-8")
    answer = cli("verify", own, "--no-peers")
    assert answer.code == 0
    assert answer.err.startswith("warning: only random ids are read") and "tokenizer.json" in answer.err


def damage(folder: Path, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Change every tensor of a checkpoint."""
    file = folder / "model.safetensors"
    save_file({name: change(tensor) for name, tensor in load_file(file).items()}, file, {"format": "pt"})


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("dtype", ["f16", "q8_0"])
def test_a_wide_tolerance_has_a_word_of_its_own(
    cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: Any, language: str
) -> None:
    """llama.cpp on quantised weights; on others it is held to float16, and equal is the word."""
    pytest.importorskip("llama_cpp", reason="pip install llama-cpp-python")
    monkeypatch.setenv("TRANSPECT_LANG", language)
    tokenizer = train_tokenizer("byte-bpe", ["The old lamp", "小猫爱吃鱼"] * 5, 300)
    sizes = [("d_model", 64), ("n_layers", 1), ("vocab_size", 300), ("context_length", 32)]
    config = override(preset("llama"), [*sizes, ("decoder.attention.n_heads", 4), ("decoder.attention.n_kv_heads", 2)])
    write_gguf(Transformer(config, seed=1), tokenizer, tmp_path / "m.gguf", dtype)
    answer = cli("verify", tmp_path / "m.gguf")
    assert answer.code == 0, answer.out + answer.err
    assert not answer.err  # llama.cpp has its remarks about such a short context
    certificate = json.loads((tmp_path / "m.certificate.json").read_text(encoding="utf-8"))
    verdicts = {row["detail"]: row["verdict"] for row in certificate["rows"]}
    wide = dtype == "q8_0"
    assert verdicts["llama-cpp-python"] == ("within_quantisation" if wide else "pass")
    assert verdicts["naive"] == "pass" and certificate["passes"]
    word = {"en": "within quantisation", "zh": "在量化误差内"}[language]
    assert answer.out.lower().count(word) == (3 if wide else 0)  # in the row, the legend and the result
