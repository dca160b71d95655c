"""The most memory that an update needs, found by going through it part by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from transpect.base.errors import ConfigError
from transpect.train.loss import IN_CACHE, LOGITS_AT_ONCE
from transpect.train.optimizers import Adafactor, AdamW, Lion, Muon, Optimizer, Sgd
from transpect.train.optimizers.muon import hidden_matrices
from transpect.train.planning.parts import WIDE, Part, Work

CUDA_CONTEXT = 500 << 20
"""Bytes that a process holds on a GPU before its first tensor: some 0.5 GiB on current drivers."""

HEAP = 0.45
"""Share of what lives at the peak that glibc's heap holds besides, in the holes between blocks, where freed memory is
kept (`transpect.base.allocator`) and nobody has tried how much it is (`transpect.train.planning.rehearsal`)."""


@dataclass(frozen=True)
class Memory:
    """Bytes on a device, by what they are for, at the moment when there are most.

    Attributes:
        base: what the process holds before the model: libraries, data; of a GPU its context.
        weights, gradients, optimizer: of the model, in float32.
        activations: what is kept from the forward to the backward pass, by layer.
        loss: logits at a time, and the gradients that the loss keeps.
        passing: what is at work for a moment.
        holes: what an allocator holds between blocks.
        moment: when: ``loss``, ``backward`` (of which part), ``update`` or ``evaluation``.
    """

    base: int
    weights: int
    gradients: int
    optimizer: int
    activations: dict[str, int]
    loss: int
    passing: int
    holes: int
    moment: str

    @property
    def kept(self) -> int:
        """All activations."""
        return sum(self.activations.values())

    @property
    def peak(self) -> int:
        """The sum of all."""
        held = self.weights + self.gradients + self.optimizer
        return self.base + held + self.kept + self.loss + self.passing + self.holes


def memory_of(
    parts: Sequence[Part],
    work: Work,
    vocab_size: int,
    optimizer: int,
    *,
    accumulate: int = 1,
    base: int = 0,
    evaluated: int = 0,
    heap: float = HEAP,
) -> Memory:
    """The peak of an update.

    After the forward pass all that is kept lives; the backward pass frees it from the end, and makes the gradients of
    the weights in the same order. With micro-batches the gradients of the earlier ones live through all of it.

    Args:
        parts: of the model, for one micro-batch.
        work: of it.
        vocab_size: V.
        optimizer: bytes of its state, see `state_bytes`.
        accumulate: micro-batches of an update.
        base: see `Memory`.
        evaluated: labels of a batch of evaluation; 0 is no evaluation.
        heap: of a CPU: share of what lives that is held besides, see `transpect.train.planning.rehearsal`.
    """
    weights = sum(part.parameters for part in parts) * WIDE
    side = min(work.readers, accumulate)
    earlier = weights * side if accumulate > side else 0
    held = base + weights + optimizer
    kept = [part.kept + part.casts for part in parts]
    if work.checkpointed:
        kept = _inputs_alone(parts, work)
    head, body = parts[-1], parts[:-1]
    table = vocab_size * (head.products[-1].k if head.products else 0) * WIDE
    tied = head.parameters * WIDE < table
    moments: list[tuple[int, str, int, int, int, int]] = []  # total, moment, gradients, loss, passing, parts that live

    def moment(name: str, gradients: int, loss: int, passing: int, living: int) -> None:
        total = held + gradients + side * (loss + passing + sum(kept[:living]))
        moments.append((total, name, gradients, side * loss, side * passing, living))

    room = IN_CACHE if work.again else LOGITS_AT_ONCE
    logits = min(max(1, room // vocab_size), work.n_labels) * vocab_size
    lower = 0 if work.low == WIDE else work.low * (logits + table // WIDE)
    places = 1 if work.again and work.low == WIDE else 2  # on a CPU their gradient takes the logits' own
    moment("loss", earlier, kept[-1] + places * WIDE * logits + lower, 0, len(body))
    moment("backward of head", earlier, kept[-1], head.passing, len(body))
    made = 0 if accumulate > side else side * max(table, head.parameters * WIDE)
    layers = _by_layer(parts)
    for index in range(len(body) - 1, -1, -1):
        part = body[index]
        own = part.parameters * WIDE - (table if tied and part.name == "embeddings" else 0)
        again = layers[part.layer] if work.checkpointed and part.layer != part.name else 0
        moment(f"backward of {part.name}", earlier + made, 0, own + part.passing + again, index + 1)
        made += 0 if accumulate > side else side * own
    largest = max((product.k * product.n for part in parts for product in part.products), default=0)
    moment("update", weights * side, 0, largest * WIDE if optimizer < 2 * weights else 0, 0)
    if evaluated:
        rows = min(evaluated, max(1, LOGITS_AT_ONCE // vocab_size))
        each = 2 * WIDE + (0 if work.low == WIDE else work.low)
        moment("evaluation", 0, rows * vocab_size * each, max(part.passing for part in body[1:]), 0)
    total, name, gradients, loss, passing, living = max(moments)
    activations: dict[str, int] = {}
    for part, own in zip(body[:living], kept[:living], strict=True):
        activations[part.layer] = activations.get(part.layer, 0) + side * own
    holes = round(heap * (total - base)) if work.again else 0
    return Memory(base, weights, gradients, optimizer, activations, loss, passing, holes, name)


def _by_layer(parts: Sequence[Part]) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in parts:
        found[part.layer] = found.get(part.layer, 0) + part.kept + part.casts
    return found


def _inputs_alone(parts: Sequence[Part], work: Work) -> list[int]:
    """What lives where each layer keeps its input and computes the rest again (Chen et al. 2016, §4)."""
    seen: set[str] = set()
    kept = []
    for part in parts:
        if part.layer == part.name:
            kept.append(part.kept)
            continue
        n, d = next((product.m, product.k) for product in part.products)
        kept.append(0 if part.layer in seen else n * d * WIDE)
        seen.add(part.layer)
    return kept


def state_bytes(optimizer: Optimizer, model: nn.Module) -> int:
    """What an optimizer remembers of a model's weights.

    Raises:
        ConfigError: an optimizer of which it is not known.
    """
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    total = sum(weight.numel() for weight in weights.values())
    if isinstance(optimizer, AdamW):
        return 2 * WIDE * total
    if isinstance(optimizer, Lion):
        return WIDE * total
    if isinstance(optimizer, Sgd):
        return WIDE * total if optimizer.momentum else 0
    if isinstance(optimizer, Muon):
        hidden = sum(weights[name].numel() for name in hidden_matrices(model) if name in weights)
        return WIDE * hidden + 2 * WIDE * (total - hidden)
    if isinstance(optimizer, Adafactor):
        means = sum(
            w.numel() // w.shape[-1] + w.numel() // w.shape[-2] if w.ndim >= 2 else w.numel() for w in weights.values()
        )
        return WIDE * (means + (total if optimizer.beta1 is not None else 0))
    raise ConfigError("the memory of this optimizer is not known", value=optimizer.kind)
