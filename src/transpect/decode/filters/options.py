"""What a request may ask of the filters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from transpect.base.errors import GenerationError

Ids = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class FilterParams:
    """The filters of one request. By default all are off.

    0 is a value, never "unset". Ids are those of the model's vocabulary.

    Attributes:
        min_length: how long prompt and output are before one of ``eos_ids`` may be chosen; of an encoder–decoder, what
            its decoder begins with counts as the prompt.
        logit_bias: a bias for the logit of each of these tokens, as a mapping; large ones force or forbid.
        sequence_bias: likewise of the token that would complete a sequence, as pairs of ids and bias.
        repetition_penalty: divides the positive logits of tokens in prompt and output, multiplies the negative ones;
            1 is off.
        encoder_repetition_penalty: the same with its inverse, for the tokens of the source (of a decoder, its prompt);
            1 is off.
        presence_penalty: is subtracted from the logits of tokens in the output; 0 is off.
        frequency_penalty: likewise, as often as they stand there; 0 is off.
        no_repeat_ngram_size: no sequence of so many tokens twice in prompt and output; 0 forbids nothing.
        encoder_no_repeat_ngram_size: none of the source (of a decoder, its prompt) again; 0 forbids nothing.
        bad_words: sequences of ids that are never written. One of ``eos_ids`` alone is none; see ``banned``.
        begin_suppress_tokens: tokens that the output never begins with; one, several, or None for none.
        forced_eos_token_id: what the output ends with where it has used up ``max_new_tokens``; one, several, or None.
        exponential_decay_length_penalty: (start, factor), raises the logits of ``eos_ids`` after so many new tokens;
            None is off.
        dry_multiplier: what going on with a repetition costs, if that is ``dry_allowed_length`` tokens long; 0 is off.
        dry_base: how many times more for each further token.
        dry_allowed_length: how long a repetition costs nothing.
        dry_penalty_last_n: how many of the last tokens are looked at; None is all.
        dry_sequence_breakers: tokens, or sequences of them, across which nothing counts as a repetition.
        min_p: choose among the tokens with at least this share of the best one's probability; 0 is off.
        typical_p: choose among the fewest most typical tokens that together reach this probability; 1 is off.
        epsilon_cutoff: choose among the tokens with at least this probability, and the best; 0 is off.
        eta_cutoff: likewise, with less where the choice is open (see `filters.eta_cutoff`); 0 is off.
    """

    min_length: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    sequence_bias: tuple[tuple[Ids, float], ...] = ()
    repetition_penalty: float = 1.0
    encoder_repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    no_repeat_ngram_size: int = 0
    encoder_no_repeat_ngram_size: int = 0
    bad_words: tuple[Ids, ...] = ()
    begin_suppress_tokens: Ids = ()
    forced_eos_token_id: Ids = ()
    exponential_decay_length_penalty: tuple[int, float] | None = None
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: tuple[Ids, ...] = ()
    min_p: float = 0.0
    typical_p: float = 1.0
    epsilon_cutoff: float = 0.0
    eta_cutoff: float = 0.0

    def check_filters(self) -> None:
        """Bring the fields into their form, and check them.

        Raises:
            GenerationError: a value outside its range.
        """
        for name, read in _READERS.items():
            object.__setattr__(self, name, read(name, getattr(self, name)))
        for name, (holds, rule, remedy) in _RULES.items():
            value = getattr(self, name)
            if not holds(value):
                raise GenerationError(f"{name} must be {rule}", value=value, remedy=remedy)


def several(name: str, value: object, one: type, remedy: str) -> tuple[Any, ...]:
    """One value of a type, several, or None for none, as a tuple."""
    if value is None:
        return ()
    if isinstance(value, one):
        return (value,)
    if not isinstance(value, Iterable):
        raise GenerationError(f"{name} must be one or several", value=value, remedy=remedy)
    return tuple(value)


def is_whole(value: object) -> bool:
    """Whether a value is a whole number from 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_number(value: object) -> bool:
    """Whether a value is a finite number, as one of float64."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _ids(name: str, value: object) -> Ids:
    found = several(name, value, int, "Pass an id, or a list of ids.")
    for token in found:
        if not is_whole(token):
            raise GenerationError(f"each of {name} must be a whole number from 0", value=token, remedy="Pass ids.")
    return found


def _sequences(name: str, value: object) -> tuple[Ids, ...]:
    """Sequences of ids; a number among them is a sequence of one."""
    found = tuple(_ids(name, own) for own in several(name, value, int, "Pass a list of lists of ids."))
    if not all(found):
        raise GenerationError(
            f"each of {name} must have at least one id", value=value, remedy="Take the empty ones out."
        )
    return found


def _pairs(name: str, value: object) -> list[tuple[Any, float]]:
    pairs = list(value.items()) if isinstance(value, Mapping) else list(several(name, value, int, _PAIRS))
    for pair in pairs:
        if not (isinstance(pair, list | tuple) and len(pair) == 2 and is_number(pair[1])):
            raise GenerationError(f"each of {name} must be a token and a finite bias", value=pair, remedy=_PAIRS)
    return pairs


def _logit_bias(name: str, value: object) -> tuple[tuple[int, float], ...]:
    pairs = _pairs(name, value)
    _ids(name, [token for token, _ in pairs])
    return tuple({token: float(bias) for token, bias in pairs}.items())


def _sequence_bias(name: str, value: object) -> tuple[tuple[Ids, float], ...]:
    pairs = _pairs(name, value)
    keys = _sequences(name, [ids for ids, _ in pairs])
    return tuple({ids: float(bias) for ids, (_, bias) in zip(keys, pairs, strict=True)}.items())


def _decay(name: str, value: object) -> tuple[int, float] | None:
    if value is None:
        return None
    if isinstance(value, list | tuple) and len(value) == 2:
        start, factor = value
        if is_whole(start) and is_number(factor) and factor > 0:
            return int(start), float(factor)
    raise GenerationError(
        f"{name} must be a whole number of tokens and a factor above 0", value=value, remedy="None switches it off."
    )


_PAIRS: Final = "Pass a mapping of ids to numbers."

_READERS: Final[Mapping[str, Callable[[str, object], object]]] = {
    "logit_bias": _logit_bias,
    "sequence_bias": _sequence_bias,
    "bad_words": _sequences,
    "begin_suppress_tokens": _ids,
    "forced_eos_token_id": _ids,
    "exponential_decay_length_penalty": _decay,
    "dry_sequence_breakers": _sequences,
}

_Rule = tuple[Callable[[Any], bool], str, str]


def _probability(remedy: str) -> _Rule:
    return lambda value: is_number(value) and 0 <= value <= 1, "a probability from 0 to 1", remedy


def _above(low: float, remedy: str) -> _Rule:
    return lambda value: is_number(value) and value > low, f"a finite number above {low:g}", remedy


def _from(low: float, remedy: str) -> _Rule:
    return lambda value: is_number(value) and value >= low, f"a finite number from {low:g}", remedy


def _count(remedy: str) -> _Rule:
    return is_whole, "a whole number from 0", remedy


_NUMBER: Final[_Rule] = (is_number, "a finite number", "0 switches it off; below 0 it makes repeating more likely.")

_RULES: Final[Mapping[str, _Rule]] = {
    "min_length": _count("0 allows an end at any time."),
    "repetition_penalty": _above(0, "1 switches it off."),
    "encoder_repetition_penalty": _above(0, "1 switches it off."),
    "presence_penalty": _NUMBER,
    "frequency_penalty": _NUMBER,
    "no_repeat_ngram_size": _count("0 forbids nothing."),
    "encoder_no_repeat_ngram_size": _count("0 forbids nothing."),
    "dry_multiplier": _from(0, "0 switches it off."),
    "dry_base": _from(1, "1 makes every repetition cost the same."),
    "dry_allowed_length": _count("It is how long a repetition costs nothing."),
    "dry_penalty_last_n": (
        lambda value: value is None or is_whole(value),
        "a whole number from 0, or None",
        "None looks at all of prompt and output.",
    ),
    "min_p": _probability("0 switches it off."),
    "typical_p": _probability("1 switches it off; 0 leaves the most typical token."),
    "epsilon_cutoff": _probability("0 switches it off."),
    "eta_cutoff": _probability("0 switches it off."),
}
