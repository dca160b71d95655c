"""What a request may ask of decoding: how long, how random, when to stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from transpect.base.codec import did_you_mean
from transpect.base.errors import GenerationError
from transpect.decode.constraints import LANGUAGES, Language, held_to
from transpect.decode.filters.options import FilterParams, is_number, is_whole, several
from transpect.decode.strategies import OPTIONS, Sample, Strategy, asked_for

_ALIASES = {"num_return_sequences": "n"}

_ELSEWHERE = {
    **dict.fromkeys(("max_length", "max_tokens", "max_completion_tokens"), "max_new_tokens"),
    **dict.fromkeys(("stop_strings", "stop_sequences"), "stop"),
    **dict.fromkeys(("eos_token_id", "stop_token_ids"), "eos_ids"),
    **dict.fromkeys(("guided_json", "response_format"), "json_schema"),
    "assistant_model": "draft",
    "beam_width": "num_beams",
    "do_sample": "temperature",
    "guided_choice": "choices",
    "guided_grammar": "grammar",
    "guided_regex": "regex",
    "min_tokens": "min_new_tokens",
    "suppress_tokens": "banned",
    "top_logprobs": "logprobs",
}
"""What other libraries call parameters whose names here are not like theirs."""

Overflow = Literal["error", "stop", "sinks"]
"""What becomes of tokens that the context has no room for."""

STRONGEST = 10**6
"""Guidance scales are between −10⁶ and 10⁶: beyond that float32 forgets what is guided."""

SEEDS = (-(2**63), 2**64)
"""Seeds are whole numbers from the first to below the second."""


@dataclass(frozen=True)
class GenerationParams(FilterParams):
    """How one request is decoded. The defaults are greedy and leave everything else off. See `FilterParams` for more.

    0 is a value, never "unset". A filter always leaves at least one token, so ``temperature=0``, ``top_k=0`` and
    ``top_p=0`` all mean the best token alone; filters are off at ``temperature=1``, ``top_k=None``, ``top_p=1``.

    Attributes:
        max_new_tokens: how many tokens to write at most.
        min_new_tokens: how many tokens to write before one of ``eos_ids`` may be chosen; stop strings do not wait.
        temperature: divides the logits; 0 is greedy.
        top_k: choose among the k most probable tokens; None is off. Of equal ones the lower ids are kept.
        top_p: choose among the fewest most probable tokens that together reach this probability; 1 is off.
        seed: of the noise; None takes a new one from the system, which the result reports.
        stop: texts that end the output, and are left out of it; one, several, or None for none.
        eos_ids: tokens that end the output; one, several, or None for none.
        ignore_eos: let these tokens pass as ordinary ones.
        banned: tokens that are never chosen; one, several, or None for none.
        overflow: what is done where prompt and ``max_new_tokens`` do not fit the model's context together: ``error``
            refuses the request; ``stop`` writes as many as fit, and ends with ``length``; ``sinks`` goes on with the
            first tokens and the last ones (`transpect.cache.Sinks`).
        n: how many outputs to write.
        strategy: how tokens are found.
        guidance_scale: how strongly prompt or source lead, against what the model writes with `Request.negative` in
            their place (classifier-free guidance, see `Guided`); 1 is off.
        logprobs: how many of the most probable tokens to report in the place of each, besides the chosen one; None and
            0 are none. Each strategy chooses the same tokens with and without.
        constraint: the language that the output is a text of; None is any text. Its texts end where it says, also
            before ``min_new_tokens``; ``max_new_tokens`` may cut them. By name: ``regex``, ``json_schema``,
            ``grammar``, ``choices``.
    """

    max_new_tokens: int = 128
    min_new_tokens: int = 0
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    eos_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    banned: tuple[int, ...] = ()
    overflow: Overflow = "error"
    n: int = 1
    strategy: Strategy = field(default_factory=Sample)
    guidance_scale: float = 1.0
    logprobs: int | None = None
    constraint: Language | None = None

    def __post_init__(self) -> None:
        # one string is one stop, a list does as well as a tuple, and None is none
        object.__setattr__(self, "stop", several("stop", self.stop, str, "Pass a text, or a list of texts."))
        for name in ("eos_ids", "banned"):
            object.__setattr__(self, name, several(name, getattr(self, name), int, "Pass an id, or a list of ids."))

        _whole("max_new_tokens", self.max_new_tokens, "Pass how many tokens to write at most.")
        _whole("min_new_tokens", self.min_new_tokens, "Pass 0 to allow an end at any time.")
        _whole("n", self.n, "Pass how many outputs to write.")
        _check(self.n >= 1, "n must be at least 1", self.n, "Pass how many outputs to write.")
        _check(
            self.min_new_tokens <= self.max_new_tokens,
            "min_new_tokens must not exceed max_new_tokens",
            f"{self.min_new_tokens} and {self.max_new_tokens}",
            "Lower the one or raise the other.",
        )
        _check(
            is_number(self.guidance_scale) and abs(self.guidance_scale) <= STRONGEST,
            f"guidance_scale must be a number from −{STRONGEST} to {STRONGEST}",
            self.guidance_scale,
            "1 switches it off; above 1 it leads away from the negative prompt.",
        )
        _check(
            is_number(self.temperature) and self.temperature >= 0,
            "temperature must be a finite number from 0",
            self.temperature,
            "0 is greedy, 1 the model's own distribution.",
        )
        if self.top_k is not None:
            _whole("top_k", self.top_k, "Pass None to switch it off; 0 and 1 leave the best token.")
        _check(
            is_number(self.top_p) and 0 <= self.top_p <= 1,
            "top_p must be a probability from 0 to 1",
            self.top_p,
            "1 switches it off; 0 leaves the best token.",
        )
        _check(
            self.seed is None or (type(self.seed) is int and SEEDS[0] <= self.seed < SEEDS[1]),
            "seed must be a whole number of 64 bits, or None",
            self.seed,
            "None takes a new one each time.",
        )
        if self.logprobs is not None:
            _whole("logprobs", self.logprobs, "Pass how many alternatives to report, or None.")
        _check(
            self.constraint is None or isinstance(self.constraint, Language),
            "constraint must be a language that an output can be held to",
            self.constraint,
            f"Pass {', '.join(LANGUAGES)}.",
        )
        for stop in self.stop:
            _check(
                isinstance(stop, str) and bool(stop),
                "stop must be texts that are not empty",
                stop,
                "An empty one would stop before the first token; use max_new_tokens=0 for that.",
            )
        for name in ("eos_ids", "banned"):
            for token in getattr(self, name):
                _whole(f"each of {name}", token, "Pass ids of the vocabulary.")
        _check(
            self.overflow in get_args(Overflow),
            f"overflow must be one of {', '.join(get_args(Overflow))}",
            self.overflow,
            "error refuses what does not fit the context, stop ends there, sinks goes on with fewer tokens in sight.",
        )
        self.check_filters()

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end the output."""
        return () if self.ignore_eos else self.eos_ids

    @property
    def guided(self) -> bool:
        """Whether there is classifier-free guidance."""
        return self.guidance_scale != 1

    @property
    def greedy(self) -> bool:
        """Whether only the best token can be chosen."""
        return self.temperature == 0

    def override(self, changes: Mapping[str, Any]) -> GenerationParams:
        """A copy with some parameters changed.

        Args:
            changes: by name. Options of a strategy (``num_beams``, …) choose it or change it; ``num_return_sequences``
                is another name for ``n``; ``regex``, ``json_schema``, ``grammar`` and ``choices`` make a constraint.

        Raises:
            GenerationError: an unknown name, or a value outside its range.
        """
        named = {*OPTIONS, *LANGUAGES}
        own = {_ALIASES.get(name, name): value for name, value in changes.items() if name not in named}
        known = [f.name for f in fields(self)]
        unknown = next((name for name in own if name not in known), None)
        if unknown is not None:
            near = did_you_mean(_ELSEWHERE.get(unknown, unknown), [*known, *named])
            raise GenerationError(
                f"there is no generation parameter {unknown!r}",
                remedy=f"{near} Known: {', '.join([*known, *sorted(named)])}.".strip(),
            )
        options = {name: value for name, value in changes.items() if name in OPTIONS}
        languages = {name: value for name, value in changes.items() if name in LANGUAGES or name == "constraint"}
        found = {"strategy": asked_for(options, self.strategy), **own}
        return replace(self, **{**found, "constraint": held_to(languages, self.constraint)})


def _whole(name: str, value: object, remedy: str) -> None:
    _check(is_whole(value), f"{name} must be a whole number from 0", value, remedy)


def _check(holds: bool, rule: str, value: object, remedy: str) -> None:
    if not holds:
        raise GenerationError(rule, value=value, remedy=remedy)
