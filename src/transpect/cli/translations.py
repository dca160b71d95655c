"""How near what an encoder–decoder writes comes to what it should have written: BLEU and chrF.

Source: Post 2018 (sacrebleu, arXiv:1804.08771), BLEU: Papineni et al. 2002, chrF: Popović 2015.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from transpect.base.errors import ConfigError, DataError
from transpect.base.i18n import tr
from transpect.cli.screen import console, progress, table

if TYPE_CHECKING:
    from transpect.lm import LanguageModel

__all__ = ["Measured", "measure", "print_table", "tokenizer_for"]


@dataclass(frozen=True)
class Measured:
    """What one way to decode gave.

    Attributes:
        decoding: the parameters; of greedy decoding none but those that hold for all.
        bleu: of the corpus, 0 to 100.
        chrf: likewise, chrF2.
        n_empty: how many outputs are empty.
        bleu_signature: how it was computed, as sacrebleu says it.
        chrf_signature: likewise.
    """

    decoding: dict[str, Any]
    bleu: float
    chrf: float
    n_empty: int
    bleu_signature: str
    chrf_signature: str

    def as_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)


def measure(
    lm: LanguageModel,
    pairs: Sequence[tuple[str, str | None]],
    asked: Mapping[str, Any],
    *,
    tokenize: str | None = None,
    batch_size: int = 32,
) -> list[Measured]:
    """Answer the sources greedily and as asked, and compare both with the targets.

    Args:
        lm: an encoder–decoder.
        pairs: source and target.
        asked: parameters of generation. Options of a strategy and of sampling are for the second row, where beam search
            with as many beams as `LanguageModel.translate` has stands if there are none; the others hold for both.
        tokenize: the tokenizer of BLEU; None is `tokenizer_for` the targets.
        batch_size: how many rows are decoded at a time.

    Raises:
        ConfigError: sacrebleu is not installed, or does not know the tokenizer.
        DataError: a document without a target.
        GenerationError: no encoder–decoder, or parameters that don't fit.
    """
    BLEU, CHRF = _metrics()
    sources = [source for source, _ in pairs]
    targets = [_target(source, target) for source, target in pairs]
    try:
        bleu = BLEU(tokenize=tokenize or tokenizer_for(targets))
    except Exception as error:  # an unknown name, or a package that the tokenizer needs
        raise ConfigError("sacrebleu must know the tokenizer of BLEU", value=tokenize, remedy=str(error)) from error
    chrf = CHRF()
    found: list[Measured] = []
    for decoding in _ways(asked):
        # greedy is greedy, whatever the checkpoint would like
        plain = {} if found else {"num_beams": 1, "num_beam_groups": 1, "penalty_alpha": None, "temperature": 0.0}
        outputs = list(_outputs(lm, sources, plain | decoding, batch_size))
        scores = bleu.corpus_score(outputs, [targets]), chrf.corpus_score(outputs, [targets])
        found.append(
            Measured(
                decoding,
                scores[0].score,
                scores[1].score,
                outputs.count(""),
                str(bleu.get_signature()),
                str(chrf.get_signature()),
            )
        )
    return found


def tokenizer_for(targets: Sequence[str]) -> str:
    """sacrebleu's tokenizer for the script that most of the letters are of: ``zh`` for Chinese; ``char`` for Japanese,
    Korean, Thai, Lao, Khmer and Burmese, whose words need a dictionary; ``13a``, its default, for others."""
    scripts = Counter(
        unicodedata.name(char, "").split(" ")[0].split("-")[0] for text in targets for char in text if char.isalpha()
    )
    spoken = {name: count for name, count in scripts.items() if 10 * count > scripts.total()}
    if spoken.keys() & {"HIRAGANA", "KATAKANA", "HANGUL", "THAI", "LAO", "KHMER", "MYANMAR"}:
        return "char"
    return "zh" if max(spoken, key=lambda name: spoken[name], default="") == "CJK" else "13a"


def print_table(measured: Sequence[Measured]) -> None:
    """A row for each, greedy decoding first, and below them how they were computed."""
    rows = table(tr("cli.eval.column.decoding"), "BLEU", "chrF2", tr("cli.eval.column.empty"), numbers=(1, 2, 3))
    for place, row in enumerate(measured):
        named = [] if place else [tr("cli.eval.greedy")]
        named += [f"{name}={value}" for name, value in row.decoding.items()]
        rows.add_row(", ".join(named), f"{row.bleu:.2f}", f"{row.chrf:.2f}", f"{row.n_empty:,}")
    console().print(rows)
    for signature in dict.fromkeys(f"BLEU {row.bleu_signature}" for row in measured):
        print(signature)
    for signature in dict.fromkeys(f"chrF2 {row.chrf_signature}" for row in measured):
        print(signature)


def _ways(asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Greedy, and as asked."""
    from transpect.decode.defaults import SAMPLING
    from transpect.decode.strategies import OPTIONS
    from transpect.lm.writing import NUM_BEAMS

    chosen = {name for name in asked if name in (*OPTIONS, *SAMPLING, "temperature")}
    greedy = {name: value for name, value in asked.items() if name not in chosen}
    return [greedy, {**asked, **({} if chosen else {"num_beams": NUM_BEAMS})}]


def _outputs(lm: LanguageModel, sources: Sequence[str], decoding: Mapping[str, Any], size: int) -> Iterator[str]:
    """One for each source, in their order; the model sees those of about one length together."""
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    found = [""] * len(sources)
    with progress(tr("cli.eval.progress"), len(sources)) as advance:
        for start in range(0, len(order), size):
            places = order[start : start + size]
            answers = lm.translate([sources[i] for i in places], batch_size=size, **decoding)
            for place, answer in zip(places, answers, strict=True):
                found[place] = answer
            advance(len(places))
    return iter(found)


def _target(source: str, target: str | None) -> str:
    if target is None:
        raise DataError(
            "what a model writes is compared with targets",
            value=source,
            remedy="Use pairs: a .tsv file, or a run that was trained on pairs.",
        )
    return target


def _metrics() -> tuple[Any, Any]:
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError as error:
        raise ConfigError(
            "BLEU and chrF are computed by sacrebleu, which is not installed",
            value=error.name,
            remedy="pip install 'transpect[eval]'",
        ) from error
    return BLEU, CHRF
