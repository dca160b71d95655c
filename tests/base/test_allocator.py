"""glibc's thresholds are raised where glibc is at work and nobody has set them; whoever knows better is left alone."""

import os
from pathlib import Path
from typing import Any

import pytest

from transpect.base.allocator import keep_freed_memory

MMAP, TRIM, ARENAS = -3, -1, -8


class Libc:
    """Takes thresholds up to a size, as glibc before 2.35 does."""

    def __init__(self, most: int) -> None:
        self.most, self.calls = most, list[tuple[int, int]]()

    def mallopt(self, name: int, value: int) -> int:
        taken = name != MMAP or value <= self.most
        self.calls += [(name, value)] if taken else []
        return int(taken)


@pytest.fixture
def maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(os, "confstr", lambda name: "glibc 2.36", raising=False)
    (tmp_path / "maps").write_text("7f00 r-xp 0 08:01 1 /usr/lib/libc.so.6\n")
    return tmp_path / "maps"


def keep(environ: dict[str, str], maps: Path, libc: Any) -> bool:
    return keep_freed_memory(environ, maps, libc)


@pytest.mark.parametrize(("most", "mapped"), [(1 << 62, 1 << 30), (32 << 20, 32 << 20)], ids=["new", "old"])
def test_thresholds_are_raised_as_far_as_they_go(maps: Path, most: int, mapped: int) -> None:
    libc = Libc(most)
    assert keep({}, maps, libc)
    assert libc.calls == [(MMAP, mapped), (TRIM, 1 << 30), (ARENAS, 1)]


def test_a_number_of_heaps_that_is_set_stays(maps: Path) -> None:
    libc = Libc(1 << 62)
    assert keep({"MALLOC_ARENA_MAX": "4"}, maps, libc)
    assert libc.calls == [(MMAP, 1 << 30), (TRIM, 1 << 30)]


def test_a_library_that_takes_nothing_is_no_success(maps: Path) -> None:
    assert not keep({}, maps, Libc(0))


@pytest.mark.parametrize(
    "environ",
    [
        {"MALLOC_MMAP_THRESHOLD_": "131072"},
        {"MALLOC_TRIM_THRESHOLD_": "131072"},
        {"MALLOC_MMAP_MAX_": "0"},
        {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=131072"},
    ],
    ids=lambda environ: next(iter(environ)),
)
def test_what_the_environment_sets_stays(maps: Path, environ: dict[str, str]) -> None:
    libc = Libc(1 << 62)
    assert not keep(environ, maps, libc) and not libc.calls


@pytest.mark.parametrize("library", ["libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2"])
def test_another_allocator_is_left_alone(maps: Path, library: str) -> None:
    libc = Libc(1 << 62)
    maps.write_text(f"7f00 r-xp 0 08:01 1 /usr/lib/x86_64-linux-gnu/{library}\n")
    assert not keep({}, maps, libc) and not libc.calls


def test_other_c_libraries_are_left_alone(maps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    libc = Libc(1 << 62)

    def unknown(name: str) -> str:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(os, "confstr", unknown)
    assert not keep({}, maps, libc) and not libc.calls
    monkeypatch.delattr(os, "confstr")
    assert not keep({}, maps, libc) and not libc.calls


def test_where_libraries_cannot_be_seen_nothing_is_set(maps: Path) -> None:
    assert not keep({}, maps.parent / "none", Libc(1 << 62))
