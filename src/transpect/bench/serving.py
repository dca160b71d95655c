"""Serving: how many tokens a second a server writes for some clients at a time, and how long each of them waits."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from transpect.bench.files import directory_of, gguf_of
from transpect.bench.formats import FORMATS, Format
from transpect.bench.harness import Options, Sitting, Work
from transpect.bench.peers import home, server_of
from transpect.bench.results import Bar
from transpect.bench.sentences import SENTENCES
from transpect.bench.worker import OURS

__all__ = ["TASK", "Serving", "measure"]

TASK: Final = "serve"
UNITS: Final = {"throughput": "tokens/s"}
SIZES: Final = dict.fromkeys(("first token p50", "first token p99", "between p50", "between p99"), "s")
LENGTHS: Final = (20, 45, 70, 95, 120)
"""Words of a prompt."""
JUDGED: Final = 16
"""Clients at which there are bars."""


@dataclass(frozen=True)
class Serving:
    """What is asked.

    Attributes:
        model: its name, see `transpect.interop.locate`.
        formats: of `FORMATS`.
        clients: how many at a time.
        new: tokens of each answer.
        each: how many requests each client makes, one after another.
    """

    model: str
    formats: tuple[str, ...]
    clients: tuple[int, ...] = (1, 4, 16, 64)
    new: int = 96
    each: int = 1


def measure(options: Options, what: Serving) -> Sitting:
    """Measure every format with every number of clients; all servers are sent the same prompts.

    Raises:
        CheckpointError: no such model.
        PeerError: ours can't be started.
    """
    with Sitting(options) as sitting:
        for name in what.formats:
            form = FORMATS[name]
            judged = bars(form) if JUDGED in what.clients else {}
            with sitting.field(TASK, name, dict(loads(what, form, options)), {peer for peer, _ in judged}) as field:
                for clients in what.clients:
                    asked = {"prompts": prompts(clients, what.each), "new": what.new}
                    limits = judged if clients == JUDGED else {}
                    sitting.race(field, Work(f"{clients} clients", asked, UNITS, SIZES, limits))
    return sitting


def bars(form: Format) -> dict[tuple[str, str], Bar]:
    """(peer, measure) → what the ratio must be."""
    peers = {"llama-server": 1.5, **({"transformers": 4.0} if form.transformers else {})}
    found = {(peer, "throughput"): Bar(least) for peer, least in peers.items()}
    waits = ("first token p50", "between p99")
    return found | {(peer, measure): Bar(1.0, least=False) for peer in peers for measure in waits}


def loads(what: Serving, form: Format, options: Options) -> Iterator[tuple[str, dict[str, Any]]]:
    """(program, what it is told to serve)."""
    directory = directory_of(what.model)
    yield OURS, {"model": str(directory), "open": dict(form.ours), "bits": form.bits}
    if "llama-server" in options.against and form.llama:
        room = {"slots": max(what.clients), "capacity": 1024}
        server = str(server_of("llama-server", options.peer_python, options.see))
        file = str(gguf_of(what.model, form.llama[0], options))
        yield f"llama-server {form.llama[0]}", {"server": server, "file": file, "bits": form.bits, **room}
    if "transformers" in options.against and form.transformers:
        theirs = {"directory": str(endless(directory)), "dtype": form.transformers, "bits": form.bits}
        yield "transformers", theirs


def prompts(clients: int, each: int) -> list[list[str]]:
    """Texts of 20 to 120 words, for each client others."""
    words = " ".join(SENTENCES).split()
    texts = []
    for number in range(clients * each):
        length, start = LENGTHS[number % len(LENGTHS)], 37 * number % len(words)
        texts.append(" ".join((words * 2)[start : start + length]))
    return [texts[client::clients] for client in range(clients)]


def endless(directory: Path) -> Path:
    """The same model without a token that ends its texts, for who can't be told to go on."""
    made = home() / "models" / f"{directory.name}-endless"
    if not made.is_dir():
        part = made.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(directory, part)
        for name in ("config.json", "generation_config.json"):
            file = part / name
            if file.is_file():
                known = json.loads(file.read_text(encoding="utf-8"))
                file.write_text(json.dumps({**known, "eos_token_id": None}), encoding="utf-8")
        part.replace(made)
    return made
