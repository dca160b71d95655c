"""Load a model once as the reference and once as it is used, and measure every way against the reference."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from transpect import interop
from transpect.base.devices import resolve_device, resolve_dtype
from transpect.base.errors import CheckpointError, ConfigError, TokenizerError, TranspectError
from transpect.base.gguf import read_gguf
from transpect.core import Kernel, Transformer
from transpect.interop.onnx import onnx_files
from transpect.interop.peers import Reading, Sample, huggingface, llama_cpp, onnx_runtime
from transpect.text import Tokenizer, load_tokenizer
from transpect.verify import ways
from transpect.verify.certificate import Certificate, Row, digests, now, versions
from transpect.verify.measure import QUANTISED, SHARES, UNQUANTISED, Difference, compare, compare_tokens, scale_of
from transpect.verify.samples import samples_for

__all__ = ["own_rows", "peer_rows", "verify"]

CHUNKS = (2, 7)
SHORT = 12  # tokens of a sample that is read one by one, so that a slow machine is done soon
NEW = 8  # tokens that the engine writes
Job = Callable[[], Difference]


def verify(
    name: str | Path,
    *,
    device: str = "auto",
    dtype: str = "float32",
    allow_pickle: bool = False,
    peers: bool = True,
    onnx: Path | None = None,
    seed: int = 0,
    see: Callable[[Row], None] = lambda row: None,
) -> Certificate:
    """Measure every way to compute a model against the naive reference in float64.

    Args:
        name: what `interop.locate` understands.
        device: where the ways compute.
        dtype: in which. float32 is exact for weights that are stored in less, and shows small mistakes.
        allow_pickle: see `interop.load_model`.
        peers: whether to run other people's programs on the same files, where they are installed.
        onnx: a graph, or a directory of graphs, of this model; None is those that lie in its own directory.
        seed: of the random ids.
        see: is given each row as soon as it is measured.

    Raises:
        CheckpointError: no such model, or one that can't be read.
        ConfigError: an unknown device or dtype.
    """
    number = resolve_dtype(dtype)
    place = interop.locate(name, allow_pickle=allow_pickle)
    model = interop.load_model(place, device=resolve_device(device), dtype=number, allow_pickle=allow_pickle)
    generation = interop.load_generation(place)
    samples = samples_for(model.config, _tokenizer(place), generation, seed=seed)
    rows = []
    setting = Setting.of(model, samples)
    for row in own_rows(setting):
        rows.append(row)
        see(row)
    for row in peer_rows(setting, place, onnx) if peers else ():
        rows.append(row)
        see(row)
    return Certificate(
        model=str(name),
        kind=model.config.kind,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        dtype=str(number).removeprefix("torch."),
        device=str(model.token.weight.device),
        seed=seed,
        samples=tuple((sample.label, len(sample.ids)) for sample in samples),
        weights=digests(place),
        rows=tuple(rows),
        versions=versions(),
        date=now(),
    )


@dataclass(frozen=True)
class Setting:
    """A model, what it reads, and what the reference says of it."""

    model: Transformer
    reference: Transformer
    samples: list[Sample]
    wanted: list[Reading]
    scale: dict[str, float]
    greedy: bool

    @classmethod
    def of(cls, model: Transformer, samples: list[Sample]) -> Setting:
        """Run the reference."""
        reference = ways.reference_of(model)
        wanted = ways.alone(reference, samples)
        greedy = model.config.decoder is not None and wanted[0].get("logits", torch.empty(0)).ndim == 2
        return cls(model, reference, samples, wanted, scale_of(wanted), greedy)

    @property
    def dtype(self) -> torch.dtype:
        """In which the ways compute."""
        return self.model.token.weight.dtype

    def against(self, found: Sequence[Reading], share: float | None = None) -> Difference:
        """Readings of all samples against the reference's."""
        share = SHARES[self.dtype] if share is None else share
        return compare(found, self.wanted, self.scale, share, greedy=self.greedy)


def own_rows(setting: Setting) -> Iterator[Row]:
    """Kernels, caches, padding, batches, and the engine."""
    model, samples = setting.model, setting.samples
    for name in Kernel.kinds():
        yield _kernel(setting, name)
    if ways.writes(model.config):
        short = [_cut(sample, SHORT) for sample in samples]
        yield _row("cached", "1", lambda: _short(setting, ways.cached(model, short, 1)))
        for step in CHUNKS:
            yield _row("cached", str(step), lambda step=step: setting.against(ways.cached(model, samples, step)))
    for side in ("left", "right"):
        left = side == "left"
        yield _row("padded", side, lambda left=left: setting.against(ways.padded(model, samples, left=left)))
    for side in ("left", "right"):
        left = side == "left"
        yield _row("batched", side, lambda left=left: setting.against(ways.batched(model, samples, left=left)))
    if ways.writes(model.config) and model.config.context_length > 1:
        yield _row("engine", str(NEW), lambda: _engine(setting))


def peer_rows(setting: Setting, place: Path, onnx: Path | None = None) -> Iterator[Row]:
    """Other people's programs on the same files; a row says why one was not asked."""
    config, samples = setting.model.config, setting.samples
    folder = interop.body_of(place) if place.is_dir() else place
    yield _peer(
        huggingface.PACKAGE,
        huggingface.lacks(folder) or _prefixed(samples),
        lambda: setting.against(huggingface.read(folder, samples, setting.dtype)),
    )
    yield _peer(
        llama_cpp.PACKAGE,
        llama_cpp.lacks(place, config),
        lambda: setting.against(llama_cpp.read(place, samples, threads=torch.get_num_threads()), _share(place)),
    )
    files = _graphs(place, onnx)
    lacks = onnx_runtime.lacks(files)
    single = SHARES[torch.float32]
    yield _peer(
        onnx_runtime.PACKAGE,
        lacks,
        lambda: setting.against(onnx_runtime.read(files, samples), _graph_share(setting, single)),
    )
    if not lacks and ways.writes(config):
        yield _row(
            "peer_cached",
            onnx_runtime.PACKAGE,
            lambda: setting.against(onnx_runtime.read(files, samples, step=CHUNKS[-1]), _graph_share(setting, single)),
        )


def _kernel(setting: Setting, name: str) -> Row:
    try:
        model = ways.with_kernel(setting.model, name)
    except ConfigError as error:
        return Row("kernel", name, "skip", note=str(error))
    return _row("kernel", name, lambda: setting.against(ways.alone(model, setting.samples)))


def _short(setting: Setting, found: list[Reading]) -> Difference:
    """Samples that were cut: what a causal model says of a beginning does not depend on what follows."""
    begun = [
        {name: tensor[: len(f[name])] for name, tensor in w.items()} for f, w in zip(found, setting.wanted, strict=True)
    ]
    return compare(found, begun, setting.scale, SHARES[setting.dtype], greedy=setting.greedy)


def _engine(setting: Setting) -> Difference:
    samples = [sample for sample in setting.samples if len(sample.ids) < setting.model.config.context_length][:3]
    if not samples:
        samples = [_cut(setting.samples[0], setting.model.config.context_length - 1)]
    done = ways.written(setting.model, samples, NEW)
    before = [len(sample.ids) for sample in samples]
    readings = ways.alone(setting.reference, done)
    wanted = [r["logits"][n - 1 : -1] for n, r in zip(before, readings, strict=True)]
    chosen = [sample.ids[n:] for n, sample in zip(before, done, strict=True)]
    return compare_tokens(chosen, wanted, SHARES[setting.dtype] * setting.scale["logits"])


def _cut(sample: Sample, length: int) -> Sample:
    # what stands in a prefix depends on all of it
    return sample if sample.prefix else replace(sample, ids=sample.ids[:length])


def _row(way: str, detail: str, job: Job) -> Row:
    start = time.perf_counter()
    try:
        found = job()
    except (TranspectError, RuntimeError) as error:
        return Row(way, detail, "fail", note=" ".join(str(error).split()), seconds=time.perf_counter() - start)
    return Row(
        way,
        detail,
        "pass" if found.passes else "fail",
        found.delta,
        found.tolerance,
        found.greedy_equal,
        found.greedy_total,
        found.greedy_wrong,
        seconds=time.perf_counter() - start,
    )


def _peer(package: str, lacks: str, job: Job) -> Row:
    return Row("peer", package, "skip", note=lacks) if lacks else _row("peer", package, job)


def _prefixed(samples: Sequence[Sample]) -> str:
    return "it is not told which tokens are a prefix" if any(sample.prefix for sample in samples) else ""


def _share(place: Path) -> float:
    """Of llama.cpp, by what it multiplies."""
    kinds = {info.kind for info in read_gguf(place).tensors.values()}
    return UNQUANTISED if kinds <= {0, 1, 30} else QUANTISED  # F32, F16, BF16


def _graph_share(setting: Setting, single: float) -> float:
    return max(single, SHARES[setting.dtype])


def _graphs(place: Path, onnx: Path | None) -> list[Path]:
    if onnx is None:
        return onnx_files(place) if place.is_dir() else []
    files = [onnx] if onnx.is_file() else onnx_files(onnx)
    if not files:
        raise CheckpointError("no ONNX graph there", value=onnx, remedy="Write one: transpect convert MODEL FILE.onnx.")
    return files


def _tokenizer(place: Path) -> Tokenizer | None:
    try:
        return load_tokenizer(place)
    except TokenizerError:  # the weights can be verified without one
        return None
