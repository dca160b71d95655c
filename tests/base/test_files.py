"""Every file of a checkpoint that holds text or JSON is read in one way, and what is wrong with it is told as it is."""

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transpect.base.errors import TranspectError
from transpect.interop import load_config, load_generation, load_model, locate, save_model
from transpect.text import load_tokenizer, train_tokenizer

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 548105171\n".encode()
NONSENSE: dict[str, tuple[bytes, str]] = {
    "pointer": (POINTER, r"Git LFS pointer.*git lfs pull"),
    "mark": (b"\xef\xbb\xbf{}", "byte order mark.*without one"),
    "digits": (b'{"vocab_size": ' + b"9" * 5000 + b"}", "too many digits"),
    "twice": (b'{"a": 1, "b": {"vocab_size": 1, "vocab_size": 2}}', r"only once \(got 'vocab_size'\)"),
    "depth": (b"[" * 100_000, "nested too deep"),
    "empty": (b"", "not valid JSON"),
    "latin": (b'{"a": "\xe9"}', "not UTF-8"),
}
READERS: dict[str, Callable[[Path], Any]] = {
    "config.json": load_config,
    "generation_config.json": load_generation,
    "model.safetensors.index.json": load_model,
    "modules.json": load_config,
    "tokenizer.json": load_tokenizer,
    "tokenizer_config.json": load_tokenizer,
    "special_tokens_map.json": load_tokenizer,
    "vocab.json": load_tokenizer,
}
HEAVY: dict[str, Callable[[Path], Any]] = {
    "model.safetensors": load_model,
    "pytorch_model.bin": lambda folder: load_model(folder, allow_pickle=True),
    "x.gguf": load_model,
    "X.gguf": lambda folder: locate(str(folder / "X.gguf")),
    "tokenizer.gguf": lambda folder: load_tokenizer(folder / "tokenizer.gguf"),
    "tokenizer.model": load_tokenizer,
    "vocab.txt": load_tokenizer,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a small model with its tokenizer."""
    from transpect.core import Transformer, override, preset

    folder = tmp_path_factory.mktemp("whole")
    tokenizer = train_tokenizer("char", ["the quick brown fox"])
    sizes = {"d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 16, "context_length": 8}
    save_model(Transformer(override(preset("gpt2"), [*sizes.items(), ("vocab_size", tokenizer.vocab_size)])), folder)
    tokenizer.save(folder)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def lay(folder: Path, whole: dict[str, bytes], name: str) -> None:
    """A whole model but for the files in whose place ``name`` is read."""
    rivals = {
        "special_tokens_map.json": {"tokenizer_config.json"},
        "vocab.json": {"tokenizer.json"},
        "vocab.txt": {"tokenizer.json", "tokenizer_config.json"},
        "tokenizer.model": {"tokenizer.json", "tokenizer_config.json"},
        "x.gguf": {"config.json"},
        "pytorch_model.bin": {"model.safetensors"},
        "model.safetensors.index.json": {"model.safetensors"},
    }.get(name, set())
    for file, content in whole.items():
        if file not in rivals:
            (folder / file).write_bytes(content)
    if name == "vocab.json":
        (folder / "merges.txt").write_text("#version: 0.2\n")


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("nonsense", NONSENSE)
def test_json_that_not_everybody_reads_alike(name: str, nonsense: str, whole: dict[str, bytes], tmp_path: Path) -> None:
    content, rule = NONSENSE[nonsense]
    lay(tmp_path, whole, name)
    (tmp_path / name).write_bytes(content)
    if name == "tokenizer.json" and nonsense in ("twice", "digits"):
        rule = f"{rule}|no 'model'"
    with pytest.raises(TranspectError, match=rule) as caught:
        READERS[name](tmp_path)
    assert caught.value.file == tmp_path / name


@pytest.mark.parametrize("name", [*READERS, *HEAVY])
def test_a_pointer_in_the_place_of_a_file(name: str, whole: dict[str, bytes], tmp_path: Path) -> None:
    """What a clone without Git LFS leaves."""
    lay(tmp_path, whole, name)
    (tmp_path / name).write_bytes(POINTER)
    with pytest.raises(TranspectError, match=r"Git LFS pointer.*git lfs pull") as caught:
        (READERS | HEAVY)[name](tmp_path)
    assert caught.value.file == tmp_path / name


@pytest.mark.parametrize("name", [*READERS, *HEAVY])
def test_a_file_that_may_not_be_read(
    name: str, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's: it is there, and it is not damaged."""
    lay(tmp_path, whole, name)
    (tmp_path / name).write_bytes(whole.get(name, json.dumps({"weight_map": {"a": "b"}}).encode()))
    opened = Path.open

    def guarded(self: Path, *rest: Any, **options: Any) -> Any:
        if self.name == name:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return opened(self, *rest, **options)

    monkeypatch.setattr(Path, "open", guarded)
    with pytest.raises(TranspectError, match=r"can't read: Permission denied") as caught:
        (READERS | HEAVY)[name](tmp_path)
    assert str(tmp_path / name) in str(caught.value)
    assert "complete" not in str(caught.value)
