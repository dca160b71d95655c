"""How much memory this process may still take."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["available_memory"]


def available_memory(
    proc: Path = Path("/proc/self/cgroup"),
    root: Path = Path("/sys/fs/cgroup"),
    meminfo: Path = Path("/proc/meminfo"),
) -> int:
    """Bytes: what the system can give without swapping, and no more than each enclosing cgroup has left.

    What a cgroup keeps of files that were read can be had back, so it does not count as used.

    Args:
        proc: the file that names this process's cgroups; a system without it has no limits.
        root: where the cgroup file systems are mounted.
        meminfo: what the system says of its memory.

    Source: the kernel's ``Documentation/admin-guide/cgroup-v2.rst`` (``memory.max``, ``memory.current``,
    ``memory.stat``), ``cgroup-v1/memory.rst`` and ``Documentation/filesystems/proc.rst`` (``MemAvailable``).
    """
    return max(0, min([_of_system(meminfo), *_left(proc, root)]))


def _of_system(meminfo: Path) -> int:
    for line in _lines(meminfo):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    if hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 4 << 30  # a system that says nothing (Windows without more tools): what any machine of today has


def _left(proc: Path, root: Path) -> Iterator[int]:
    """What each cgroup from this process's own up to the root has left, where it has a limit."""
    for line in _lines(proc):
        hierarchy, controllers, path = line.split(":", 2)
        if hierarchy == "0":
            unified = root / "unified"
            base = unified if unified.is_dir() else root
            names = "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            base = root / controllers
            names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        group = base / path.lstrip("/")
        for folder in (group, *group.parents):
            limit, used = (_lines(folder / name) for name in names[:2])
            if limit and used and limit[0] != "max":
                stat = dict(line.split() for line in _lines(folder / "memory.stat"))
                yield int(limit[0]) - int(used[0]) + int(stat.get(names[2], 0))
            if folder == base:
                break


def _lines(file: Path) -> list[str]:
    try:
        return [line for line in file.read_text().split("\n") if line]
    except OSError:
        return []
