"""Beam search: many beginnings of an output side by side, and the best whole ones among what they become."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from transpect.decode.checks import check
from transpect.decode.filters.options import is_number, is_whole
from transpect.decode.strategies.base import Strategy
from transpect.decode.strategies.beam_batch import decode
from transpect.decode.strategies.beam_hypotheses import Beams, EarlyStopping

if TYPE_CHECKING:
    from transpect.core import ModelConfig
    from transpect.decode.params import GenerationParams
    from transpect.decode.request import Event
    from transpect.decode.row import Row
    from transpect.decode.stepper import Steps

STEEPEST = 16
"""Length penalties are between −16 and 16: length ** penalty is then a number for every length."""


@dataclass(frozen=True)
class BeamSearch(Strategy):
    """The ``n`` best outputs that are found by going on, at each token, with the ``num_beams`` best beginnings.

    Outputs are ranked by

        score = Σ ln p(token) / length ** length_penalty,

    where length counts the new tokens, the one that ends the output and those of `Request.begun` included, and ln p is
    the log-softmax of the model after the penalties, biases and bans of the request (not normalised again, unless that
    is asked for: as in ``transformers``), but before temperature and what follows it.

    At each step the continuations of all beams are ranked together. One that ends the output (an EOS, a stop string,
    the last token that there is room for) is a whole output if it is among the first ``num_beams``, and is dropped if
    it is not; the first ``num_beams`` that do not end it go on. No output is found twice.

    At a temperature above 0 the continuations are drawn instead, twice ``num_beams`` of them (or 1 + the number of EOS
    ids times) without replacement, from softmax of the beams' sums after all filters, and ln p is divided by the
    temperature (beam sampling).

    Attributes:
        num_beams: how many beginnings go on.
        length_penalty: above 0 favours long outputs, below 0 short ones; 0 ranks by probability.
        early_stopping: when the search is over, besides where nothing is left to go on with:
            True: ``num_beams`` outputs are found;
            False: and the best sum that runs, at its present length, has no better score than the worst of them (the
            rule of ``transformers``; under a positive penalty a longer output might have become better);
            "never": no output that could still come has a better score than the n-th best. This changes no result: it
            is exact, for every penalty.
        renormalize_logits: whether ln p is normalised again after all that changes it, so that a ban or a penalty of
            other tokens makes an output no less probable.

    Source: the rules are those of ``transformers`` 5 (``GenerationMixin._beam_search``); the length penalty is that of
    Wu et al. 2016 (arXiv:1609.08144, §7) without its constant 5.
    """

    trigger: ClassVar[str] = "num_beams"
    off: ClassVar[tuple[object, ...]] = (1,)

    num_beams: int = 4
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False
    renormalize_logits: bool = False

    def __post_init__(self) -> None:
        _check_beams(self)

    def width(self, params: GenerationParams) -> int:
        """See `Strategy.width`."""
        return self.num_beams

    def check(self, params: GenerationParams, config: ModelConfig) -> None:
        """See `Strategy.check`."""
        _check_wanted(params.n, self.num_beams)

    def spread(self, row: Row) -> list[Row]:
        """See `Strategy.spread`."""
        return [row]

    def decode(self, steps: Steps, rows: Sequence[Row]) -> Iterator[Event]:
        """See `Strategy.decode`."""
        beams = Beams(self.num_beams, self.length_penalty, self.early_stopping, self.renormalize_logits)
        return decode(steps, rows, beams)


@dataclass(frozen=True)
class DiverseBeamSearch(Strategy):
    """Beam search in ``num_beam_groups`` groups of ``num_beams / num_beam_groups`` beams that avoid each other.

    The groups choose one after the other. In each, ln p of a token is lowered by ``diversity_penalty`` for every beam
    of the groups before it that goes on with this token at the same step, or at the last step would; it stays so in the
    beam's sum and score. Each group has its own outputs and is over by itself, by the rules of `BeamSearch`; then it
    lowers nothing any more. What a group before has found is passed over, so all outputs differ. The ``n`` best of all
    groups are given out.

    Attributes:
        num_beam_groups: how many groups.
        num_beams: beams of all groups together.
        diversity_penalty: in nats, above 0.
        length_penalty: as in `BeamSearch`.
        early_stopping, renormalize_logits: likewise.

    Source: Vijayakumar et al. 2016 (arXiv:1610.02424, §4), with the Hamming diversity of ``transformers`` 4
    (``GenerationMixin._group_beam_search``; it finds some outputs twice, and asks of beams that have just ended, too,
    whether they could become better).
    """

    trigger: ClassVar[str] = "num_beam_groups"
    off: ClassVar[tuple[object, ...]] = (1,)

    num_beam_groups: int = 2
    num_beams: int = 4
    diversity_penalty: float = 0.5
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False
    renormalize_logits: bool = False

    def __post_init__(self) -> None:
        _check_beams(self)
        groups, penalty = self.num_beam_groups, self.diversity_penalty
        check(is_whole(groups) and groups >= 1, "num_beam_groups must be a whole number from 1", groups, "Pass 2.")
        check(
            self.num_beams % groups == 0,
            "num_beams must be a multiple of num_beam_groups",
            f"{self.num_beams} beams in {groups} groups",
            f"Pass num_beams={groups * math.ceil(self.num_beams / groups)}.",
        )
        check(
            is_number(penalty) and penalty > 0,
            "diversity_penalty must be a finite number above 0",
            penalty,
            "Without it all groups are the same: pass 0.5, or num_beams alone.",
        )

    def width(self, params: GenerationParams) -> int:
        """See `Strategy.width`."""
        return self.num_beams

    def check(self, params: GenerationParams, config: ModelConfig) -> None:
        """See `Strategy.check`."""
        _check_wanted(params.n, self.num_beams)
        check(
            params.greedy, "groups of beams are not drawn", f"temperature={params.temperature}", "Pass temperature=0."
        )

    def spread(self, row: Row) -> list[Row]:
        """See `Strategy.spread`."""
        return [row]

    def decode(self, steps: Steps, rows: Sequence[Row]) -> Iterator[Event]:
        """See `Strategy.decode`."""
        size, groups = self.num_beams // self.num_beam_groups, self.num_beam_groups
        beams = Beams(
            size, self.length_penalty, self.early_stopping, self.renormalize_logits, groups, self.diversity_penalty
        )
        return decode(steps, rows, beams)


def _check_beams(options: BeamSearch | DiverseBeamSearch) -> None:
    num_beams, length_penalty, early_stopping = options.num_beams, options.length_penalty, options.early_stopping
    check(is_whole(num_beams) and num_beams >= 1, "num_beams must be a whole number from 1", num_beams, "Pass 4.")
    check(
        isinstance(options.renormalize_logits, bool),
        "renormalize_logits must be true or false",
        options.renormalize_logits,
        "False is the field's default.",
    )
    check(
        is_number(length_penalty) and -STEEPEST <= length_penalty <= STEEPEST,
        f"length_penalty must be a number from −{STEEPEST} to {STEEPEST}",
        length_penalty,
        "1 ranks by the mean log-probability, 0 by the sum.",
    )
    check(
        isinstance(early_stopping, bool) or early_stopping == "never",
        'early_stopping must be true, false or "never"',
        early_stopping,
        "False is the field's default.",
    )


def _check_wanted(n: int, num_beams: int) -> None:
    check(n <= num_beams, "n must not exceed num_beams", f"n={n}, num_beams={num_beams}", f"Pass num_beams={n}.")
