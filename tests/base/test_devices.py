"""Names of devices and dtypes, and the cores that a process may use under affinity and quota."""

import itertools
import os
from pathlib import Path

import pytest
import torch

from transpect.base.devices import allowed_cores, resolve_device, resolve_dtype, set_threads
from transpect.base.errors import ConfigError


def test_auto_takes_cuda_only_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device() == torch.device("cuda")


def test_cuda_by_name_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_device("cuda") == torch.device("cuda")
    assert resolve_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(ConfigError, match=r"torch sees 2 CUDA device\(s\) \(got 'cuda:2'\)\. Choose auto or cpu"):
        resolve_device("cuda:2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ConfigError, match="torch sees 0 CUDA"):
        resolve_device("cuda")


def test_mps_by_name_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="no MPS"):
        resolve_device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert resolve_device("mps") == torch.device("mps")


@pytest.mark.parametrize("name", ["", "gpu", "CPU", "cpu:0", "auto:0", "cuda:", "cuda:-1", "cuda:x", "cuda:0 ", "meta"])
def test_an_unknown_device_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(ConfigError, match="auto, cpu, cuda, cuda:N"):
        resolve_device(name)


@pytest.mark.parametrize(
    ("names", "dtype"),
    [
        (("float64", "fp64"), torch.float64),
        (("float32", "fp32"), torch.float32),
        (("bfloat16", "bf16"), torch.bfloat16),
        (("float16", "fp16"), torch.float16),
    ],
)
def test_dtypes_have_a_long_and_a_short_name(names: tuple[str, ...], dtype: torch.dtype) -> None:
    assert {resolve_dtype(name) for name in names} == {dtype}


@pytest.mark.parametrize("name", ["", "int8", "half", "torch.float32", "FP32", "float32 "])
def test_an_unknown_dtype_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(ConfigError, match="float64, fp64, float32"):
        resolve_dtype(name)


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


QUOTAS = [  # what stands under /sys/fs/cgroup, this process's membership, the cores that the quota allows
    ({}, "0::/\n", 64),
    ({"cpu.max": "max 100000\n"}, "0::/\n", 64),
    ({"cpu.max": "200000 100000\n"}, "0::/\n", 2),
    ({"cpu.max": "250000 100000\n"}, "0::/\n", 2),
    ({"cpu.max": "50000 100000\n"}, "0::/\n", 1),
    ({"a/cpu.max": "300000 100000\n", "a/b/cpu.max": "max 100000\n"}, "0::/a/b\n", 3),
    ({"a/cpu.max": "300000 100000\n", "a/b/cpu.max": "400000 100000\n"}, "0::/a/b\n", 3),
    ({"cpu.max": "200000 100000\n"}, "0::/a/path/of/the/host\n", 2),
    ({"unified/a/cpu.max": "300000 100000\n"}, "1:cpu:/\n0::/a\n", 3),
    ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, "1:cpu:/\n0::/\n", 64),
    ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, "2:memory:/x\n1:cpu:/\n", 4),
    (
        {"cpu,cpuacct/a/cpu.cfs_quota_us": "300000\n", "cpu,cpuacct/a/cpu.cfs_period_us": "100000\n"},
        "4:cpu,cpuacct:/a/b\n",
        3,
    ),
]


@pytest.mark.parametrize(
    ("case", "affinity"),
    list(itertools.product(QUOTAS, (1, 3, 64))),
    ids=lambda x: str(x) if isinstance(x, int) else "",
)
def test_cores_are_the_least_of_affinity_and_every_quota(
    case: tuple[dict[str, str], str, int], affinity: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, membership, quota = case
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(affinity)), raising=False)
    root, proc = written(tmp_path / "sys", files), tmp_path / "proc"
    proc.write_text(membership)
    assert allowed_cores(proc, root) == min(affinity, quota)


def test_a_system_without_cgroups_or_affinity_counts_its_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert allowed_cores(tmp_path / "none", tmp_path) == 8
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert allowed_cores(tmp_path / "none", tmp_path) == 1


def test_cores_of_this_machine_are_no_more_than_it_has() -> None:
    assert 1 <= allowed_cores() <= (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("n", "variable", "expected"),
    [(3, "2", 3), (None, "2", 2), (None, "5,2", 5), (None, "", 7), (None, "0", 7), (None, "many", 7), (None, None, 7)],
)
def test_threads_are_the_asked_then_the_variable_then_the_cores(
    n: int | None, variable: str | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_to: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", set_to.append)
    monkeypatch.setattr("transpect.base.devices.allowed_cores", lambda: 7)
    if variable is None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    assert set_threads(n) == expected
    assert set_to == [expected]


def test_no_threads_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"threads must be at least 1 \(got 0\)"):
        set_threads(0)
