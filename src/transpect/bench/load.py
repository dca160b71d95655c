"""Opening a model: how long until it is there, and until it has read a first token.

Each program opens the file again in every round, in a process that has imported everything; the file is in the system's
cache. Some programs map a file and read it only when they compute, so the first token counts beside the call itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from transpect.bench.decode import same
from transpect.bench.files import directory_of, gguf_of
from transpect.bench.formats import FORMATS, Format
from transpect.bench.harness import Options, Sitting, Work
from transpect.bench.results import Bar
from transpect.bench.worker import OURS

__all__ = ["TASK", "Loading", "measure"]

TASK: Final = "load"
UNITS: Final = {"load": "s", "first token": "s"}
SECONDS: Final = 1.5
"""What opening a GGUF file into 8 bits may take."""

Loads = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Loading:
    """What is opened.

    Attributes:
        model: its name, see `transpect.interop.locate`.
        formats: of `FORMATS`.
    """

    model: str
    formats: tuple[str, ...]


def measure(options: Options, what: Loading) -> Sitting:
    """Measure every format, from a Hugging Face directory and from a GGUF file, both in the format itself.

    Raises:
        CheckpointError: no such model.
        PeerError: ours can't open it.
    """
    with Sitting(options) as sitting:
        for name in what.formats:
            for file, loads in cases(what.model, FORMATS[name], options):
                work = Work("", {}, {}, UNITS, same=same)
                with sitting.field(TASK, f"{file}, {name}", loads) as field:
                    taken = sitting.race(field, work)
                if file == "GGUF" and FORMATS[name].bits == 8:
                    values = tuple(answer["sizes"]["load"] / SECONDS for answer in taken[OURS])
                    sitting.judge(f"{file}, {name}", f"{SECONDS:g} s", "load", values, Bar(1.0, least=False))
    return sitting


def cases(model: str, form: Format, options: Options) -> Iterator[tuple[str, Loads]]:
    """(kind of file, what each program opens)."""
    opened: Mapping[str, Any] = {"open": dict(form.ours), "bits": form.bits}
    if form.transformers:
        directory = str(directory_of(model))
        loads: Loads = {OURS: {"model": directory, **opened}}
        if "transformers" in options.against:
            loads["transformers"] = {"directory": directory, "dtype": form.transformers}
        yield "safetensors", loads
    if "llama.cpp" in options.against and form.llama:
        file = str(gguf_of(model, form.llama[0], options))
        theirs = {"file": file, "bits": form.bits}
        yield "GGUF", {OURS: {"model": file, **opened}, f"llama.cpp {form.llama[0]}": theirs}
