"""Load a model once as the reference and once as it is used, and measure every way against the reference."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

from transpect import interop
from transpect.base.devices import resolve_device, resolve_dtype
from transpect.base.errors import ConfigError, TokenizerError
from transpect.text import Tokenizer, load_tokenizer
from transpect.verify.certificate import Certificate, Row, digests, now, versions
from transpect.verify.rows import Setting, own_rows, peer_rows
from transpect.verify.samples import samples_for

__all__ = ["verify"]

SEEDS = (-(2**63), 2**63 - 1)
"""The first seed, and the one after the last; the noise takes the seed after the given one, too."""


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
        ConfigError: an unknown device or dtype, a seed outside 64 bits.

    Warns:
        UserWarning: the tokenizer can't be read, so that no text is among the samples.
    """
    number = resolve_dtype(dtype)
    if not SEEDS[0] <= seed < SEEDS[1]:
        raise ConfigError("seed must be a whole number of 64 bits with a sign", value=seed, remedy="Take 0.")
    place = interop.locate(name, allow_pickle=allow_pickle)
    model = interop.load_model(place, device=resolve_device(device), dtype=number, allow_pickle=allow_pickle)
    generation = interop.load_generation(place)
    samples = samples_for(model.config, _tokenizer(place), generation, seed=seed)
    rows = []
    setting = Setting.of(model, samples, seed=seed)
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
        device=str(model.device),
        seed=seed,
        samples=tuple((sample.label, len(sample.ids)) for sample in samples),
        weights=digests(interop.body_of(place)),
        rows=tuple(rows),
        versions=versions(),
        date=now(),
    )


def _tokenizer(place: Path) -> Tokenizer | None:
    try:
        return load_tokenizer(interop.body_of(place))
    except TokenizerError as error:  # the weights can be verified without one
        warnings.warn(f"only random ids are read, and no text: {error}", stacklevel=3)
        return None
