"""The options of generation, for every command that writes: one for each field of `GenerationParams` and of each
strategy, with the type that the field has."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import typer

from transpect.base.codec import did_you_mean
from transpect.base.errors import ConfigError
from transpect.base.i18n import tr
from transpect.base.messages import TABLE

__all__ = ["DECODING", "Parameter", "parameter", "parameters", "writes"]

DECODING: Final = "cli.decoding"
"""The row of the table of messages that stands above these options on a help page."""

UNASKED: Final = frozenset({"strategy"})
"""Fields that nobody spells: their own options choose them."""

NOTHING: Final = object()
"""What ``none`` on a command line means, where None means that an option was not given."""


@dataclass(frozen=True)
class Parameter:
    """How one parameter of generation is given as text.

    Attributes:
        name: of the field.
        metavar: what to type, on a help page; empty for yes or no.
        read: text to value; ValueError says that it is none.
        repeated: whether it can be given several times, and the values make a tuple.
    """

    name: str
    metavar: str
    read: Callable[[str], Any]
    repeated: bool = False

    @property
    def flag(self) -> str:
        """The option."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def explained(self) -> str:
        """What it does, in the reader's language."""
        return tr(self.key) if self.key in TABLE else ""

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
            found = [self.read(word) for word in several]
        except ValueError as error:
            raise ConfigError(
                f"{self.name} is given as {self.metavar or 'yes or no'}", value=" ".join(several), remedy=self.explained
            ) from error
        found = [None if one is NOTHING else one for one in found]
        return tuple(found) if self.repeated else found[-1]


@cache
def parameters() -> Mapping[str, Parameter]:
    """Every parameter of generation by its name, in the order of a help page."""
    from transpect.decode import GenerationParams
    from transpect.decode.strategies import STRATEGIES

    found: dict[str, Parameter] = {}
    for kind in (GenerationParams, *STRATEGIES):
        hints = get_type_hints(kind)
        for field in fields(kind):  # type: ignore[arg-type] # every strategy is a dataclass
            if field.name not in UNASKED and field.name not in found:
                found[field.name] = _parameter(field.name, hints[field.name])
    found["negative_prompt"] = Parameter("negative_prompt", "TEXT", str)
    return found


def parameter(name: str) -> Parameter:
    """One of them, by its name, with ``-`` or ``_``.

    Raises:
        ConfigError: there is none of that name.
    """
    known = parameters()
    spelled = name.replace("-", "_")
    if spelled not in known:
        raise ConfigError(
            "no such parameter of generation",
            value=name,
            remedy=f"{did_you_mean(spelled, known)} Known: {', '.join(known)}.".strip(),
        )
    return known[spelled]


def writes(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a command all of these options; what is given of them reaches it as ``asked``, by name."""
    own = [each for each in inspect.signature(command, eval_str=True).parameters.values() if each.name != "asked"]
    taken = {each.name for each in own}
    more = [each for name, each in parameters().items() if name not in taken]

    def run(**values: Any) -> int | None:
        asked = {
            each.name: _given(each, values.pop(each.name)) for each in more if values.get(each.name) not in (None, [])
        }
        return command(**{name: value for name, value in values.items() if name in taken}, asked=asked)

    run.__doc__ = command.__doc__
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *map(_option, more))]
    )
    return run


def _given(each: Parameter, value: Any) -> Any:
    if each.repeated:
        return tuple(value)
    return None if value is NOTHING else value


def _option(each: Parameter) -> inspect.Parameter:
    names = (each.flag,) if each.metavar else (f"{each.flag}/--no-{each.flag.removeprefix('--')}",)
    parser = _told(each) if each.metavar else None
    info = typer.Option(
        *names,
        metavar=each.metavar or None,
        help=each.explained,
        parser=parser,
        rich_help_panel=DECODING,
        show_default=False,
    )
    kind: Any = bool if not each.metavar else str
    annotation: Any = Annotated[(list[kind] if each.repeated else kind) | None, info]
    return inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _told(each: Parameter) -> Callable[[str], Any]:
    """A reader that says what is to be typed."""

    def reader(text: str) -> Any:
        try:
            return each.read(text)
        except ValueError as error:
            raise typer.BadParameter(f"{text!r} is no {each.metavar}") from error

    return reader


def _parameter(name: str, hint: Any) -> Parameter:
    """By the type of the field."""
    kinds = [kind for kind in get_args(hint) if kind is not type(None)] if type(None) in get_args(hint) else [hint]
    optional = len(kinds) < len(get_args(hint))
    metavar, read, repeated = _reader(kinds[0] if len(kinds) == 1 else hint)
    return Parameter(name, metavar, _or_nothing(read) if optional else read, repeated)


def _reader(kind: Any) -> tuple[str, Callable[[str], Any], bool]:
    """(what to type, how it is read, whether it can be given several times)"""
    if kind is bool:
        return "", _truth, False
    if kind in _SINGLE:
        return (*_SINGLE[kind], False)
    if get_origin(kind) is tuple and get_args(kind)[-1] is Ellipsis:
        return (*_EACH[get_args(kind)[0]], True)
    if any(get_origin(part) is Literal for part in (kind, *get_args(kind))):
        words = [
            str(word) for part in (kind, *get_args(kind)) if get_origin(part) is Literal for word in get_args(part)
        ]
        return "|".join((["yes", "no"] if bool in get_args(kind) else []) + words), _one_of(words), False
    raise AssertionError(f"no way to give a {kind} as text")


def _whole(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ValueError(text)
    return int(text)


def _ids(text: str) -> tuple[int, ...]:
    return tuple(_whole(part.strip()) for part in text.split(","))


def _biased(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def pair(text: str) -> tuple[Any, float]:
        key, equals, bias = text.rpartition("=")
        if not equals:
            raise ValueError(text)
        return read(key), float(bias)

    return pair


def _start_and_factor(text: str) -> tuple[int, float]:
    start, _, factor = text.partition(",")
    return _whole(start.strip()), float(factor)


def _truth(text: str) -> bool:
    if text.lower() not in _TRUTH:
        raise ValueError(text)
    return _TRUTH[text.lower()]


def _one_of(words: Sequence[str]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        return text if text in words else _truth(text)

    return read


def _or_nothing(read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: NOTHING if text.lower() == "none" else read(text)


_TRUTH: Final = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
_SINGLE: Final[Mapping[Any, tuple[str, Callable[[str], Any]]]] = {
    int: ("N", _whole),
    float: ("X", float),
    str: ("TEXT", str),
    tuple[int, float]: ("N,X", _start_and_factor),
}
"""What to type for a value of a type, and how it is read."""

_EACH: Final[Mapping[Any, tuple[str, Callable[[str], Any]]]] = {
    int: ("ID", _whole),
    str: ("TEXT", str),
    tuple[int, ...]: ("ID,…", _ids),
    tuple[int, float]: ("ID=X", _biased(_whole)),
    tuple[tuple[int, ...], float]: ("ID,…=X", _biased(_ids)),
}
"""Likewise, for one of several: numbers are ids of tokens."""
