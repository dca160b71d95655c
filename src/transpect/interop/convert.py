"""A checkpoint of one kind made into another: a Hugging Face directory, a GGUF file, ONNX graphs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from transpect.base.codec import did_you_mean
from transpect.base.errors import CheckpointError, ConfigError
from transpect.base.gguf import is_gguf
from transpect.core import ModelConfig, SequenceClass, TokenClass, Transformer
from transpect.interop.checkpoint import check_formats, checkpoint_directory, load_generation, load_model, write_model
from transpect.interop.directory import atomic_file, check_replaceable
from transpect.interop.names import locate
from transpect.interop.places import CERTIFICATE, TOKENIZER, is_checkpoint
from transpect.interop.quantising import FULL
from transpect.interop.sentence import SETTINGS, body_of, read_head
from transpect.interop.sources import CONFIG, open_source
from transpect.quant import Plan
from transpect.text import load_tokenizer

if TYPE_CHECKING:
    from transpect.interop.gguf.writer import DType

__all__ = ["FORMATS", "Converted", "check_target", "convert", "write_changed"]

HF, GGUF, ONNX = FORMATS = ("hf", "gguf", "onnx")
_DTYPES: Final[Mapping[str, Mapping[str, str]]] = {
    HF: {
        **{name: name for name in ("float32", "bfloat16", "float16", "float64")},
        "f32": "float32",
        "bf16": "bfloat16",
        "f16": "float16",
    },
    GGUF: {"f32": "f32", "f16": "f16", "q8_0": "q8_0", "float32": "f32", "float16": "f16"},
    ONNX: {"float32": "float32", "float16": "float16", "f32": "float32", "f16": "float16"},
}
NOTHING: Final = Plan(None)
_NO_DIRECTORIES: Final = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".json")
"""How the files of a checkpoint end; whoever names one as a target means a file."""


@dataclass(frozen=True)
class Converted:
    """What `convert` wrote: where, in which format, and of what a model."""

    path: Path
    format: str
    model: Transformer


def convert(
    source: str | Path,
    target: str | Path,
    *,
    to: str | None = None,
    dtype: str | None = None,
    allow_pickle: bool = False,
) -> Converted:
    """Write the model that ``source`` names as ``target``, all or nothing, with its tokenizer and generation config.

    Args:
        source: see `locate`.
        target: a directory, or a file; one that stands there is replaced if it is a checkpoint of this kind.
        to: ``hf``, ``gguf`` or ``onnx``; None is by the end of ``target``: ``.gguf``, ``.onnx``, or a directory.
        dtype: of the weights; for ``hf`` float32, bfloat16, float16 or float64 (None is as they are, formats
            included), for ``gguf`` f32, f16 or q8_0 (None is f32), for ``onnx`` float32 or float16 (None is float32).
        allow_pickle: read pickled weights where the source has no others.

    Raises:
        CheckpointError: a source that can't be loaded, or a target that can't be written or is something else.
        ConfigError: an unknown format or dtype.
    """
    target = Path(target)
    form = _format(target, to)
    number = _dtype(form, dtype)
    _check_target(target, form)
    place = locate(source, allow_pickle=allow_pickle)
    # ONNX is computed with as it is recorded; GGUF's writer rounds once, from what is stored
    loaded = {HF: number, ONNX: "float32"}.get(form)
    quant = None if form == HF and number is None else FULL
    model = load_model(place, dtype=loaded, allow_pickle=allow_pickle, quant=quant)
    _WRITERS[form](model, place, target, number)
    return Converted(target, form, model)


def write_changed(model: Transformer, source: str | Path, target: str | Path) -> None:
    """Write a model that was made from ``source``, its weights in formats perhaps, with the tokenizer of that.

    Args:
        model: what to write, as it is.
        source: see `locate`.
        target: a directory, or a ``.gguf`` file; all or nothing, as by `convert`.

    Raises:
        CheckpointError: it can't be written, or ``target`` is something else.
    """
    form = check_target(target)
    _WRITERS[form](model, locate(source), Path(target), _dtype(form, None))


def check_target(target: str | Path, config: ModelConfig | None = None, plan: Plan = NOTHING) -> str:
    """The format in which `write_changed` would write, before any work is done.

    Args:
        target: see there.
        config: of a model whose weights a plan is to put into formats.
        plan: which.

    Raises:
        CheckpointError: something stands there that is not replaced, or a format that can't be written so.
        ConfigError: a file of another kind, or a plan that does not fit the model.
    """
    form = _format(Path(target), None)
    if form == ONNX:
        raise ConfigError("weights in formats are no ONNX graph", value=str(target), remedy="Name a directory.")
    _check_target(Path(target), form)
    if config is not None and form == GGUF:
        from transpect.interop.gguf.writer import check_gguf

        check_gguf(config, plan)
    elif config is not None:
        check_formats(config, plan)
    return form


def _write_hf(model: Transformer, place: Path, target: Path, dtype: str | None) -> None:
    with checkpoint_directory(target) as staging:
        _fill(model, place, staging)


def _write_gguf(model: Transformer, place: Path, target: Path, dtype: str | None) -> None:
    from transpect.interop.gguf import write_gguf

    assert dtype is not None
    tokenizer, generation = load_tokenizer(body_of(place)), load_generation(place)
    write_gguf(model, tokenizer, target, cast("DType", dtype), generation=generation, name=target.stem)
    target.with_name(f"{target.stem}.{CERTIFICATE}").unlink(missing_ok=True)  # of the file that was replaced


def _write_onnx(model: Transformer, place: Path, target: Path, dtype: str | None) -> None:
    """Graphs alone in a file; in a directory, beside the checkpoint that they are of."""
    from transpect.interop.onnx import write_onnx

    assert dtype is not None
    if target.suffix.lower() == ".onnx":
        with atomic_file(target) as staging:
            write_onnx(model, staging, dtype=dtype)
        return
    with checkpoint_directory(target) as staging:
        _fill(model, place, staging)
        write_onnx(model, staging, dtype=dtype)


_WRITERS: Final[Mapping[str, Callable[[Transformer, Path, Path, str | None], None]]] = {
    HF: _write_hf,
    GGUF: _write_gguf,
    ONNX: _write_onnx,
}


def _fill(model: Transformer, place: Path, staging: Path) -> None:
    """A whole checkpoint: the model, how it is decoded, and the tokenizer's own files as they are."""
    write_model(model, staging, generation=load_generation(place), extra_config=_extra(model, place))
    if place.is_file():
        load_tokenizer(place).save(staging)
        return
    body = body_of(place)
    for pattern in TOKENIZER:
        for file in body.glob(pattern):
            _copy(file, staging / file.relative_to(body))
    if read_head(place) is not None:
        for name in SETTINGS:
            for folder in (place, body):
                if (folder / name).is_file():
                    _copy(folder / name, staging / name)


def _extra(model: Transformer, place: Path) -> dict[str, Any]:
    """What of the source's config says nothing about the computation and is still wanted: what classes are called."""
    config = open_source(place).config
    classes = ("id2label", "label2id") if isinstance(model.config.head, SequenceClass | TokenClass) else ()
    return {name: config[name] for name in (*classes, "transpect") if config.get(name)}


def _copy(file: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    shutil.copyfile(file, target)


def _format(target: Path, to: str | None) -> str:
    suffix = target.suffix.lower()
    by_suffix = {".gguf": GGUF, ".onnx": ONNX}.get(suffix)
    form = (by_suffix or HF) if to is None else to
    if form not in FORMATS:
        remedy = f"{did_you_mean(form, FORMATS)} Use {', '.join(FORMATS)}.".strip()
        raise ConfigError("no such format", value=form, remedy=remedy)
    if by_suffix not in (None, form) or (form == GGUF and by_suffix is None):
        raise ConfigError(
            f"the name of what is written must fit its format, {form}",
            value=str(target),
            remedy={HF: "Name a directory.", GGUF: "Name a .gguf file.", ONNX: "Name a directory or a .onnx file."}[
                form
            ],
        )
    if suffix in _NO_DIRECTORIES and not target.is_dir():
        raise ConfigError(
            f"a {suffix} file alone is no checkpoint, and a directory is not called so",
            value=str(target),
            remedy=f"Name a directory, e.g. {target.with_suffix('')}: its weights are a model.safetensors.",
        )
    return form


def _dtype(form: str, dtype: str | None) -> str | None:
    known = _DTYPES[form]
    if dtype is None:
        return {GGUF: "f32", ONNX: "float32"}.get(form)
    if dtype not in known:
        raise ConfigError(f"the dtype of {form} must be one of {', '.join(dict.fromkeys(known.values()))}", value=dtype)
    return known[dtype]


def _check_target(target: Path, form: str) -> None:
    """Refuse to replace what is no checkpoint of the kind, before any work is done."""
    if target.suffix.lower() in (".gguf", ".onnx"):
        if target.is_dir() or (target.exists() and not _replaceable(target)):
            raise CheckpointError(
                f"this exists and is no {target.suffix} file, so it is not replaced by one",
                value=target,
                remedy="Choose a new name.",
            )
        return
    check_replaceable(target)
    if target.is_dir() and any(target.iterdir()) and not is_checkpoint(target):
        raise CheckpointError(
            f"this directory holds other things and no {CONFIG}, so it is not replaced by a checkpoint",
            value=target,
            remedy="Choose a new directory, e.g. one below it.",
        )


def _replaceable(file: Path) -> bool:
    if file.suffix.lower() == ".gguf":
        return is_gguf(file)
    with file.open("rb") as opened:
        return opened.read(1) == b"\x08"  # an ONNX file begins with the field of its version
