"""Vectors of a batch of sentences, by an encoder such as BERT: how many sentences a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from transpect.bench.files import ctranslate2_of, directory_of
from transpect.bench.formats import FORMATS
from transpect.bench.harness import Options, Sitting, Work
from transpect.bench.results import Absent, Bar
from transpect.bench.sentences import SENTENCES
from transpect.bench.worker import OURS, PeerError
from transpect.text import load_tokenizer

__all__ = ["TASK", "Encoding", "measure"]

TASK: Final = "encode"
UNITS: Final = {"sentences": "sentences/s"}
BARS: Final = {("transformers", "sentences"): Bar(1.5), ("ctranslate2", "sentences"): Bar(1.0)}
TIMES: Final = 4
"""How often a batch is read in a round, which takes about a second."""


@dataclass(frozen=True)
class Encoding:
    """What is read.

    Attributes:
        model: of a sentence encoder that takes the mean over tokens; its name, see `transpect.interop.locate`.
        formats: of `FORMATS`.
    """

    model: str
    formats: tuple[str, ...]


def measure(options: Options, what: Encoding) -> Sitting:
    """Measure `SENTENCES` as one batch in every format: from ids to vectors, the same of all programs.

    Raises:
        CheckpointError: no such model.
        PeerError: ours can't read it.
    """
    with Sitting(options) as sitting:
        directory = directory_of(what.model)
        tokenizer = load_tokenizer(directory)
        texts = [tokenizer.encode(text, add_special_tokens=True) for text in SENTENCES]
        lengths = sorted(map(len, texts))
        sitting.results.notes.append(
            f"{len(texts)} sentences of {lengths[0]} to {lengths[-1]} tokens, {sum(lengths)} in all"
        )
        for name in what.formats:
            loads = loads_of(what.model, name, sitting)
            with sitting.field(TASK, name, loads, {peer for peer, _ in BARS}) as field:
                work = Work(f"batch {len(texts)}", {"texts": texts, "times": TIMES}, UNITS, bars=BARS, same=same)
                sitting.race(field, work)
    return sitting


def loads_of(model: str, name: str, sitting: Sitting) -> dict[str, dict[str, Any]]:
    """What each program that has the format is told to open; of the others it is noted why not."""
    form, directory = FORMATS[name], str(directory_of(model))
    loads: dict[str, dict[str, Any]] = {OURS: {"model": directory, "open": dict(form.ours), "bits": form.bits}}
    for peer in sitting.options.against:
        try:
            if peer == "transformers" and form.transformers:
                loads[peer] = {"directory": directory, "dtype": form.transformers}
            elif peer == "ctranslate2" and form.ctranslate2:
                folder = str(ctranslate2_of(model, sitting.options))
                loads[peer] = {"folder": folder, "compute": form.ctranslate2}
            else:
                sitting.results.absent.append(Absent(name, peer, f"it has no such weights of {form.bits} bits"))
        except PeerError as error:
            sitting.results.absent.append(Absent(name, peer, str(error), barred=True))
    return loads


def same(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """The least cosine between two programs' vectors of a sentence."""
    rows = zip(ours["vectors"], theirs["vectors"], strict=True)
    least = min(sum(x * y for x, y in zip(a, b, strict=True)) for a, b in rows)
    return f"the cosine of its vectors with ours is at least {least:.6f}"
