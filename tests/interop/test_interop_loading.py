"""Loading keeps one copy of the weights: memory as the system counts it, in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from transpect.core import ModelConfig, Transformer, override
from transpect.interop import load_model, save_model
from transpect.interop.weights import PART

Small = Callable[..., ModelConfig]

# Prints: resident memory at its highest, above what it was before the model, and the size of the weights.
MEASURE = """
import sys
from pathlib import Path
import torch
from transpect.interop import load_model

def memory(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])

small, folder, dtype = sys.argv[1:]
load_model(small, dtype=dtype)
before = memory("VmRSS")
model = load_model(folder, dtype=dtype)
for tensor in model.state_dict().values():
    tensor.double().sum() if tensor.ndim < 2 else [row.sum() for row in tensor]
print(memory("VmHWM") - before, sum(t.nbytes for t in model.state_dict().values()))
"""


def unaligned(folder: Path) -> None:
    """Write the weights as their own library does, beginning wherever its header ends."""
    file = folder / "model.safetensors"
    state = load_file(file)
    name, value = state.popitem()
    save_file({name: value, **state}, file, metadata={"format": "pt", "pad": "x" * 3})


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is counted by Linux's /proc")
@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("float32", "bfloat16"), ("bfloat16", "float32")], ids=str)
@pytest.mark.parametrize(("name", "aligned"), [("llama", False), ("gpt2", True)])
def test_weights_stand_in_memory_once(
    small: Small, tmp_path: Path, name: str, dtypes: tuple[str, str], aligned: bool
) -> None:
    """At most 1.15 of their size in the dtype that was asked for."""
    stored, wanted = dtypes
    sizes = {"d_model": 512, "n_heads": 8, "n_layers": 20, "vocab_size": 4000, "d_ff": 2048}
    sizes |= {"n_kv_heads": 8} if name == "llama" else {}
    config = override(small(name), list(sizes.items()))
    dtype = getattr(torch, stored)
    save_model(Transformer(config).to(dtype), tmp_path / "x")
    save_model(Transformer(small(name)).to(dtype), tmp_path / "small")
    if not aligned:
        unaligned(tmp_path / "x")
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "small"), str(tmp_path / "x"), wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak, size = map(int, done.stdout.split())
    assert size > 64 * 2**20
    assert peak <= 1.15 * size, f"{peak / size:.2f} of the size"


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert-base", "t5-small", "gpt1"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_what_lies_as_it_is_used_is_mapped_and_the_rest_is_not(
    small: Small, tmp_path: Path, name: str, dtype: torch.dtype
) -> None:
    """One storage of the size of the file holds what is mapped; what is laid out otherwise has its own."""
    save_model(Transformer(small(name)).to(dtype), tmp_path / "x")
    for align in (True, False):
        if not align:
            unaligned(tmp_path / "x")
        size = (tmp_path / "x" / "model.safetensors").stat().st_size
        state = load_model(tmp_path / "x").state_dict()
        mapped = {key for key, value in state.items() if value.untyped_storage().nbytes() == size}
        transposed = {key for key in state if state[key].ndim == 2 and ".body." in key and name in ("gpt2", "gpt1")}
        turned = transposed if dtype == torch.bfloat16 else set()
        assert mapped == state.keys() - turned
        assert {key for key, value in state.items() if not value.is_contiguous()} == transposed - turned
    assert not any(
        value.untyped_storage().nbytes() == size
        for value in load_model(tmp_path / "x", dtype="float16").state_dict().values()
    )


def test_writing_to_a_loaded_model_leaves_its_file_alone(small: Small, tmp_path: Path) -> None:
    save_model(Transformer(small("llama")), tmp_path / "x")
    before = (tmp_path / "x" / "model.safetensors").read_bytes()
    model = load_model(tmp_path / "x")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert (tmp_path / "x" / "model.safetensors").read_bytes() == before
    again = load_model(tmp_path / "x").state_dict()
    assert all(torch.equal(value + 1.0, model.state_dict()[key]) for key, value in again.items())


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (60, 60), (61, 122), (3, 5000), (4097, 3)])
@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("float32", "bfloat16"), ("float16", "float64")], ids=str)
def test_transposed_matrices_of_any_shape(shape: tuple[int, int], dtypes: tuple[str, str]) -> None:
    """Turned over whole, and a part of the columns of a wider one."""
    from transpect.interop.loading import _copied
    from transpect.interop.weights import Buffer

    stored, wanted = (getattr(torch, name) for name in dtypes)
    rows, columns = shape
    wide = torch.randn(rows, 3 * columns, generator=torch.Generator().manual_seed(0)).to(stored)
    buffer = Buffer()
    for part in (wide.t(), *wide.t().split(columns)):
        copy = _copied(part, wanted, torch.device("cpu"), buffer)
        kept = dtypes[1] in ("float32", "float64") and min(part.shape) > 1  # transposed, as it lies
        assert (copy.t() if kept else copy).is_contiguous()
        assert torch.equal(copy, part.to(wanted))
        assert copy.data_ptr() != part.data_ptr()


def test_a_buffer_is_used_again() -> None:
    from transpect.interop.weights import Buffer

    buffer = Buffer()
    first = buffer.tensor((3, 4), torch.float32)
    assert buffer.tensor((2, 2), torch.float64).data_ptr() == first.data_ptr()
    assert buffer.tensor((PART,), torch.uint8).shape == (PART,)


def test_the_index_of_a_checkpoint_may_list_what_it_likes_besides(small: Small, tmp_path: Path) -> None:
    """`metadata` is somebody's remark."""
    model = Transformer(small("llama"))
    save_model(model, tmp_path / "x")
    state: dict[str, Any] = load_file(tmp_path / "x" / "model.safetensors")
    (tmp_path / "x" / "model.safetensors").rename(tmp_path / "x" / "only.safetensors")
    index = {"metadata": {"total_size": -1}, "weight_map": dict.fromkeys(state, "only.safetensors")}
    (tmp_path / "x" / "model.safetensors.index.json").write_text(json.dumps(index))
    read = load_model(tmp_path / "x").state_dict()
    assert all(torch.equal(read[key], value) for key, value in model.state_dict().items())
