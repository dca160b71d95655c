"""The options of generation, for every command that writes: one for each field of `GenerationParams` and of each
strategy.

A test holds this table to those fields and to their types; it is spelled out because a help page waits for no torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from transpect.base.codec import did_you_mean
from transpect.base.errors import ConfigError
from transpect.base.i18n import tr
from transpect.cli.spelling import (
    BIAS,
    ID,
    IDS,
    IDS_BIAS,
    JSON,
    MODEL,
    NOTHING,
    NUMBER,
    START_AND_FACTOR,
    TEXT,
    TEXT_OR_FILE,
    TRUTH,
    WHOLE,
    Spelling,
    one_of,
    or_none,
)

__all__ = ["DECODING", "PARAMETERS", "Parameter", "parameter", "writes"]

DECODING: Final = "cli.decoding"
"""The row of the table of messages that stands above these options on a help page."""


@dataclass(frozen=True)
class Parameter:
    """How one parameter of generation is given as text.

    Attributes:
        name: of the field.
        spelling: of its value, or of one of its values.
        repeated: whether it can be given several times, and the values make a tuple.
    """

    name: str
    spelling: Spelling
    repeated: bool = False

    @property
    def flag(self) -> str:
        """The option."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def key(self) -> str:
        """Its row of the table of messages."""
        return f"cli.param.{self.name}"

    def value(self, words: str | Sequence[str]) -> Any:
        """The value that one text, or several, stand for.

        Raises:
            ConfigError: they stand for none.
        """
        several = [words] if isinstance(words, str) else list(words)
        try:
            found = [self.spelling.read(word) for word in several]
        except ValueError as error:
            raise ConfigError(
                f"{self.name} is given as {self.spelling.metavar or 'yes or no'}",
                value=" ".join(several),
                remedy=tr(self.key),
            ) from error
        return _meant(self, found if self.repeated else found[-1])


_GROUPS: Final[tuple[tuple[Parameter, ...], ...]] = (
    (  # how long
        Parameter("max_new_tokens", WHOLE),
        Parameter("min_new_tokens", WHOLE),
        Parameter("min_length", WHOLE),
        Parameter("overflow", one_of(["error", "stop", "sinks"])),
        Parameter("stop", TEXT, repeated=True),
        Parameter("eos_ids", ID, repeated=True),
        Parameter("ignore_eos", TRUTH),
        Parameter("forced_eos_token_id", ID, repeated=True),
        Parameter("exponential_decay_length_penalty", or_none(START_AND_FACTOR)),
    ),
    (  # how random
        Parameter("temperature", NUMBER),
        Parameter("top_k", or_none(WHOLE)),
        Parameter("top_p", NUMBER),
        Parameter("min_p", NUMBER),
        Parameter("typical_p", NUMBER),
        Parameter("epsilon_cutoff", NUMBER),
        Parameter("eta_cutoff", NUMBER),
        Parameter("seed", or_none(WHOLE)),
        Parameter("n", WHOLE),
        Parameter("logprobs", or_none(WHOLE)),
    ),
    (  # what it prefers and avoids
        Parameter("repetition_penalty", NUMBER),
        Parameter("encoder_repetition_penalty", NUMBER),
        Parameter("presence_penalty", NUMBER),
        Parameter("frequency_penalty", NUMBER),
        Parameter("no_repeat_ngram_size", WHOLE),
        Parameter("encoder_no_repeat_ngram_size", WHOLE),
        Parameter("dry_multiplier", NUMBER),
        Parameter("dry_base", NUMBER),
        Parameter("dry_allowed_length", WHOLE),
        Parameter("dry_penalty_last_n", or_none(WHOLE)),
        Parameter("dry_sequence_breakers", IDS, repeated=True),
        Parameter("logit_bias", BIAS, repeated=True),
        Parameter("sequence_bias", IDS_BIAS, repeated=True),
        Parameter("banned", ID, repeated=True),
        Parameter("bad_words", IDS, repeated=True),
        Parameter("begin_suppress_tokens", ID, repeated=True),
        Parameter("guidance_scale", NUMBER),
        Parameter("negative_prompt", TEXT),
    ),
    (  # how tokens are found
        Parameter("num_beams", WHOLE),
        Parameter("length_penalty", NUMBER),
        Parameter("early_stopping", one_of(["never"], truth=True)),
        Parameter("renormalize_logits", TRUTH),
        Parameter("num_beam_groups", WHOLE),
        Parameter("diversity_penalty", NUMBER),
        Parameter("penalty_alpha", NUMBER),
        Parameter("best_of", WHOLE),
    ),
    (  # how they are found faster
        Parameter("prompt_lookup_num_tokens", WHOLE),
        Parameter("max_matching_ngram_size", WHOLE),
        Parameter("draft", MODEL),
        Parameter("early_exit", WHOLE),
        Parameter("num_assistant_tokens", WHOLE),
        Parameter("num_assistant_tokens_schedule", one_of(["constant", "heuristic"])),
        Parameter("assistant_confidence_threshold", NUMBER),
    ),
    (  # what it must be like
        Parameter("regex", TEXT),
        Parameter("json_schema", JSON),
        Parameter("grammar", TEXT_OR_FILE),
        Parameter("choices", TEXT, repeated=True),
    ),
)

PARAMETERS: Final[Mapping[str, Parameter]] = {each.name: each for group in _GROUPS for each in group}
"""Every parameter of generation by its name, in the order of a help page."""


def parameter(name: str) -> Parameter:
    """One of them, by its name, with ``-`` or ``_``.

    Raises:
        ConfigError: there is none of that name.
    """
    spelled = name.replace("-", "_")
    if spelled not in PARAMETERS:
        raise ConfigError(
            "no such parameter of generation",
            value=name,
            remedy=f"{did_you_mean(spelled, PARAMETERS)} Known: {', '.join(PARAMETERS)}.".strip(),
        )
    return PARAMETERS[spelled]


def writes(*void: str) -> Callable[[Callable[..., int | None]], Callable[..., int | None]]:
    """Give a command all of these options but those that are ``void`` for it; what is given of them reaches it as
    ``asked``, by name."""
    offered = {name: each for name, each in PARAMETERS.items() if name not in void}

    def give(command: Callable[..., int | None]) -> Callable[..., int | None]:
        own = [each for each in inspect.signature(command, eval_str=True).parameters.values() if each.name != "asked"]

        def run(**values: Any) -> int | None:
            asked = {
                name: _meant(each, values[name]) for name, each in offered.items() if values[name] not in (None, [])
            }
            return command(**{name: value for name, value in values.items() if name not in offered}, asked=asked)

        run.__doc__ = command.__doc__
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *map(_option, offered.values()))]
        )
        return run

    return give


def _meant(each: Parameter, value: Any) -> Any:
    if each.repeated:
        return tuple(value)
    return None if value is NOTHING else value


def _option(each: Parameter) -> inspect.Parameter:
    metavar = each.spelling.metavar
    info = typer.Option(
        each.flag if metavar else f"{each.flag}/--no-{each.flag.removeprefix('--')}",
        metavar=metavar or None,
        help=tr(each.key),
        parser=_told(each) if metavar else None,
        rich_help_panel=DECODING,
        show_default=False,
    )
    kind: Any = str if metavar else bool
    annotation: Any = Annotated[(list[kind] if each.repeated else kind) | None, info]
    return inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _told(each: Parameter) -> Callable[[str], Any]:
    """A reader that says what is to be typed."""

    def reader(text: str) -> Any:
        try:
            return each.spelling.read(text)
        except ValueError as error:
            raise typer.BadParameter(f"{text!r} is no {each.spelling.metavar}") from error

    return reader
