"""What else a run can measure, and costs nothing unless it is asked for: norms by part, utilisation, entropies.

Axes: B batch, T query, S key, H heads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from transpect.base.checks import above, within
from transpect.base.codec import Variant
from transpect.core.attention import Attention
from transpect.core.context import NO_SOURCE
from transpect.core.kernels import Exact, Naive
from transpect.core.tags import Tags
from transpect.data.batch import Batch
from transpect.train.evaluate import evaluating
from transpect.train.randomness import unchanged_randomness
from transpect.train.watching.logger import Record

if TYPE_CHECKING:
    from transpect.core.model import Transformer
    from transpect.train.job import Job

Numbers = dict[str, float | int]


class Meter:
    """What measures while a run goes; children change what they care about."""

    def begin(self, *, due: bool) -> None:
        """An update is about to be made; ``due`` where a line will be recorded after it."""

    def recorded(self, record: Record) -> Numbers:
        """More measures for a line, of the update just made; ``record`` is what is known already."""
        return {}

    def evaluated(self) -> Numbers:
        """More measures of an evaluation."""
        return {}


class Measure(Variant):
    """Something to measure, with its options."""

    def build(self, job: Job, optimizer: torch.optim.Optimizer) -> Meter:
        """What measures it in a run."""
        raise AssertionError("abstract")


class Meters(Meter):
    """Several meters as one."""

    def __init__(self, measures: Sequence[Measure], job: Job, optimizer: torch.optim.Optimizer) -> None:
        self._all = [measure.build(job, optimizer) for measure in measures]

    def begin(self, *, due: bool) -> None:
        for meter in self._all:
            meter.begin(due=due)

    def recorded(self, record: Record) -> Numbers:
        return {name: value for meter in self._all for name, value in meter.recorded(record).items()}

    def evaluated(self) -> Numbers:
        return {name: value for meter in self._all for name, value in meter.evaluated().items()}


# norms


@dataclass(frozen=True)
class Norms(Measure, kind="norms"):
    """‖g‖₂ of the gradient before clipping and ‖w‖₂ of the weights after the update, of each part of the model.

    The squares of ``grad_norm/PART`` sum up to that of ``grad_norm``. A weight that is used in two places counts where
    it is first: a tied table among the embeddings.

    Attributes:
        by: a part is a ``layer`` or a ``branch`` of one (``decoder.3.self``); besides them are the embeddings, what
            stands outside of layers, and the head.
    """

    by: Literal["layer", "branch"] = "layer"

    def build(self, job: Job, optimizer: torch.optim.Optimizer) -> Meter:
        return NormMeter(job.model, optimizer, self.by)


class NormMeter(Meter):
    """Looks at gradients in the moment before the optimizer takes them, at steps that are recorded."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, by: Literal["layer", "branch"]) -> None:
        self._parts: dict[str, list[nn.Parameter]] = {}
        for name, weight in model.named_parameters():
            self._parts.setdefault(part_of(name, by), []).append(weight)
        self._due, self._gradients = False, dict[str, Tensor]()
        optimizer.register_step_pre_hook(self._look)

    def begin(self, *, due: bool) -> None:
        self._due = due

    def recorded(self, record: Record) -> Numbers:
        found = {name: float(norm) for name, norm in self._gradients.items()}
        clipped = sum(norm**2 for norm in found.values()) ** 0.5
        scale = float(record["grad_norm"]) / clipped if clipped else 1.0  # the optimizer is given what clipping left
        weights = {name: float(norm_of(weights)) for name, weights in self._parts.items()}
        return {f"grad_norm/{name}": norm * scale for name, norm in found.items()} | {
            f"weight_norm/{name}": norm for name, norm in weights.items()
        }

    def _look(self, *_: object) -> None:
        if self._due:
            gradients = {
                name: [weight.grad for weight in weights if weight.grad is not None]
                for name, weights in self._parts.items()
            }
            self._gradients = {name: norm_of(those) for name, those in gradients.items() if those}


@torch.no_grad()
def norm_of(tensors: Sequence[Tensor]) -> Tensor:
    """‖·‖₂ of all numbers of some tensors."""
    norm: Tensor = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(one.detach()) for one in tensors]))
    return norm


def part_of(name: str, by: Literal["layer", "branch"]) -> str:
    """The part of a model that a weight belongs to, by its name."""
    if name.startswith("head."):
        return "head"
    inside = re.match(r"towers\.(\w+)\.stack\.(\w+)(?:\.(\d+)\.(.*))?", name)
    if inside is None:
        return "embeddings"
    tower, what, number, rest = inside.groups()
    if what != "layers":
        return f"{tower}.{what}"
    branch = re.search(r"branches\.(\w+)\.", rest)
    return f"{tower}.{number}" if by == "layer" else f"{tower}.{number}.{branch[1] if branch else 'norms'}"


# utilisation


@dataclass(frozen=True)
class Utilisation(Measure, kind="utilisation"):
    """Model FLOPs utilisation: FLOPs of the model a second, forward and backward with nothing computed twice, as a
    share of what the device could do (Chowdhery et al. 2022, "PaLM", appendix B).

    Attributes:
        peak: FLOPs a second of all devices; None is measured at the start: a matrix product of 1024³ in the precision
            of the run, by as many threads.
    """

    peak: float | None = None

    def __post_init__(self) -> None:
        above("peak", self.peak, 0)

    def build(self, job: Job, optimizer: torch.optim.Optimizer) -> Meter:
        from transpect.train.planning import Work, gemm_peak, parts_of, training_flops

        recipe = job.recipe
        length = recipe.seq_len
        source = length if len(job.config.towers) > 1 else 0
        flops = training_flops(parts_of(job.config, Work(1, length, source))) / (length + source)
        peak = gemm_peak(job.model.device, recipe.train.precision) if self.peak is None else self.peak
        return UtilisationMeter(flops / peak)


class UtilisationMeter(Meter):
    """Counts every real token as one of a full row."""

    def __init__(self, a_token: float) -> None:
        self._a_token = a_token

    def recorded(self, record: Record) -> Numbers:
        return {"utilisation": float(record["tokens_per_s"]) * self._a_token}


# attention


@dataclass(frozen=True)
class AttentionEntropy(Measure, kind="attention"):
    """−Σ_s p_s ln p_s of attention weights, in nats: the mean over heads and real queries of each layer, on some rows
    to evaluate on. Near 0 a head looks at single tokens; ln(S) is a look at S tokens alike. That it falls to 0 goes
    with training that diverges (Zhai et al. 2023, "Stabilizing Transformer Training by Preventing Attention Entropy
    Collapse").

    Attributes:
        rows: how many; their weights are written down as T·S numbers a head.
    """

    rows: int = 4

    def __post_init__(self) -> None:
        within("rows", self.rows)

    def build(self, job: Job, optimizer: torch.optim.Optimizer) -> Meter:
        return EntropyMeter(job, self.rows)


class EntropyMeter(Meter):
    """Reads the first rows of the evaluation once more, by a kernel that shows its weights."""

    def __init__(self, job: Job, rows: int) -> None:
        self._job, self._rows = job, rows

    @torch.no_grad()
    def evaluated(self) -> Numbers:
        model, valid = self._job.model, self._job.valid
        assert valid is not None
        batch = first_rows(next(valid.once()), self._rows).to(model.device)
        with evaluating(model), unchanged_randomness(model.device), showing(model):
            tap, source = EntropyTap(), NO_SOURCE
            if batch.source_ids is not None:
                source = model.encode(batch.source_ids, tags=batch.source_tags, tap=tap)
            model.hidden(batch.ids, tags=batch.tags, token_types=batch.token_types, source=source, tap=tap)
        each = {f"valid_attention_entropy/{name}": value for name, value in tap.entropies.items()}
        return each | ({"valid_attention_entropy": sum(each.values()) / len(each)} if each else {})


class EntropyTap:
    """Keeps the mean entropy of every matrix of attention weights."""

    def __init__(self) -> None:
        self.entropies: Numbers = {}

    def see(self, name: str, value: Tensor) -> None:
        place, _, what = name.rpartition(".")
        if what == "attention_weights":
            seeing = value.sum(-1) > 0.0  # [B, H, T]: a query of padding sees nothing
            entropy = torch.special.entr(value.double()).sum(-1)
            self.entropies[place] = float(entropy[seeing].mean()) if seeing.any() else 0.0


def first_rows(batch: Batch, count: int) -> Batch:
    """A smaller batch."""

    def some(tags: Tags) -> Tags:
        return tags.rows(torch.arange(min(count, tags.shape[0]), device=tags.position.device))

    return replace(
        batch,
        ids=batch.ids[:count],
        tags=some(batch.tags),
        labels=batch.labels[:count],
        token_types=None if batch.token_types is None else batch.token_types[:count],
        source_ids=None if batch.source_ids is None else batch.source_ids[:count],
        source_tags=None if batch.source_tags is None else some(batch.source_tags),
    )


@contextmanager
def showing(model: Transformer) -> Iterator[None]:
    """Let every softmax attention write its weights down for a while."""
    layers = [m for m in model.modules() if isinstance(m, Attention) and isinstance(m.kernel, Exact)]
    kernels = [layer.kernel for layer in layers]
    try:
        for layer in layers:
            layer.kernel = Naive()
        yield
    finally:
        for layer, kernel in zip(layers, kernels, strict=True):
            layer.kernel = kernel
