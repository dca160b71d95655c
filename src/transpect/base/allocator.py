"""Memory that is freed and soon asked for again: how glibc keeps it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["keep_freed_memory"]

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
M_ARENA_MAX: Final = -8
KEPT: Final = (1 << 30, 32 << 20)
"""Bytes, the first that glibc takes: before 2.35 it refuses more than 32 MiB for what it maps."""
OTHERS: Final = ("jemalloc", "tcmalloc", "mimalloc", "libhoard", "snmalloc", "tbbmalloc")


def keep_freed_memory(
    environ: Mapping[str, str] = os.environ, maps: Path = Path("/proc/self/maps"), libc: ctypes.CDLL | None = None
) -> bool:
    """Let glibc take large blocks from its heap, and keep the heap when they are freed; return whether it does now.

    By itself glibc maps each large block anew (above 128 KiB at first, at most 32 MiB) and returns it to the system
    when it is freed, so the activations and gradients of every training step begin with page faults and pages filled
    with zeros. Threads share one heap then, so that what one has freed serves another. The setting is the whole
    process's and stays; its price is that memory once used stays with the process.

    Nothing happens, and False is returned, where another C library (musl, macOS, Windows) or another allocator is at
    work, or where the environment has set these thresholds: whoever did so knows better.

    Args:
        environ: may hold ``MALLOC_…_`` or ``GLIBC_TUNABLES``.
        maps: names the libraries of this process.
        libc: the C library; None is this process's own.

    Source: ``mallopt(3)``.
    """
    if not _is_glibc() or _is_set(environ) or _has_other(maps):
        return False
    library = ctypes.CDLL(None) if libc is None else libc
    mapped = any(library.mallopt(M_MMAP_THRESHOLD, size) for size in KEPT)
    kept = bool(mapped and library.mallopt(M_TRIM_THRESHOLD, KEPT[0]))
    if kept and not environ.get("MALLOC_ARENA_MAX"):
        library.mallopt(M_ARENA_MAX, 1)
    return kept


def _is_glibc() -> bool:
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (AttributeError, ValueError, OSError):  # Windows has no confstr, others don't know the name
        return False


def _is_set(environ: Mapping[str, str]) -> bool:
    own = any(environ.get(f"MALLOC_{name}_") for name in ("MMAP_THRESHOLD", "TRIM_THRESHOLD", "MMAP_MAX", "TOP_PAD"))
    return own or "glibc.malloc." in environ.get("GLIBC_TUNABLES", "")


def _has_other(maps: Path) -> bool:
    try:
        names = maps.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True  # who can't be seen is left alone
    return any(name in names for name in OTHERS)
