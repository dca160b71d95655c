"""Record the graphs with `torch.export`, write them as ONNX, all of them or none.

Weights stand inside the file; only above 2 GB, which the format can't hold, in ``NAME.onnx.data`` beside it.
"""

from __future__ import annotations

import io
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from transpect.base.devices import resolve_dtype
from transpect.base.errors import CheckpointError, first_line
from transpect.core import Naive, Tags, Transformer
from transpect.core.context import Context, Source
from transpect.core.kernels import Exact
from transpect.core.positions import Rope, TransformerXL
from transpect.interop.blank import blank
from transpect.interop.onnx.graphs import Graph, graphs_of, run

__all__ = ["FILES", "onnx_files", "write_onnx"]

ONE, SEVERAL = ("model.onnx",), ("encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx")
FILES = ONE + SEVERAL
"""What the graphs of a model are called in a directory."""
OPSET = 18
LIMIT = 2**31 - 2**24  # protobuf's, with room for the graph itself


def onnx_files(folder: Path) -> list[Path]:
    """The graphs in a directory, or in its ``onnx/``: none, one, or an encoder–decoder's three."""
    for place in (folder, folder / "onnx"):
        for names in (ONE, SEVERAL):
            if all((place / name).is_file() for name in names):
                return [place / name for name in names]
    return []


def write_onnx(model: Transformer, path: str | Path, *, dtype: str = "float32") -> list[Path]:
    """Write a model as ONNX; see `transpect.interop.onnx.graphs` for inputs and outputs.

    Batch, length and cached length are free, and an empty cache has length 0. Attention is written as the definition
    has it, so that every runtime gives the same.

    Args:
        model: an encoder, a decoder, or an encoder–decoder.
        path: a directory, which gets ``model.onnx`` (an encoder–decoder's three files: `FILES`) beside what it holds;
            or, for a model that is one graph, a file ``….onnx``.
        dtype: of weights, inputs and outputs: ``float32`` or ``float16``.

    Returns:
        the graphs that were written.

    Raises:
        CheckpointError: a package is missing, a part of the model has no ONNX form (named), or it can't be written.
            Nothing is left behind then, and what stood there stands there still.
    """
    target = Path(path)
    check(model, dtype)
    graphs = graphs_of(_at_rest(model, resolve_dtype(dtype)))
    if target.suffix == ".onnx":
        if len(graphs) > 1:
            raise CheckpointError(
                "an encoder–decoder is three graphs, so it is written to a directory", value=target.name
            )
        folder, names = target.parent, [target.name]
    else:
        folder, names = target, [f"{graph.stem}.onnx" for graph in graphs]
    with _staging(folder) as staging:
        for graph, name in zip(graphs, names, strict=True):
            _record(graph, staging / name)
    return [folder / name for name in names]


def check(model: Transformer, dtype: str = "float32") -> None:
    """Refuse, by its name, what has no ONNX form.

    Raises:
        CheckpointError: a package that is not installed, or a part of the model that can't be written.
    """
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise CheckpointError(
            "writing ONNX needs packages that are not installed",
            value=", ".join(missing),
            remedy="Run: pip install 'transpect[onnx]'",
        )
    if resolve_dtype(dtype) not in (torch.float32, torch.float16):
        raise CheckpointError("ONNX weights are float32 or float16", value=dtype)
    for name, kind in ((name, kind) for name, stack in model.config.towers.items() for kind in stack.kinds):
        where, positions = f"{name}.positions", kind.positions
        for branch, attention in (("attention", kind.attention), ("cross", kind.cross)):
            if attention is not None and not isinstance(attention.kernel, Exact):
                why = "how it goes along the sequence depends on its length"
                raise _refusal(f"{name}.{branch}.kernel", attention.kernel.kind, why)
        if isinstance(positions, TransformerXL):
            raise _refusal(where, positions.kind, "its table of distances grows with the input")
        if isinstance(positions, Rope) and positions.scaling.of_each_pass and name == "decoder":
            why = "its frequencies depend on the final length, which a graph with a cache is not told"
            raise _refusal(f"{where}.scaling", positions.scaling.kind, why)
    for name, stack in model.config.towers.items():
        if stack.summaries is not None:
            raise _refusal(
                f"{name}.summaries", f"size {stack.summaries.size}", "how many there are follows from a length"
            )
    decoder = model.config.decoder
    if decoder is not None and decoder.asks_for("is_global"):
        raise _refusal("decoder.visibility", decoder.visibility.kind, "a cache does not say what is global")
    if decoder is not None and decoder.crosses and decoder.asks_for("prefix"):
        raise _refusal("decoder.visibility", decoder.visibility.kind, "an answer to a source has no prefix")


def _refusal(where: str, kind: str, why: str) -> CheckpointError:
    return CheckpointError(f"{where} has no ONNX form: {why}", value=kind)


def _at_rest(model: Transformer, dtype: torch.dtype) -> Transformer:
    """The same weights on the CPU under a model of its own, which recording may mark without marking the caller's."""
    twin = blank(model.config.computed_by(Naive()))
    state = {name: tensor.detach().to("cpu", dtype) for name, tensor in model.state_dict().items()}
    twin.load_state_dict(state, assign=True)
    twin.eval().requires_grad_(False)
    _warm(twin)
    return twin


def _warm(model: Transformer) -> None:
    """One pass, so that what modules prepare at their first is real and not part of a recording."""
    ids, tags = torch.zeros(1, 1, dtype=torch.int64), Tags.of(torch.zeros(1, 1, dtype=torch.int64))
    with torch.inference_mode(False), torch.no_grad():
        source = model.encode(ids, tags=tags) if len(model.config.towers) > 1 else Source(torch.empty(1, 0, 0), tags)
        run(model, ids, Context(tags, source=source), None)


def _record(graph: Graph, file: Path) -> None:
    weight = next(graph.module.parameters()).dtype
    examples = [port.example.to(weight) if port.example.is_floating_point() else port.example for port in graph.inputs]
    size = sum(p.numel() * p.element_size() for p in graph.module.parameters())
    try:
        with _quiet():
            program: Any = torch.onnx.export(
                graph.module.eval(),
                (examples,),
                dynamo=True,
                dynamic_shapes=([port.axes for port in graph.inputs],),
                input_names=[port.name for port in graph.inputs],
                output_names=list(graph.outputs),
                opset_version=OPSET,
                verbose=False,
            )
            _forget_the_recording(program.model)
            program.save(file, external_data=size > LIMIT)
    except OSError:
        raise
    except Exception as error:
        if any(isinstance(cause, KeyboardInterrupt) for cause in _causes(error)):  # torch wraps Ctrl-C in its own error
            raise KeyboardInterrupt from error
        raise CheckpointError(f"torch can't record this model as a graph: {first_line(error)}") from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that it came from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or error.__context__


def _forget_the_recording(model: Any) -> None:
    """Drop what the recorder notes at each node: stack traces with paths of this machine, several times the graph."""
    for node in model.graph.all_nodes():
        node.metadata_props.clear()
    for value in (*model.graph.inputs, *model.graph.outputs):
        value.metadata_props.clear()
    model.metadata_props.clear()
    model.producer_name, model.producer_version = "transpect", version("transpect")


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """A directory whose files take their places in ``folder`` when the block ends without an error."""
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".onnx.tmp-", dir=folder))
    except OSError as error:
        raise CheckpointError(f"can't write here: {error.strerror}", value=folder) from error
    try:
        yield staging
        for file in sorted(staging.iterdir(), reverse=True):  # a graph after the data that it names
            os.replace(file, folder / file.name)
    except OSError as error:
        raise CheckpointError(f"can't write the graph: {error}", value=folder) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        if made and not any(folder.iterdir()):
            folder.rmdir()


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter's progress and its remarks about itself are not for the person."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
