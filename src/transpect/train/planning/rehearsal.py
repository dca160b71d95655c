"""What an allocator holds between blocks, tried: two updates of a shallow model, in a process of its own.

Where freed memory stays with the process (`transpect.base.allocator`), it holds more at its peak than lives then: the
holes that blocks of other sizes have left. How much more hangs on the sizes, which are those of the recipe: its rows,
widths, heads and vocabulary. Its depth only repeats them, so few layers show it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from transpect.base.codec import from_data, to_data
from transpect.base.errors import ConfigError
from transpect.core.config import ModelConfig
from transpect.core.heads import CausalLM
from transpect.interop.blank import blank
from transpect.train.loss import PER_TOKEN
from transpect.train.optimizers import Optimizer
from transpect.train.planning.parts import Work, parts_of
from transpect.train.planning.peak import HEAP, Memory, memory_of, state_bytes

DEPTH: Final = 2
"""Layers of a tower that are tried."""
UPDATES: Final = 2
"""The second has an optimizer's state from its beginning."""
PATIENCE: Final = 300.0
"""Seconds until a trial is given up."""


def holes(config: ModelConfig, work: Work, optimizer: Optimizer, threads: int, room: int) -> float:
    """Bytes that are held beside those that live at the peak, as a share of them.

    `HEAP` where it can't be tried: the system doesn't tell a process's peak, or there is no room for it.

    Args:
        config: of the model that is planned.
        work: a micro-batch.
        optimizer: whose state lives as well.
        threads: of torch.
        room: bytes that a trial may take.
    """
    shallow = shallow_of(config)
    piece, times = work.in_pieces()
    lives = alive(shallow, piece, times, optimizer)
    if not _can_look() or lives.peak * (1 + HEAP) > room:
        return HEAP
    asked = {
        "config": to_data(shallow),
        "work": asdict(work),
        "optimizer": to_data(optimizer),
        "threads": threads,
    }
    command = [sys.executable, "-m", __name__]
    try:
        answer = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, timeout=PATIENCE)  # noqa: PLW1510 # looked at below
    except subprocess.TimeoutExpired:
        return HEAP
    if answer.returncode:
        raise ConfigError("a trial of two updates failed", value=answer.stderr.strip().splitlines()[-1:])
    return max(0.0, float(json.loads(answer.stdout)["held"]) / lives.peak - 1.0)


def shallow_of(config: ModelConfig) -> ModelConfig:
    """The same model with `DEPTH` layers a tower where it may have so few, and with a head that has logits."""
    try:
        few = config.map_stacks(n_layers=DEPTH)
    except ConfigError:  # layers that are named, or that share weights
        few = config
    layers = sum(stack.n_layers for stack in few.towers.values())
    few = few if layers < sum(stack.n_layers for stack in config.towers.values()) else config
    return few if isinstance(few.head, PER_TOKEN) else replace(few, head=CausalLM())


def alive(config: ModelConfig, piece: Work, times: int, optimizer: Optimizer) -> Memory:
    """What lives at the peak, nothing else counted."""
    state = state_bytes(optimizer, blank(config))
    return memory_of(parts_of(config, piece), piece, config.vocab_size, state, accumulate=times, heap=0.0)


def _can_look() -> bool:
    return Path("/proc/self/clear_refs").exists()


def _held(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def _try(asked: dict[str, Any]) -> int:
    """Make the updates; how much more the process has held meanwhile than before."""
    from transpect.base.allocator import keep_freed_memory

    keep_freed_memory()
    import torch

    from transpect.core import Transformer
    from transpect.core.tags import Tags
    from transpect.data.batch import IGNORE, Batch
    from transpect.train.planning.base import first_update
    from transpect.train.readers import Readers
    from transpect.train.recompute import recompute_activations
    from transpect.train.updates import update

    torch.set_num_threads(asked["threads"])
    config, work = from_data(ModelConfig, asked["config"]), Work(**asked["work"])
    first_update(work.precision)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets the peak
    before = _held("VmRSS")
    model = recompute_activations(Transformer(config, seed=0)).train()
    optimizer = from_data(Optimizer, asked["optimizer"]).build(model)
    readers = Readers(model, work.readers)

    def tags(length: int) -> Tags:
        real = torch.arange(length).expand(work.rows, length) < length - 1
        return Tags.padded(real) if work.masked else Tags.dense(work.rows, length)

    ids = torch.zeros(work.rows, work.length, dtype=torch.int64)
    labels = torch.full_like(ids, IGNORE)
    labels.view(-1)[torch.linspace(0, labels.numel() - 1, work.n_labels).long()] = 0
    source: dict[str, Any] = {}
    if work.source:
        source = {"source_ids": ids.new_zeros(work.rows, work.source), "source_tags": tags(work.source)}
    batch = Batch(ids, tags(work.length), labels, **source)
    for _ in range(UPDATES):
        update(model, optimizer, [batch], rate=1e-4, clip=1.0, precision=work.precision, readers=readers)
    return _held("VmHWM") - before


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"held": _try(json.load(sys.stdin))}))
