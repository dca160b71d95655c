"""``python -m transpect.compare.step``: one measurement of `transpect.compare.cost`; JSON in, JSON out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

import torch

from transpect.base.codec import Data, from_data
from transpect.base.devices import set_threads
from transpect.core.config import ModelConfig
from transpect.core.model import Transformer
from transpect.core.tags import Tags
from transpect.data.batch import Batch
from transpect.train.loss import accumulate_gradient

WARM_UP, STEPS = 2, 5


def measured(order: Data) -> Data:
    """Seconds (the median) and peak mebibytes of forward and backward passes on the CPU."""
    set_threads(order["threads"])
    ids, labels = torch.tensor(order["ids"]), torch.tensor(order["labels"])
    batch = Batch(ids, Tags.dense(*ids.shape), labels)
    config = from_data(ModelConfig, order["config"])
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak of importing is not ours
    rest = _kibibytes("VmRSS")
    model = Transformer(config).train()
    times = []
    for _ in range(WARM_UP + STEPS):
        begun = perf_counter()
        accumulate_gradient(model, batch, n_labels=batch.n_labels, precision=order["precision"])
        times.append(perf_counter() - begun)
        model.zero_grad(set_to_none=True)
    return {"seconds": median(times[WARM_UP:]), "mebibytes": (_kibibytes("VmHWM") - rest) / 1024}


def _kibibytes(name: str) -> int:
    """A line of ``/proc/self/status`` (proc(5)), where the kernel counts what is resident and its peak."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    json.dump(measured(json.load(sys.stdin)), sys.stdout)
