"""Answers of an encoder–decoder, greedily and by beam search: how many tokens a second.

The peers' model is M2M-100 of the same sizes with the same weights and positions, which is the same function. All write
the same number of tokens, since none may end before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from transpect.bench.decode import same
from transpect.bench.encode import loads_of
from transpect.bench.files import directory_of
from transpect.bench.harness import Options, Sitting, Work
from transpect.bench.results import Bar
from transpect.bench.sentences import SENTENCES
from transpect.decode import Prompts
from transpect.text import load_tokenizer

__all__ = ["TASK", "Translating", "measure"]

TASK: Final = "translate"
UNITS: Final = {"call": "tokens/s"}
BARS: Final = {("transformers", "call"): Bar(1.5), ("ctranslate2", "call"): Bar(1.0)}


@dataclass(frozen=True)
class Translating:
    """What is answered.

    Attributes:
        model: an encoder–decoder, e.g. of ``recipes/translate-ui.yaml``; see `transpect.interop.locate`.
        formats: of `FORMATS`.
        beams: how many beams each source has; 1 is greedy.
        new: tokens that each answer has.
    """

    model: str
    formats: tuple[str, ...]
    beams: tuple[int, ...] = (1, 4)
    new: int = 32


def measure(options: Options, what: Translating) -> Sitting:
    """Measure `SENTENCES` as one batch in every format: from their ids to the best answer's.

    Raises:
        CheckpointError: no such model.
        PeerError: ours can't answer.
    """
    with Sitting(options) as sitting:
        prompts = Prompts(load_tokenizer(directory_of(what.model)), {})
        sources = [prompts.source(text) for text in SENTENCES]
        for name in what.formats:
            loads = loads_of(what.model, name, sitting)
            with sitting.field(TASK, name, loads, {peer for peer, _ in BARS}) as field:
                for beams in what.beams:
                    case = f"batch {len(sources)}, {'greedy' if beams == 1 else f'{beams} beams'}"
                    asked = {"sources": sources, "new": what.new, "beams": beams}
                    sitting.race(field, Work(case, asked, UNITS, bars=BARS, same=same))
    return sitting
