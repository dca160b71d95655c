"""Free memory as the system and its cgroups tell it."""

from __future__ import annotations

from pathlib import Path

from transpect.base.memory import available_memory

MEMINFO = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    800 kB\n"


def at(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_the_tightest_cgroup_counts_and_what_it_keeps_of_files_does_not(tmp_path: Path) -> None:
    root = at(
        tmp_path,
        {
            "meminfo": MEMINFO,
            "two": "0::/a/b\n",
            "one": "4:memory:/c\n3:cpuset:/\n0::/\n",
            "none": "0::/elsewhere\n",
            "a/b/memory.max": "max\n",
            "a/memory.max": "500000\n",
            "a/memory.current": "450000\n",
            "a/memory.stat": "anon 1\ninactive_file 200000\n",
            "memory/c/memory.limit_in_bytes": "300000\n",
            "memory/c/memory.usage_in_bytes": "100000\n",
            "memory/c/memory.stat": "total_inactive_file 50000\n",
        },
    )
    for proc, expected in (("two", 250000), ("one", 250000), ("none", 800 * 1024), ("missing", 800 * 1024)):
        assert available_memory(root / proc, root, root / "meminfo") == expected
    at(tmp_path, {"a/memory.current": "900000\n"})
    assert available_memory(root / "two", root, root / "meminfo") == 0


def test_this_machine_has_some() -> None:
    assert available_memory() > 2**20
