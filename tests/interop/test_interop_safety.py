"""A safetensors file or an index that lies is refused, whatever it says, in little time and memory."""

import json
import os
import resource
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from transpect.base.errors import CheckpointError, TranspectError
from transpect.core import ModelConfig, Transformer
from transpect.interop import load_model, save_model
from transpect.interop.mapped import MappedWeights

Small = Callable[..., ModelConfig]
TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4, dtype=torch.bfloat16), "c": torch.zeros(0, 3)}
MODEST = 16 * 2**20  # bytes


@contextmanager
def modestly() -> Iterator[None]:
    """Neither Python nor the process may take much memory for a small file."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MODEST
    finally:
        tracemalloc.stop()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4 * MODEST / 1024


def parts(file: Path) -> tuple[dict[str, Any], bytes]:
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def pack(header: str | bytes, numbers: bytes) -> bytes:
    text = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(text)) + text + numbers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("files")
    save_file(TENSORS, place / "model.safetensors")
    return place


@pytest.fixture(scope="module")
def whole(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def opened_or_refused(place: Path, content: bytes) -> dict[str, torch.Tensor] | None:
    """All tensors of a file, or None where it is refused by one of our errors."""
    (place / "model.safetensors").write_bytes(content)
    with modestly():
        try:
            weights = MappedWeights(place)
            return {name: weights[name].clone() for name in weights}
        except TranspectError as error:
            refusal = str(error)
    assert "model.safetensors" in refusal
    return None


many = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@many
@given(data=st.data())
def test_bytes_that_changed(folder: Path, whole: bytes, data: st.DataObject) -> None:
    """Whatever stands in the file, its tensors lie within it or it is refused."""
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, min(len(content), 300) - 1))] = data.draw(st.integers(0, 255))
    found = opened_or_refused(folder, bytes(content))
    if found is not None:
        assert sum(tensor.nbytes for tensor in found.values()) <= len(content)


@many
@given(cut=st.integers(0, 10_000), more=st.binary(max_size=9))
def test_files_of_another_length(folder: Path, whole: bytes, cut: int, more: bytes) -> None:
    content = whole[: cut % len(whole)] + more
    if len(content) != len(whole):
        assert opened_or_refused(folder, content) is None


numbers = st.one_of(
    st.integers(-3, 70), st.sampled_from([2**31, 2**53, 2**63, 2**64, 10**30, -1, 1.5, "6", None, True, [1]])
)
lies = st.one_of(
    st.tuples(st.just("shape"), st.one_of(st.lists(numbers, max_size=4), numbers)),
    st.tuples(st.just("data_offsets"), st.one_of(st.lists(numbers, max_size=3), numbers)),
    st.tuples(st.just("dtype"), st.sampled_from(["F64", "F32", "F4", "F8_E4M3", "f32", "", 7, None, "OBJECT"])),
)


@many
@given(name=st.sampled_from(sorted(TENSORS)), lie=lies)
def test_a_header_that_lies(folder: Path, whole: bytes, name: str, lie: tuple[str, Any]) -> None:
    (folder / "model.safetensors").write_bytes(whole)
    header, numbers = parts(folder / "model.safetensors")
    truth = header[name][lie[0]]
    header[name][lie[0]] = lie[1]
    found = opened_or_refused(folder, pack(json.dumps(header), numbers))
    if lie[1] == truth:
        assert found is not None
    if found is not None:  # e.g. another shape of as many numbers
        assert sum(tensor.nbytes for tensor in found.values()) == len(numbers)


ENTRY = '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
FALSE = {
    "twice": f'{{"x":{ENTRY},"x":{ENTRY}}}',
    "a key twice": '{"x":{"dtype":"F32","shape":[9],"shape":[1],"data_offsets":[0,4]}}',
    "overlap": f'{{"x":{ENTRY},"y":{ENTRY}}}',
    "hole": '{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"y":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}}',
    "deep": '{"__metadata__":' + "[" * 100_000 + "]" * 100_000 + "}",
    "deep entry": '{"x":' + '{"x":' * 50_000 + "1" + "}" * 50_001,
    "wide": '{"x":[' + "0," * 500_000 + "0]}",
    "no object": "[]",
    "number": "7",
    "nothing": "",
    "spaces": " " * 1000,
    "metadata": f'{{"__metadata__":{{"a":1}},"x":{ENTRY}}}',
    "unknown key": '{"x":{"dtype":"F32","shape":[1],"offsets":[0,4]}}',
    "huge shape": '{"x":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}}',
    "many dims": '{"x":{"dtype":"F32","shape":[' + "2," * 63 + '2],"data_offsets":[0,4]}}',
    "no UTF-8": b'{"\xff":' + ENTRY.encode() + b"}",
}


@pytest.mark.parametrize("header", FALSE.values(), ids=list(FALSE))
def test_headers_that_are_false(tmp_path: Path, header: str | bytes) -> None:
    assert opened_or_refused(tmp_path, pack(header, bytes(4))) is None


def test_a_header_as_long_as_it_likes(tmp_path: Path) -> None:
    for length in (0, 1, 2**27, 2**40, 2**63, 2**64 - 1):
        assert opened_or_refused(tmp_path, struct.pack("<Q", length) + b"{}" + bytes(4)) is None


def test_the_mutations_start_from_a_file_that_opens(folder: Path, whole: bytes) -> None:
    found = opened_or_refused(folder, whole)
    assert found is not None
    assert all(torch.equal(found[name], tensor) for name, tensor in TENSORS.items())


def test_numbers_at_odd_places_are_read(tmp_path: Path) -> None:
    """The format does not align: a float may stand at any byte."""
    one = torch.tensor([1.5, -2.0])
    raw = b"\x07" + one.numpy().tobytes()
    header = {
        "odd": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
        "x": {"dtype": "F32", "shape": [2], "data_offsets": [1, 9]},
    }
    for spaces in range(9):
        found = opened_or_refused(tmp_path, pack(json.dumps(header) + " " * spaces, raw))
        assert found is not None
        assert torch.equal(found["x"], one)


# ---- files that are links


def linked(model: Transformer, tmp_path: Path, target: Path) -> Path:
    """A checkpoint whose weights are a link to ``target``."""
    folder = tmp_path / "models--o--n" / "snapshots" / "abc"
    save_model(model, folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").rename(target)
    (folder / "model.safetensors").symlink_to(os.path.relpath(target, folder))
    return folder


@pytest.mark.parametrize("target", ["models--o--n/blobs/0123", "models--o--n/snapshots/abc/other.bin"])
def test_links_within_the_directory_or_the_cache_are_followed(tmp_path: Path, small: Small, target: str) -> None:
    model = Transformer(small("llama"))
    read = load_model(linked(model, tmp_path, tmp_path / target)).state_dict()
    assert all(torch.equal(read[key], value) for key, value in model.state_dict().items())


@pytest.mark.parametrize(
    "target", ["elsewhere.bin", "models--o--n/other", "models--o--n/snapshots/xyz/m", "blobs/0123"]
)
def test_links_to_anywhere_else_are_not(tmp_path: Path, small: Small, target: str) -> None:
    folder = linked(Transformer(small("llama")), tmp_path, tmp_path / target)
    with pytest.raises(CheckpointError, match="leads out of its directory"):
        load_model(folder)


def test_a_directory_that_is_itself_a_link_is_the_person_s_own(tmp_path: Path, small: Small) -> None:
    save_model(Transformer(small("llama")), tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    load_model(tmp_path / "link")
