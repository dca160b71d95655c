"""Reading a prompt: how many tokens a second, up to the first token that follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from transpect.bench.decode import TASK as SCRIPTS
from transpect.bench.decode import loads_of, same
from transpect.bench.files import directory_of
from transpect.bench.formats import FORMATS, Format
from transpect.bench.harness import Options, Sitting, Work
from transpect.bench.results import Bar
from transpect.text import load_tokenizer

__all__ = ["SCRIPTS", "TASK", "Prefilling", "measure"]

TASK: Final = "prefill"
PASSAGE: Final = """\
Shipping list, northern depot: 14 crates of copper wire, 3 pallets of slate, 250 metres of hemp rope, 8 barrels of \
linseed oil, 60 panes of window glass, 2 anvils, 31 sacks of lime, 5 coils of lead pipe, 19 oak beams, 40 tins of \
varnish, 7 bolts of sailcloth, 12 reels of twine, 90 bricks of firm clay, 6 kegs of nails, 22 planks of larch.
"""


@dataclass(frozen=True)
class Prefilling:
    """What is read.

    Attributes:
        model: its name, see `transpect.interop.locate`.
        formats: of `FORMATS`.
        tokens: how long the prompt is.
    """

    model: str
    formats: tuple[str, ...]
    tokens: int = 1024


def measure(options: Options, what: Prefilling) -> Sitting:
    """Measure one prompt in every format: from its ids to the first token that follows.

    Raises:
        CheckpointError: no such model.
        PeerError: ours can't read it.
    """
    with Sitting(options) as sitting:
        ids: list[int] = load_tokenizer(directory_of(what.model)).encode(PASSAGE)
        prompt = (ids * (what.tokens // len(ids) + 1))[: what.tokens]
        for name in what.formats:
            limits = bars(FORMATS[name])
            barred = {peer for peer, _ in limits}
            loads = loads_of(what.model, name, sitting, barred, {"batch": 1, "capacity": what.tokens + 1})
            with sitting.field(SCRIPTS, name, loads, barred) as field:
                sitting.race(
                    field,
                    Work(f"{what.tokens:,} tokens", {"prompts": [prompt], "new": 1}, UNITS, bars=limits, same=same),
                )
    return sitting


UNITS: Final = {"prompt": "tokens/s"}


def bars(form: Format) -> dict[tuple[str, str], Bar]:
    """(peer, measure) → what the ratio must be."""
    found = {("llama.cpp", "prompt"): Bar(1.3)}
    if form.transformers == "bfloat16":
        found["transformers", "prompt"] = Bar(1.2)
    return found
