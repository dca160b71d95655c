"""The states of the random generators that a process shares: torch's, Python's and NumPy's.

torch's are what dropout draws from. Nothing in this package draws from Python's or NumPy's shared generators, but code
that a user brings (a logger, a hook) may, so a resumed run restores them too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import getstate, setstate
from random import seed as seed_python
from typing import Any

import numpy as np
import torch
from numpy.random import get_state, set_state
from numpy.random import seed as seed_numpy
from torch import Tensor

from transpect.base.codec import Data

TORCH = "torch"


def seed_all(seed: int) -> None:
    """Let every generator begin where ``seed`` says."""
    torch.manual_seed(seed)
    seed_python(seed)
    seed_numpy(seed % 2**32)


def capture(device: torch.device) -> tuple[dict[str, Tensor], Data]:
    """All states: torch's as byte tensors (``torch``, and ``cuda`` for a GPU), the others as JSON data."""
    tensors = {TORCH: torch.get_rng_state()}
    if device.type == "cuda":
        tensors["cuda"] = torch.cuda.get_rng_state(device)
    version, words, gauss = getstate()
    return tensors, {"python": [version, list(words), gauss], "numpy": _plain(get_state(legacy=False))}


def restore(tensors: dict[str, Tensor], data: Data, device: torch.device) -> None:
    """Put back what `capture` gave."""
    torch.set_rng_state(tensors[TORCH])
    if device.type == "cuda" and "cuda" in tensors:
        torch.cuda.set_rng_state(tensors["cuda"], device)
    version, words, gauss = data["python"]
    setstate((version, tuple(words), gauss))
    set_state(_numpy_state(data["numpy"]))


@contextmanager
def unchanged_randomness(device: torch.device) -> Iterator[None]:
    """Whatever is drawn inside, the generators stand afterwards where they stood before."""
    tensors, data = capture(device)
    try:
        yield
    finally:
        restore(tensors, data, device)


def _plain(state: Any) -> Data:
    """NumPy's state as JSON data: its key is an array of 624 words."""
    return {**state, "state": {"key": state["state"]["key"].tolist(), "pos": int(state["state"]["pos"])}}


def _numpy_state(data: Data) -> Data:
    key = np.array(data["state"]["key"], dtype=np.uint32)
    return {**data, "state": {"key": key, "pos": data["state"]["pos"]}}
