"""The container of a GGUF file: whatever stands in it, the answer is a file or a TranspectError, at a bounded price."""

import resource
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transpect.base.errors import CheckpointError
from transpect.base.gguf import is_gguf, read_gguf


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def entry(key: str, kind: int, value: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + value


def tensor(name: str, dims: tuple[int, ...], kind: int, offset: int) -> bytes:
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


ENTRIES = (
    entry("general.architecture", 8, string("llama")),
    entry("a.number", 4, struct.pack("<I", 7)),
    entry("a.float", 6, struct.pack("<f", 0.5)),
    entry("a.flag", 7, b"\1"),
    entry("some.numbers", 9, struct.pack("<IQ3i", 5, 3, 1, -2, 3)),
    entry("some.strings", 9, struct.pack("<IQ", 8, 2) + string("a") + string("猫")),
)
TENSORS = (tensor("one", (8,), 0, 0), tensor("two", (32, 2), 8, 32))
DATA = bytes(range(32)) + bytes(68)


def build(
    entries: tuple[bytes, ...] = ENTRIES,
    tensors: tuple[bytes, ...] = TENSORS,
    data: bytes = DATA,
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    n_entries: int | None = None,
    n_tensors: int | None = None,
    alignment: int = 32,
) -> bytes:
    counts = (len(tensors) if n_tensors is None else n_tensors, len(entries) if n_entries is None else n_entries)
    head = magic + struct.pack("<IQQ", version, *counts) + b"".join(entries) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file.gguf"


@pytest.mark.parametrize("version", [2, 3])
def test_what_a_file_says(version: int, file: Path) -> None:
    file.write_bytes(build(version=version))
    found = read_gguf(file)
    assert {key: value for key, value in found.metadata.items() if key != "some.numbers"} == {
        "general.architecture": "llama",
        "a.number": 7,
        "a.float": 0.5,
        "a.flag": True,
        "some.strings": ["a", "猫"],
    }
    assert found.metadata["some.numbers"].tolist() == [1, -2, 3]
    assert [(info.name, info.shape, info.nbytes) for info in found.tensors.values()] == [
        ("one", (8,), 32),
        ("two", (2, 32), 68),
    ]
    start = file.stat().st_size - len(DATA)
    assert [info.offset for info in found.tensors.values()] == [start, start + 32]


def test_as_the_gguf_package_reads_it(file: Path, tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_array("floats", [0.5, 1.5])
    writer.add_array("words", ["x", "", "yy"])
    writer.add_uint64("big", 2**40)
    numbers = np.random.default_rng(0).normal(size=(3, 64)).astype(np.float32)
    writer.add_tensor("a", numbers)
    writer.add_tensor(
        "b", gguf.quants.quantize(numbers, gguf.GGMLQuantizationType.Q8_0), raw_dtype=gguf.GGMLQuantizationType.Q8_0
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ours, theirs = read_gguf(file), gguf.GGUFReader(file)
    for info in theirs.tensors:
        mine = ours.tensors[info.name]
        assert (mine.offset, mine.nbytes, mine.kind) == (info.data_offset, info.n_bytes, int(info.tensor_type))
        assert list(mine.shape) == info.shape.tolist()[::-1]
    assert ours.metadata["words"] == ["x", "", "yy"]
    assert ours.metadata["big"] == 2**40


HUGE = 2**62
FAULTS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "at least 24 bytes"),
    "magic": (build(magic=b"GGML"), "begins with GGUF"),
    "version": (build(version=1), "version.*must be 2 or 3"),
    "big endian": (build(version=3 << 24), "little endian"),
    "tensors": (build(n_tensors=HUGE), "number of tensors must fit"),
    "entries": (build(n_entries=HUGE), "number of metadata entries must fit"),
    "more entries": (build(n_entries=len(ENTRIES) + 1), "must"),
    "key": (build((struct.pack("<Q", HUGE) + b"abc",)), "length of a metadata key must fit"),
    "text": (build((entry("k", 8, struct.pack("<Q", HUGE)),)), "length of k must fit"),
    "not text": (build((string("k")[:-1] + b"\xff" + struct.pack("<I", 4) + bytes(4),)), "must be UTF-8"),
    "kind": (build((entry("k", 13, bytes(8)),)), "type of k must be a number from 0 to 12"),
    "items": (build((entry("k", 9, struct.pack("<IQ", 4, HUGE)),)), "number of items of k must fit"),
    "words": (build((entry("k", 9, struct.pack("<IQ", 8, 2**40)),)), "number of items of k must fit"),
    "word": (build((entry("k", 9, struct.pack("<IQQ", 8, 1, HUGE)),)), "items of k must end within"),
    "nested": (build((entry("k", 9, struct.pack("<IQ", 9, 1) + bytes(99)),)), "items of k must be numbers or strings"),
    "twice": (build((ENTRIES[1], ENTRIES[1])), "key may stand in the file only once.*a.number"),
    "alignment": (build((entry("general.alignment", 4, struct.pack("<I", 24)),)), "alignment must be a power of two"),
    "no alignment": (build((entry("general.alignment", 4, struct.pack("<I", 0)),)), "alignment must be a power of two"),
    "axes": (build(tensors=(tensor("one", (1, 1, 1, 1, 8), 0, 0),)), "at most 4 axes"),
    "many axes": (build(tensors=(string("one") + struct.pack("<I", 2**31) + bytes(99),)), "at most 4 axes"),
    "shape": (build(tensors=(tensor("one", (HUGE, HUGE), 0, 0),)), "must end within the file"),
    "type": (build(tensors=(tensor("one", (8,), 99, 0),)), "type of one is not known"),
    "blocks": (build(tensors=(tensor("one", (31, 2), 8, 0),)), "whole blocks of 32"),
    "same tensor": (build(tensors=(TENSORS[0], TENSORS[0])), "tensor may stand in the file only once.*one"),
    "offset": (build(tensors=(tensor("one", (8,), 0, HUGE),)), "must end within the file"),
    "odd offset": (build(tensors=(tensor("one", (8,), 0, 4),)), "multiple of the alignment"),
    "overlap": (
        build(tensors=(TENSORS[0], tensor("two", (16,), 0, 0))),
        "one and two must not overlap|two and one must not overlap",
    ),
    "short": (build(data=DATA[:-1]), "two must end within the file"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_rule_is_named(fault: str, file: Path) -> None:
    data, says = FAULTS[fault]
    file.write_bytes(data)
    with pytest.raises(CheckpointError, match=says) as caught:
        read_gguf(file)
    assert caught.value.file == file


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="can't read"):
        read_gguf(tmp_path / "absent.gguf")
    with pytest.raises(CheckpointError, match="can't read"):
        read_gguf(tmp_path)
    assert not is_gguf(tmp_path) and not is_gguf(tmp_path / "absent.gguf")


def outcome(data: bytes, file: Path) -> str:
    file.write_bytes(data)
    try:
        read_gguf(file)
    except CheckpointError as error:
        return str(error)
    return ""


def test_cut_short_anywhere(file: Path) -> None:
    whole = build()
    assert outcome(whole, file) == ""
    for size in range(len(whole)):
        assert outcome(whole[:size], file), size


WORDS = ((4, 0), (4, 2**31), (4, 2**32 - 1), (8, 1), (8, 2**40), (8, 2**64 - 1))


def mutations() -> Iterator[bytes]:
    whole = build()
    for at in range(len(whole) - len(DATA)):
        for size, word in WORDS:
            yield whole[:at] + word.to_bytes(size, "little") + whole[at + size :]


def test_any_number_in_the_header_may_be_any_other(file: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for data in mutations():
        outcome(data, file)  # no other error, and no end of memory
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # KiB


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_bytes_may_be_any_others(data: Any, file: Path) -> None:
    mutated = bytearray(build())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(mutated) - 1))
        mutated[at : at + 1] = data.draw(st.binary(min_size=0, max_size=9))
    outcome(bytes(mutated), file)
