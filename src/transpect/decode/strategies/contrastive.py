"""Contrastive search: of the few most probable tokens the one that is least like what stands there already.

Axes: B requests, N candidates of all requests, T tokens so far, D model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from transpect.decode.alternatives import alternatives
from transpect.decode.checks import check
from transpect.decode.filters.options import is_number
from transpect.decode.sampling import Sampler, totalled
from transpect.decode.strategies.base import Strategy, going_on
from transpect.decode.strategies.beam_ranking import best

if TYPE_CHECKING:
    from transpect.core import ModelConfig
    from transpect.decode.params import GenerationParams
    from transpect.decode.request import Event
    from transpect.decode.row import Row
    from transpect.decode.stepper import Steps


@dataclass(frozen=True)
class ContrastiveSearch(Strategy):
    """Of the ``top_k`` most probable tokens v the one with the highest

        (1 − α) p(v) − α max_j cos(h_v, h_j),

    where α is ``penalty_alpha``, p is after the penalties, biases and bans of the request, h_v is what the head reads
    once the model has read v, and j runs over all tokens of prompt and output before it. Each step reads all
    candidates, ``top_k`` rows a request. Nothing is drawn. Of equal tokens the more probable, then the lower id is
    taken.

    Attributes:
        penalty_alpha: α, from 0 (greedy decoding) to 1.

    Source: Su et al. 2022 (arXiv:2202.06417, §3.2).
    """

    trigger: ClassVar[str] = "penalty_alpha"
    off: ClassVar[tuple[object, ...]] = (0,)

    penalty_alpha: float = 0.6

    def __post_init__(self) -> None:
        check(
            is_number(self.penalty_alpha) and 0 <= self.penalty_alpha <= 1,
            "penalty_alpha must be a number from 0 to 1",
            self.penalty_alpha,
            "0 is greedy decoding; 0.6 is usual.",
        )

    def width(self, params: GenerationParams) -> int:
        """See `Strategy.width`."""
        assert params.top_k is not None, "see `check`"
        return max(1, params.top_k)

    def check(self, params: GenerationParams, config: ModelConfig) -> None:
        """See `Strategy.check`."""
        check(params.top_k is not None, "contrastive search chooses among top_k tokens", "top_k=None", "Pass top_k=4.")
        check(params.greedy, "contrastive search draws nothing", f"temperature={params.temperature}", "Leave it at 0.")
        check(params.n == 1, "contrastive search has one output", f"n={params.n}", "Leave n at 1.")

    def spread(self, row: Row) -> list[Row]:
        """See `Strategy.spread`."""
        return [row]

    def decode(self, steps: Steps, rows: Sequence[Row]) -> Iterator[Event]:
        """See `Strategy.decode`."""
        sampler = Sampler([row.params for row in rows], [row.seed for row in rows], steps.vocab_size, steps.device)
        logits = steps.prefill(every=True)
        # the prompts are padded on the left
        said = [_directions(own[-len(row.trace.prompt) :]) for own, row in zip(steps.hidden, rows, strict=True)]
        while True:
            with torch.inference_mode():
                candidates = self._candidates(logits, rows, sampler)
                tops = alternatives(logits, [row.params for row in rows])
            steps.select([place for place, own in enumerate(candidates) for _ in own])
            following = steps.advance(torch.tensor([one.token for own in candidates for one in own]).to(steps.device))
            with torch.inference_mode():
                directions = _directions(steps.hidden[:, -1])  # [N, D]
                ends = accumulate((len(own) for own in candidates), initial=0)
                chosen = [
                    first + self._best(own, past, directions[first:end])
                    for own, past, (first, end) in zip(candidates, said, pairwise(ends), strict=True)
                ]
            flat = [one for own in candidates for one in own]
            taken = zip(rows, chosen, tops, strict=True)
            events = [row.take(flat[at].token, flat[at].logprob, top) for row, at, top in taken]
            yield from events
            left = going_on(rows, events)
            if not left:
                return
            if len(left) < len(rows):
                rows, sampler = [rows[place] for place in left], sampler.rows(left)
            places = [chosen[place] for place in left]
            said = [torch.cat([said[place], directions[chosen[place], None]]) for place in left]
            steps.select(places)
            logits = following[places]

    def _candidates(self, logits: Tensor, rows: Sequence[Row], sampler: Sampler) -> list[list[_Candidate]]:
        """Of each row the most probable tokens, the best first."""
        wide, total = totalled(logits)
        left = sampler.process(wide, [row.trace for row in rows])
        probability = left.softmax(-1)
        widths = [self.width(row.params) for row in rows]
        _, tokens = best(left, max(widths))
        columns = zip(
            tokens.tolist(),
            left.gather(-1, tokens).tolist(),
            probability.gather(-1, tokens).tolist(),
            (wide.gather(-1, tokens) - total[:, None]).tolist(),
            widths,
            strict=True,
        )
        return [
            [
                _Candidate(token, p, logprob)
                for logit, token, p, logprob in sorted(
                    zip(logits_, ids, ps, logprobs, strict=True), key=lambda one: (-one[0], one[1])
                )[:width]
                if logit > -torch.inf
            ]
            for ids, logits_, ps, logprobs, width in columns
        ]

    def _best(self, candidates: Sequence[_Candidate], said: Tensor, directions: Tensor) -> int:
        likeness = (directions @ said.T).amax(-1).tolist()
        alpha = self.penalty_alpha
        scores = [(1 - alpha) * one.probability - alpha * like for one, like in zip(candidates, likeness, strict=True)]
        return scores.index(max(scores))


@dataclass(frozen=True)
class _Candidate:
    token: int
    probability: float  # after the filters
    logprob: float  # by the model itself


def _directions(hidden: Tensor) -> Tensor:
    """Vectors [..., D] of length 1, at least float32."""
    return normalize(hidden.to(torch.promote_types(hidden.dtype, torch.float32)), dim=-1)
