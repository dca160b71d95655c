"""What is converted is the same model, whole, with its tokenizer; or nothing is left of the attempt."""

import json
import os
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from transpect.base.errors import CheckpointError, ConfigError, TranspectError
from transpect.core import ModelConfig, SequenceClass, Transformer, override
from transpect.interop import load_generation, load_model, save_model
from transpect.interop.convert import FORMATS, convert
from transpect.lm import LanguageModel, load
from transpect.text import load_tokenizer, train_tokenizer

Small = Callable[..., ModelConfig]
CHAT = "{% for message in messages %}{{ message.content }}{% endfor %}"
TEXTS = ["the quick brown fox jumps over the lazy dog", "小猫爱吃鱼。"] * 3


@pytest.fixture
def source(small: Small, tmp_path: Path) -> Path:
    """A chat model of the Llama kind: model, byte-level tokenizer with a template, generation config."""
    tokenizer = train_tokenizer("byte-bpe", TEXTS, 300)
    config = override(small("llama"), [("vocab_size", tokenizer.vocab_size)])
    folder = tmp_path / "source"
    generation = {"eos_token_id": [1, 2], "temperature": 0.7, "top_k": 11}
    LanguageModel(Transformer(config, seed=4).eval(), tokenizer, generation).save(folder)
    (folder / "chat_template.jinja").write_text(CHAT)
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("dtype", [None, "float32", "bfloat16", "float16", "bf16"])
def test_a_directory_with_all_that_belongs_to_it(source: Path, tmp_path: Path, dtype: str | None) -> None:
    done = convert(source, tmp_path / "out", dtype=dtype)
    assert (done.path, done.format) == (tmp_path / "out", "hf")
    wanted = {None: torch.float32, "bf16": torch.bfloat16}.get(dtype) or getattr(torch, str(dtype))
    ours, read = load_model(source).state_dict(), load_model(tmp_path / "out").state_dict()
    assert all(torch.equal(read[name], value.to(wanted)) for name, value in ours.items())
    assert json.loads((tmp_path / "out/config.json").read_text())["torch_dtype"] == str(wanted).removeprefix("torch.")
    assert load_generation(tmp_path / "out") == load_generation(source)
    before, after = load_tokenizer(source), load_tokenizer(tmp_path / "out")
    assert all(before.encode(text) == after.encode(text) for text in TEXTS)
    assert after.chat_templates == before.chat_templates == {"default": CHAT}


def test_names_of_classes_go_along(small: Small, tmp_path: Path) -> None:
    save_model(Transformer(override(small("bert-base"), [("head", SequenceClass(2))])), tmp_path / "a")
    file = tmp_path / "a" / "config.json"
    names = {"id2label": {"0": "bad", "1": "good"}, "label2id": {"bad": 0, "good": 1}}
    file.write_text(json.dumps({**json.loads(file.read_text()), **names}))
    convert(tmp_path / "a", tmp_path / "b")
    written = json.loads((tmp_path / "b" / "config.json").read_text())
    assert {name: written[name] for name in names} == names


def test_a_directory_may_become_itself_in_another_dtype(source: Path) -> None:
    before = load_model(source, dtype="bfloat16").state_dict()
    before = {name: value.clone() for name, value in before.items()}
    convert(source, source, dtype="bfloat16")
    with safe_open(source / "model.safetensors", "pt") as file:
        assert {file.get_slice(name).get_dtype() for name in file.keys()} == {"BF16"}  # noqa: SIM118
    assert all(torch.equal(load_model(source).state_dict()[name], value) for name, value in before.items())
    assert (source / "chat_template.jinja").read_text() == CHAT


def test_pickled_weights_become_safe_ones(source: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    model = load_model(source).state_dict()
    model = {name: value.clone() for name, value in model.items()}
    torch.save(load_file(source / "model.safetensors"), source / "pytorch_model.bin")
    (source / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="--allow-pickle"):
        convert(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    convert(source, tmp_path / "out", allow_pickle=True)
    assert not list((tmp_path / "out").glob("*.bin"))
    assert all(torch.equal(load_model(tmp_path / "out").state_dict()[name], value) for name, value in model.items())


@pytest.mark.parametrize("dtype", [None, "f32", "f16", "q8_0"])
@torch.no_grad()
def test_a_gguf_file_and_back(source: Path, tmp_path: Path, dtype: str | None) -> None:
    certificate = tmp_path / "out.certificate.json"
    certificate.write_text("of another file")
    file = convert(source, tmp_path / "out.gguf", dtype=dtype).path
    assert not certificate.exists()
    convert(file, tmp_path / "back")
    before, after = load(source, "cpu"), load(tmp_path / "back", "cpu")
    assert all(before.tokenizer.encode(text) == after.tokenizer.encode(text) for text in TEXTS)
    bound = {None: 0.0, "f32": 0.0, "f16": 1e-3, "q8_0": 1e-2}[dtype]
    for name, value in before.model.state_dict().items():
        other = after.model.state_dict()[name].float()
        assert torch.allclose(other, value, atol=bound * value.abs().max().item() + 1e-12, rtol=0)


@pytest.mark.slow
def test_onnx_graphs_stand_beside_the_checkpoint_that_they_are_of(source: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    from transpect.interop.onnx import onnx_files

    convert(source, tmp_path / "out", to="onnx")
    assert onnx_files(tmp_path / "out")
    assert load(tmp_path / "out", "cpu").tokenizer.encode("fox")
    # weights that are replaced leave no graphs of others behind
    convert(source, tmp_path / "out", dtype="bfloat16")
    assert not onnx_files(tmp_path / "out")


# ---- targets


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("x", {"to": "gguf"}),
        ("x.gguf", {"to": "hf"}),
        ("x.onnx", {"to": "gguf"}),
        ("x", {"to": "ggml"}),
        ("x", {"dtype": "q8_0"}),
        ("x", {"dtype": "int8"}),
        ("x.gguf", {"dtype": "bfloat16"}),
        ("x.onnx", {"dtype": "q8_0"}),
        ("x", {"to": ""}),
        ("x", {"dtype": ""}),
        ("x.GGUF", {"to": "hf"}),
        ("x.ONNX", {"to": "gguf"}),
        *((f"x{end}", {}) for end in (".safetensors", ".bin", ".pt", ".pth", ".Bin", ".json")),
        ("x.safetensors", {"to": "hf"}),
        ("x.bin", {"to": "onnx"}),
    ],
    ids=str,
)
def test_a_format_or_dtype_that_does_not_fit(source: Path, tmp_path: Path, target: str, options: Any) -> None:
    with pytest.raises(ConfigError):
        convert(source, tmp_path / target, **options)
    assert not (tmp_path / target).exists()


def test_an_ending_in_capitals_is_the_same_ending(source: Path, tmp_path: Path) -> None:
    done = convert(source, tmp_path / "out" / "x.GGUF")
    assert (done.format, done.path.read_bytes()[:4]) == ("gguf", b"GGUF")
    for name in (done.path, done.path.parent):
        assert load_model(name).config.vocab_size == load_model(source).config.vocab_size


def test_a_place_that_can_t_be_replaced_is_told_before_a_source_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("transpect.interop.convert.locate", lambda *_, **__: pytest.fail("read"))
    with pytest.raises(CheckpointError, match="working directory"):
        convert("source", ".")


def test_what_is_no_checkpoint_is_not_replaced(source: Path, tmp_path: Path) -> None:
    places = {
        "notes": ("notes/diary.txt", b"dear"),
        "file": ("file", b"text"),
        "x.gguf": ("x.gguf", b"text"),
        "x.onnx": ("x.onnx", b"text"),
        "dir.gguf": ("dir.gguf/a", b"text"),
        "y.GGUF": ("y.GGUF", b"text"),
        "y.Onnx": ("y.Onnx", b"text"),
    }
    for target, (file, content) in places.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_bytes(content)
        with pytest.raises(CheckpointError):
            convert(source, tmp_path / target)
        assert (tmp_path / file).read_bytes() == content


def test_an_empty_directory_and_an_older_checkpoint_are_replaced(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    convert(source, tmp_path / "out", dtype="float16")
    convert(source, tmp_path / "out")
    assert tree(tmp_path / "out")["model.safetensors"] == tree(source)["model.safetensors"]
    convert(source, tmp_path / "a.gguf", dtype="f16")
    small_one = (tmp_path / "a.gguf").stat().st_size
    convert(source, tmp_path / "a.gguf", dtype="f32")
    assert (tmp_path / "a.gguf").stat().st_size > small_one


def test_a_source_that_is_not_there_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TranspectError):
        convert(tmp_path / "nowhere", tmp_path / "out")
    assert not list(tmp_path.iterdir())


# ---- writers that die


def dies_at(limit: int, act: Callable[[], object], *, killed: bool) -> bool:
    """Run in a child that may write no file beyond so many bytes: there it is killed, or sees the disk full.

    Returns:
        whether it finished all the same.
    """
    child = os.fork()
    if child == 0:  # pragma: no cover
        code = 3
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL if killed else signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            act()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert killed
        assert os.WTERMSIG(status) == signal.SIGXFSZ
        return False
    return os.WEXITSTATUS(status) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("killed", [True, False], ids=["killed", "disk full"])
@pytest.mark.parametrize("target", ["out", "out.gguf"])
def test_a_writer_that_dies_leaves_nothing_or_what_was_there(
    source: Path, tmp_path: Path, target: str, killed: bool
) -> None:
    """At a write of any of its files, at first and over an older result."""
    room = tmp_path / "room"
    room.mkdir()
    place = room / target
    size = max(len(content) for content in tree(source).values())
    limits = [1, 100, 3000, size // 2, size - 1]
    for limit in limits:
        assert not dies_at(limit, lambda: convert(source, place), killed=killed)
        assert not place.exists()
        assert killed or not list(room.iterdir()), "an error clears up after itself"
    convert(source, place)
    before = tree(place) if place.is_dir() else place.read_bytes()
    for limit in limits:
        assert not dies_at(limit, lambda: convert(source, place), killed=killed)
        assert (tree(place) if place.is_dir() else place.read_bytes()) == before
    assert dies_at(100 * size, lambda: convert(source, place), killed=killed)
    assert [entry.name for entry in room.iterdir()] == [target], "the next writer clears up after a dead one"
    shutil.rmtree(room)


def test_every_format_has_a_writer() -> None:
    from transpect.interop.convert import _DTYPES, _WRITERS

    assert set(_WRITERS) == set(FORMATS) == set(_DTYPES)
