"""Greedy decoding: how many tokens a second each program writes, alone and in a batch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from transpect.bench.files import ctranslate2_of, directory_of, gguf_of
from transpect.bench.formats import FORMATS, Format
from transpect.bench.harness import READ, Field, Options, Sitting, Taken, Work
from transpect.bench.results import Absent, Bar
from transpect.bench.worker import OURS, PeerError
from transpect.text import load_tokenizer

__all__ = ["TASK", "Decoding", "measure"]

TASK: Final = "decode"
PROMPTS: Final = (
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "To sort a list of numbers in Python, you can",
    "The three laws of motion were",
    "My grandmother's recipe for apple pie begins with",
    "In 1969, the first people landed",
    "Photosynthesis is the process by which",
    "Dear Sir or Madam, I am writing",
)
UNITS: Final = {"steps": "tokens/s", "call": "tokens/s"}
"""``steps``: from the first to the last new token; ``call``: from ids to ids, reading the prompt included."""
SHARE: Final = 0.75
"""Of what memory gives, that the weights are to be read at where one sequence is decoded."""


@dataclass(frozen=True)
class Decoding:
    """What is decoded.

    Attributes:
        model: its name, see `transpect.interop.locate`.
        formats: of `FORMATS`.
        batches: how many sequences at a time.
        new: tokens that each prompt is continued by.
    """

    model: str
    formats: tuple[str, ...]
    batches: tuple[int, ...] = (1, 8)
    new: int = 128


def measure(options: Options, what: Decoding) -> Sitting:
    """Measure every format in every batch; all programs continue the same ids by the same number of tokens.

    Raises:
        CheckpointError: no such model.
        PeerError: ours can't decode it.
    """
    with Sitting(options) as sitting:
        directory = directory_of(what.model)
        tokenizer = load_tokenizer(directory)
        ids = [tokenizer.encode(PROMPTS[number % len(PROMPTS)]) for number in range(max(what.batches))]
        shortest = min(map(len, ids))  # of one length, so that no row has padding
        prompts = [row[:shortest] for row in ids]
        for name in what.formats:
            form = FORMATS[name]
            barred = {peer for batch in what.batches for peer, _ in bars(form, batch)}
            room = {"batch": max(what.batches), "capacity": shortest + what.new}
            loads = loads_of(what.model, name, sitting, barred, room)
            with sitting.field(TASK, name, loads, barred) as field:
                sitting.results.notes += sizes(name, field)
                for batch in what.batches:
                    work = Work(
                        f"batch {batch}",
                        {"prompts": prompts[:batch], "new": what.new},
                        UNITS,
                        bars=bars(form, batch),
                        same=same,
                    )
                    taken = sitting.race(field, work)
                    if batch == 1:
                        _share(sitting, name, field.workers[OURS].facts["bytes"], taken, form.bits)
    return sitting


def loads_of(
    model: str, name: str, sitting: Sitting, barred: Collection[str], room: Mapping[str, int]
) -> dict[str, dict[str, Any]]:
    """What each program that has the format is told to open; of the others it is noted why not.

    Args:
        model: its name.
        name: of the format.
        sitting: whose programs.
        barred: peers for which there are bars.
        room: ``batch`` and ``capacity``, the most sequences and their longest.
    """
    form, directory = FORMATS[name], str(directory_of(model))
    loads: dict[str, dict[str, Any]] = {OURS: {"model": directory, "open": dict(form.ours)}}
    for peer in sitting.options.against:
        try:
            own = _loads_of_peer(peer, model, directory, form, sitting.options)
        except PeerError as error:
            sitting.results.absent.append(Absent(name, peer, str(error), peer in barred))
            continue
        if not own:
            sitting.results.absent.append(Absent(name, peer, f"it has no such weights of {form.bits} bits"))
        loads |= own
    return {who: {**own, **room} for who, own in loads.items()}


def _loads_of_peer(peer: str, model: str, directory: str, form: Format, options: Options) -> dict[str, dict[str, Any]]:
    match peer:
        case "llama.cpp":
            return {f"{peer} {kind}": {"file": str(gguf_of(model, kind, options))} for kind in form.llama}
        case "transformers" | "litgpt" if form.transformers:
            return {peer: {"directory": directory, "dtype": form.transformers}}
        case "ctranslate2" if form.ctranslate2:
            return {peer: {"folder": str(ctranslate2_of(model, options)), "compute": form.ctranslate2}}
    return {}


def bars(form: Format, batch: int) -> dict[tuple[str, str], Bar]:
    """(peer, measure) → what the ratio must be."""
    found: dict[tuple[str, str], Bar] = {}
    if batch == 1:
        found["llama.cpp", "steps"] = Bar(1.0 if form.bits >= 16 else 1.4)
        if form.transformers:
            found["transformers", "steps"] = Bar(3.0)
    if form.bits == 8 and batch == 8:
        found["llama.cpp", "steps"] = Bar(2.0)
    return found


def same(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """How far two programs write the same tokens."""
    rows = list(zip(ours["ids"], theirs["ids"], strict=True))
    equal = sum(a == b for a, b in rows)
    prefix = [next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), len(a)) for a, b in rows]
    return f"the same tokens as ours in {equal} of {len(rows)} rows (at least the first {min(prefix)})"


def sizes(name: str, field: Field) -> list[str]:
    """A line of the bytes that each program's weights take, where it says so."""
    told = {who: worker.facts.get("bytes") for who, worker in field.workers.items()}
    return [f"{name}: weights, MB: {', '.join(f'{who} {size / 1e6:.0f}' for who, size in told.items() if size)}"]


def _share(sitting: Sitting, name: str, weights: int, taken: Taken, bits: int) -> None:
    """How much of what memory gave in its round the decoding of one sequence took: each step reads all weights once."""
    shares = tuple(
        answer["count"]["steps"] / answer["seconds"]["steps"] * weights / 1e9 / answer[READ] for answer in taken[OURS]
    )
    sitting.judge(f"{name}, batch 1", "the machine", "memory read", shares, Bar(SHARE) if bits >= 8 else None)
