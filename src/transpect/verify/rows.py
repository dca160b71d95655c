"""The rows of a certificate: each way to compute, measured against the reference."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from transpect import interop
from transpect.base.codec import from_data
from transpect.base.errors import CheckpointError, ConfigError, TranspectError
from transpect.base.gguf import read_gguf
from transpect.base.i18n import tr
from transpect.core import Kernel, Transformer
from transpect.core.kernels import Exact
from transpect.interop.onnx import onnx_files
from transpect.interop.peers import Reading, Sample, huggingface, llama_cpp, onnx_runtime
from transpect.verify import ways
from transpect.verify.certificate import Row, Verdict
from transpect.verify.measure import Difference, compare, compare_tokens
from transpect.verify.rounding import GGUF_PRECISIONS, PRECISIONS, unrest

__all__ = ["Setting", "own_rows", "peer_rows"]

CHUNKS = (3, 7)
SHORT = 12  # tokens of a sample that is read one by one, so that a slow machine is done soon
NEW = 8  # tokens that the engine writes
PLAIN = {0, 1, 30}  # GGUF's numbers for F32, F16 and BF16
Job = Callable[[], Difference]


@dataclass(frozen=True)
class Setting:
    """A model, what it reads, what the reference says of it, and how restless that is (see `unrest`)."""

    model: Transformer
    reference: Transformer
    samples: list[Sample]
    wanted: list[Reading]
    unrest: list[dict[str, float]]
    greedy: bool

    @classmethod
    def of(cls, model: Transformer, samples: list[Sample], *, seed: int = 0) -> Setting:
        """Run the reference.

        Raises:
            CheckpointError: it gives what is no number, against which nothing can be held.
        """
        reference = ways.reference_of(model)
        wanted = ways.alone(reference, samples)
        _check_numbers(wanted, samples)
        greedy = model.config.decoder is not None and wanted[0].get("logits", torch.empty(0)).ndim == 2
        return cls(model, reference, samples, wanted, unrest(reference, samples, wanted, seed), greedy)

    @property
    def dtype(self) -> torch.dtype:
        """In which the ways compute."""
        return self.model.token.weight.dtype

    def limits(self, precision: float | None = None) -> list[dict[str, float]]:
        """How far each output of each sample may be off, in the model's dtype or another precision."""
        u = PRECISIONS[self.dtype] if precision is None else precision
        return [{name: u * moved for name, moved in outputs.items()} for outputs in self.unrest]

    def against(self, found: Sequence[Reading], precision: float | None = None) -> Difference:
        """Readings of all samples against the reference's."""
        return compare(found, self.wanted, self.limits(precision), greedy=self.greedy)


def _check_numbers(wanted: Sequence[Reading], samples: Sequence[Sample]) -> None:
    for reading, sample in zip(wanted, samples, strict=True):
        for name, tensor in reading.items():
            if not tensor.isfinite().all():
                raise CheckpointError(
                    f"the model's {name} must be finite numbers, for there is nothing else to compare with",
                    value=f"NaN or infinity for the sample {sample.label!r}",
                    remedy="Its weights are damaged, or were stored in a dtype that is too narrow for them.",
                )


def own_rows(setting: Setting) -> Iterator[Row]:
    """Kernels, caches, padding, batches, and the engine."""
    model, samples = setting.model, setting.samples
    for name in (name for name, kernel in Kernel.kinds().items() if issubclass(kernel, Exact)):
        yield _kernel(setting, name)
    if ways.writes(model.config):
        yield _row("cached", "1", partial(_one_by_one, setting), samples)
        for step in CHUNKS:
            yield _row("cached", str(step), partial(_cached, setting, step), samples)
    for way, read in (("padded", ways.padded), ("batched", ways.batched)):
        for side in ("left", "right"):
            yield _row(way, side, partial(_beside, setting, read, side == "left"), samples)
    if ways.writes(model.config) and model.config.context_length > 1:
        yield _row("engine", str(NEW), partial(_engine, setting), samples)


def peer_rows(setting: Setting, place: Path, onnx: Path | None = None) -> Iterator[Row]:
    """Other people's programs on the same files; a row says why one was not asked."""
    config, samples = setting.model.config, setting.samples
    folder = interop.body_of(place) if place.is_dir() else place
    lacks = huggingface.lacks(folder) or _unfit(samples)
    yield _peer(huggingface.PACKAGE, lacks, partial(_transformers, setting, folder), samples)
    yield _of_llama_cpp(setting, place)
    files = _graphs(place, onnx)
    lacks = onnx_runtime.lacks(files)
    yield _peer(onnx_runtime.PACKAGE, lacks, partial(_onnx_runtime, setting, files, None), samples)
    if not lacks and ways.writes(config):
        yield _row("peer_cached", onnx_runtime.PACKAGE, partial(_onnx_runtime, setting, files, CHUNKS[-1]), samples)


def _kernel(setting: Setting, name: str) -> Row:
    kernel, device = from_data(Kernel, name), setting.model.device.type
    if kernel.made_for not in (None, device):
        note = f"it is made for {kernel.made_for}, and this model is on {device}"
        return Row("kernel", name, "skip", note=note, reason="verify.lacks.device")
    try:
        model = ways.with_kernel(setting.model, kernel)
    except ConfigError as error:
        return Row("kernel", name, "skip", note=str(error), reason="verify.lacks.kernel")
    return _row("kernel", name, lambda: setting.against(ways.alone(model, setting.samples)), setting.samples)


def _cached(setting: Setting, step: int) -> Difference:
    return setting.against(ways.cached(setting.model, setting.samples, step))


def _one_by_one(setting: Setting) -> Difference:
    """Samples are left off half-way: what is said of a beginning does not depend on what follows."""
    found = ways.cached(setting.model, setting.samples, 1, until=SHORT)
    begun = [{"logits": w["logits"][: len(f["logits"])]} for f, w in zip(found, setting.wanted, strict=True)]
    return compare(found, begun, setting.limits(), greedy=setting.greedy)


def _beside(setting: Setting, read: Callable[..., list[Reading]], left: bool) -> Difference:
    return setting.against(read(setting.model, setting.samples, left=left))


def _engine(setting: Setting) -> Difference:
    limit = setting.model.config.context_length
    limits = setting.limits()
    chosen = [i for i, sample in enumerate(setting.samples) if len(sample.ids) < limit][:3] or [0]
    before = [_cut(setting.samples[i], max(1, limit - NEW)) for i in chosen]
    done = ways.written(setting.model, before, NEW)
    readings = ways.alone(setting.reference, done)
    wanted = [r["logits"][len(b.ids) - 1 : -1] for b, r in zip(before, readings, strict=True)]
    tokens = [d.ids[len(b.ids) :] for b, d in zip(before, done, strict=True)]
    return compare_tokens(tokens, wanted, [limits[i] for i in chosen])


def _transformers(setting: Setting, folder: Path) -> Difference:
    return setting.against(huggingface.read(folder, setting.samples, setting.dtype))


def _of_llama_cpp(setting: Setting, place: Path) -> Row:
    lacks = llama_cpp.lacks(place, setting.model.config)
    plain = bool(lacks) or {info.kind for info in read_gguf(place).tensors.values()} <= PLAIN
    own = GGUF_PRECISIONS["plain" if plain else "quantised"]
    passed: Verdict = "pass" if plain else "within_quantisation"
    return _peer(llama_cpp.PACKAGE, lacks, partial(_llama_cpp, setting, place, own), setting.samples, passed)


def _llama_cpp(setting: Setting, place: Path, own: float) -> Difference:
    found = llama_cpp.read(place, setting.samples, threads=torch.get_num_threads())
    return setting.against(found, max(own, PRECISIONS[setting.dtype]))


def _onnx_runtime(setting: Setting, files: Sequence[Path], step: int | None) -> Difference:
    found = onnx_runtime.read(files, setting.samples, step=step)
    # a graph has a dtype of its own, which what comes out of it shows
    own = max(PRECISIONS[tensor.dtype] for tensor in found[0].values())
    return setting.against(found, max(own, PRECISIONS[setting.dtype]))


def _cut(sample: Sample, length: int) -> Sample:
    ids = sample.ids[:length]
    return replace(sample, ids=ids) if sample.prefix <= length else sample  # a prefix can't be cut


def _row(way: str, detail: str, job: Job, samples: Sequence[Sample], passed: Verdict = "pass") -> Row:
    start = time.perf_counter()
    try:
        found = job()
    except (TranspectError, RuntimeError) as error:
        return Row(way, detail, "fail", note=" ".join(str(error).split()), seconds=time.perf_counter() - start)
    return Row(
        way,
        detail,
        passed if found.passes else "fail",
        found.delta,
        found.tolerance,
        samples[found.place].label if found.delta is not None else "",
        found.greedy_equal,
        found.greedy_total,
        found.greedy_wrong,
        seconds=time.perf_counter() - start,
    )


def _peer(package: str, lacks: str, job: Job, samples: Sequence[Sample], passed: Verdict = "pass") -> Row:
    if lacks:
        return Row("peer", package, "skip", note=tr(lacks, lang="en", detail=package), reason=lacks)
    return _row("peer", package, job, samples, passed)


def _unfit(samples: Sequence[Sample]) -> str:
    return "verify.lacks.prefix" if any(sample.prefix for sample in samples) else ""


def _graphs(place: Path, onnx: Path | None) -> list[Path]:
    if onnx is None:
        return onnx_files(place) if place.is_dir() else []
    files = [onnx] if onnx.is_file() else onnx_files(onnx)
    if not files:
        raise CheckpointError("no ONNX graph there", value=onnx, remedy="Write one: transpect convert MODEL FILE.onnx.")
    return files
