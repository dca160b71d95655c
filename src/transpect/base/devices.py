"""Names of devices and dtypes → torch's objects, and the cores that this process may really use.

torch is imported inside the functions that need it, so that a command that only prints help never waits for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from transpect.base.errors import ConfigError

if TYPE_CHECKING:
    import torch

__all__ = ["allowed_cores", "on_one_thread", "resolve_device", "resolve_dtype", "set_threads"]

_DTYPES = {
    "float64": "float64",
    "fp64": "float64",
    "float32": "float32",
    "fp32": "float32",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float16": "float16",
    "fp16": "float16",
}


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Compute small things without waking torch's other threads, which go on looking for work on their cores for
    milliseconds after they have had some."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def resolve_device(name: str = "auto") -> torch.device:
    """The device of a name: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.

    ``auto`` is the current CUDA device where there is one, otherwise the CPU. MPS is taken only by name, because it has
    no float64 and could not run the reference computations.

    Raises:
        ConfigError: the name is none of these, or this machine (or this build of torch) has no such device.
    """
    import torch

    match = re.fullmatch(r"(auto|cpu|mps|cuda)(?::(\d+))?", name)
    if match is None or (match[2] is not None and match[1] != "cuda"):
        raise ConfigError(
            "device must be a known name", value=name, remedy="Choose auto, cpu, cuda, cuda:N (N = 0, 1, ...) or mps"
        )
    kind, index = match[1], int(match[2] or 0)
    if kind == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if kind == "cuda" and index >= (count := torch.cuda.device_count()):
        raise ConfigError(
            f"device must be present, and torch sees {count} CUDA device(s)", value=name, remedy="Choose auto or cpu"
        )
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("device must be present, and torch sees no MPS", value=name, remedy="Choose auto or cpu")
    return torch.device(name)


def resolve_dtype(name: str) -> torch.dtype:
    """The floating dtype of a name: ``float64``, ``float32``, ``bfloat16``, ``float16``, or ``fp64 fp32 bf16 fp16``.

    Raises:
        ConfigError: the name is none of these.
    """
    import torch

    if name not in _DTYPES:
        raise ConfigError("dtype must be a known name", value=name, remedy=f"Choose one of {', '.join(_DTYPES)}")
    dtype = getattr(torch, _DTYPES[name])
    assert isinstance(dtype, torch.dtype)
    return dtype


def set_threads(n: int | None = None) -> int:
    """Let torch compute with `n` threads, and return that number.

    None takes ``OMP_NUM_THREADS`` where it holds a positive number, as OpenMP would, otherwise `allowed_cores`.
    torch by itself does not see a quota: in a container of two cores on a host of ninety-six it starts ninety-six
    threads, which wait for each other.

    Raises:
        ConfigError: `n` is less than 1.
    """
    import torch

    if n is None:
        asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # one number for each nesting level
        n = int(asked) if asked.isdecimal() and int(asked) > 0 else allowed_cores()
    if n < 1:
        raise ConfigError("threads must be at least 1", value=n)
    torch.set_num_threads(n)
    return n


def allowed_cores(proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int:
    """How many cores this process may use: min(CPU affinity, ⌊CPU quota⌋ of each enclosing cgroup), at least 1.

    Args:
        proc: the file that names this process's cgroups; a system without it has no quota.
        root: where the cgroup file systems are mounted.

    Source: the kernel's ``Documentation/admin-guide/cgroup-v2.rst`` (``cpu.max``) and
    ``Documentation/scheduler/sched-bwc.rst`` (``cpu.cfs_quota_us``, version 1).
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min([affinity, *_quotas(proc, root)])))


def _quotas(proc: Path, root: Path) -> Iterator[float]:
    """The CPU quota, in cores, of each cgroup from this process's own up to the root."""
    for line in _words(proc, "\n"):
        hierarchy, controllers, path = line.split(":", 2)
        if hierarchy == "0":
            unified = root / "unified"  # where version 2 is mounted beside version 1
            base, read = unified if unified.is_dir() else root, _quota_v2
        elif "cpu" in controllers.split(","):
            base, read = root / controllers, _quota_v1
        else:
            continue
        group = base / path.lstrip("/")
        # Inside a container the path may be the host's and not exist here; the mount's own root still holds the quota.
        for folder in (group, *group.parents):
            quota = read(folder)
            if quota is not None:
                yield quota
            if folder == base:
                break


def _quota_v2(folder: Path) -> float | None:
    match _words(folder / "cpu.max"):
        case [quota, period] if quota != "max":
            return int(quota) / int(period)
    return None


def _quota_v1(folder: Path) -> float | None:
    match _words(folder / "cpu.cfs_quota_us"), _words(folder / "cpu.cfs_period_us"):
        case [quota], [period] if int(quota) > 0:
            return int(quota) / int(period)
    return None


def _words(file: Path, separator: str | None = None) -> list[str]:
    """The words of a file; none if it can't be read, for what has no such file sets no limit."""
    try:
        return [word for word in file.read_text().split(separator) if word]
    except OSError:
        return []
