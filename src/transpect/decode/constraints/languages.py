"""Sets of texts that an output may be held to: by a regular expression, a JSON schema, a grammar, or a list.

Each is written down as a grammar in the syntax of llguidance, which decides what may come next. It was chosen over
xgrammar because it needs nothing but itself (a wheel of 3 MB, while xgrammar brings a compiler of kernels and its own
bindings of torch), builds no table ahead of time, so a grammar is ready within milliseconds for any vocabulary, and
refuses keywords of a JSON schema that it does not hold instead of passing over them.

Source: https://github.com/guidance-ai/llguidance (MIT).
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import llguidance
from llguidance.gbnf_to_lark import any_to_lark

from transpect.base.errors import GenerationError

__all__ = ["LANGUAGES", "Grammar", "JsonSchema", "Language", "OneOf", "Regex", "held_to"]

_EXACT: Final = '\n%llguidance {"no_forcing": true}\n'
"""Allow every token that some text of the language goes on with, not only those of one way to cut the text."""

WHITESPACE: Final = r"[ \n\t]{0,16}"
"""What may stand between the parts of a JSON text: with no bound, an output could be spaces to its end."""


_BOUNDS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_EXACT_TO: Final = 2**53


class Language(ABC):
    """A set of texts. Children are frozen dataclasses, compared by what they say.

    Attributes:
        option: the name of the generation parameter that asks for it.
    """

    option: ClassVar[str]

    @abstractmethod
    def grammar(self, spelled: str | None = None) -> str:
        """The language as a grammar of llguidance.

        Args:
            spelled: a regular expression for the texts that a vocabulary can spell, where it can't spell all; a
                language that can't be cut down to these gives itself whole.
        """

    def _checked(self, remedy: str) -> None:
        problem = llguidance.LLMatcher.validate_grammar(self.grammar())
        if problem and not problem.startswith("WARNING"):
            raise GenerationError(f"{self.option} can't be used: {_reason(problem)}", value=self._value, remedy=remedy)

    @property
    def _value(self) -> object:
        return next(iter(vars(self).values()))


@dataclass(frozen=True)
class Regex(Language):
    r"""The texts that a regular expression matches from beginning to end.

    The syntax is that of Rust's ``regex`` (RE2's, without look-around and back-references): ``.`` is all but a line
    end, and ``\d``, ``\w``, ``\s`` and ``\p{…}`` are of Unicode.
    """

    pattern: str
    option: ClassVar[str] = "regex"

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str):
            raise GenerationError("regex must be a pattern as a text", value=self.pattern, remedy="Pass its source.")
        if (len(self.pattern) - len(self.pattern.rstrip("\\"))) % 2:  # llguidance would drop it
            raise GenerationError(
                "regex can't be used: nothing stands after its last backslash", value=self.pattern, remedy="Write two."
            )
        self._checked("The syntax is that of Rust's regex: no look-around, no back-references.")

    def grammar(self, spelled: str | None = None) -> str:
        """See `Language.grammar`."""
        own = llguidance.regex_to_lark(self.pattern, "")
        if spelled is None:
            return f"start: /{own}/{_EXACT}"
        return f"start: TEXT\nTEXT: /{own}/ & /{llguidance.regex_to_lark(spelled, '')}/{_EXACT}"


@dataclass(frozen=True)
class JsonSchema(Language):
    """The JSON texts that a schema allows; properties come in the order of the schema.

    Between their parts stand up to 16 spaces, tabs and line ends in a row. A keyword that is not held is an error.

    Args:
        schema: as text or as data; ``{}`` and ``true`` allow any JSON text.
    """

    schema: str
    option: ClassVar[str] = "json_schema"

    def __init__(self, schema: str | bool | Mapping[str, Any]) -> None:
        try:
            data = json.loads(schema) if isinstance(schema, str) else schema
            text = json.dumps({} if data is True else data, ensure_ascii=False, allow_nan=False)
        except (ValueError, TypeError) as error:
            raise GenerationError(
                f"json_schema must be JSON: {error}", value=schema, remedy="Pass a dict, or its JSON text."
            ) from error
        object.__setattr__(self, "schema", text)
        if not isinstance(data, Mapping) and data is not True:
            raise GenerationError("json_schema must be an object that allows something", value=schema, remedy="Try {}.")
        for keyword, number in _rounded(data):
            raise GenerationError(
                f"json_schema can't be used: {keyword} is held as a float, which would make another number of it",
                value=number,
                remedy=f"Stay within ±{_EXACT_TO - 1}, or leave the keyword out.",
            )
        self._checked("Leave the keyword out, or describe the texts by a grammar.")

    def grammar(self, spelled: str | None = None) -> str:
        """See `Language.grammar`."""
        data = json.loads(self.schema)
        options = {"whitespace_pattern": WHITESPACE, **data.get("x-guidance", {})}
        return f"start: %json {json.dumps({**data, 'x-guidance': options})}{_EXACT}"


@dataclass(frozen=True)
class Grammar(Language):
    """The texts that a context-free grammar derives from its first rule.

    The syntax is Lark's with ``start`` as the first rule, or GBNF's (llama.cpp) with ``root``. As in Lark, a terminal
    (a name in capitals, a text or a regular expression) takes as much as it can: ``start: A "a"`` with ``A: /a+/``
    derives nothing, since no ``a`` is left.
    """

    text: str
    option: ClassVar[str] = "grammar"

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or not self.text.strip():
            raise GenerationError("grammar must be the text of a grammar", value=self.text, remedy="Begin with start:.")
        self._checked("The syntax is Lark's, beginning with start:, or llama.cpp's GBNF.")

    def grammar(self, spelled: str | None = None) -> str:
        """See `Language.grammar`."""
        try:
            return any_to_lark(self.text) + _EXACT
        except Exception as error:  # the converter from GBNF has an error of its own, and trips over what is no GBNF
            raise GenerationError(
                f"grammar can't be read: {error}", value=self.text, remedy="Begin Lark with start:, and GBNF with root."
            ) from error


@dataclass(frozen=True)
class OneOf(Language):
    """A few texts, of which one is to be written exactly."""

    choices: tuple[str, ...]
    option: ClassVar[str] = "choices"

    def __init__(self, choices: Iterable[str]) -> None:
        several = (choices,) if isinstance(choices, str) else tuple(choices) if isinstance(choices, Iterable) else ()
        if not several or not all(isinstance(choice, str) for choice in several):
            raise GenerationError("choices must be texts, at least one", value=choices, remedy='Try ["yes", "no"].')
        object.__setattr__(self, "choices", several)

    def grammar(self, spelled: str | None = None) -> str:
        """See `Language.grammar`."""
        return Regex("|".join(map(escaped, self.choices))).grammar(spelled)


LANGUAGES: Final[Mapping[str, Callable[[Any], Language]]] = {
    kind.option: kind for kind in (Regex, JsonSchema, Grammar, OneOf)
}
"""By the name of the generation parameter that asks for them."""


def held_to(changes: Mapping[str, Any], present: Language | None) -> Language | None:
    """The language that parameters ask for, by name or as ``constraint``. None takes away the present one where it is
    of that kind.

    Raises:
        GenerationError: more than one, or one that can't be used.
    """
    asked = {name: value for name, value in changes.items() if value is not None}
    if len(asked) > 1:
        raise GenerationError(
            "an output is held to at most one language", value=", ".join(asked), remedy="Say it all in one grammar."
        )
    for name, value in asked.items():
        return value if name == "constraint" else LANGUAGES[name](value)
    return None if present is not None and {present.option, "constraint"} & set(changes) else present


def escaped(text: str) -> str:
    """A regular expression for a text. (`re.escape` escapes more than Rust's syntax knows.)"""
    return re.sub(r"([\\.+*?()|\[\]{}^$#&~-])", r"\\\1", text)


def _rounded(schema: Any) -> Iterator[tuple[str, object]]:
    """The numbers of a schema that llguidance would round, or cut to 64 bits, so that other texts were allowed, each
    with its keyword."""
    if isinstance(schema, list):
        for own in schema:
            yield from _rounded(own)
    if not isinstance(schema, Mapping):
        return
    for keyword, own in schema.items():
        held = [own] if keyword in _BOUNDS else _leaves(own) if keyword in ("const", "enum") else ()
        yield from ((keyword, one) for one in held if isinstance(one, int | float) and abs(one) >= _EXACT_TO)
        if keyword not in ("const", "enum", "default", "examples"):
            yield from _rounded(own)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for own in value:
            yield from _leaves(own)
    elif isinstance(value, Mapping):
        yield from _leaves(list(value.values()))
    else:
        yield value


def _reason(problem: str) -> str:
    """What a message of llguidance says, in one line."""
    lines = [line.strip() for line in problem.splitlines() if line.strip()]
    said = next((line for line in lines if line.startswith("error:")), lines[0])
    return re.sub(r"^(error: |(at )?\d+\(\d+\): )", "", said)
