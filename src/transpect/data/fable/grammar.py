"""A grammar of short stories told in two languages at once.

A story walks through *scenes*. In each scene it chooses a *frame* (a sentence pattern in Chinese and in English) and
fills its *slots*. A slot is drawn when the story first needs it and keeps its value until the story ends, so whoever
reads the text so far knows every value that still matters. A slot's chances depend on the value of at most one other.

Patterns are words parted by spaces; ``{slot}`` and ``{slot.form}`` stand for the words of the slot's value, and those
may name slots again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from transpect.base.errors import ConfigError

Language = Literal["zh", "en"]
LANGUAGES: tuple[Language, ...] = ("zh", "en")

END = ""  # the scene after the last one

_HOLE = re.compile(r"\{(\w+)(?:\.(\w+))?\}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing of the world and how each language says it: form -> words, the plain form under ``""``."""

    zh: Mapping[str, str]
    en: Mapping[str, str]

    def forms(self, lang: Language) -> Mapping[str, str]:
        return self.zh if lang == "zh" else self.en


@dataclass(frozen=True, slots=True)
class Slot:
    """P(value | value of ``given``) ∝ ``table[given value][value]``; without ``given`` the one row is ``table[""]``.

    A ``fresh`` slot is drawn anew in each sentence and remembered by none.
    """

    table: Mapping[str, Mapping[str, int]]
    given: str = ""
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """A sentence pattern, chosen with P ∝ ``weight`` in its scene, and the scene it leads to.

    A frame without words ends the story where it stands. A frame draws every slot that it or an entry it may come to
    hold names, and must say what it draws: what stays unsaid is refused as ambiguous.
    """

    weight: int
    zh: str
    en: str
    to: str = END

    def pattern(self, lang: Language) -> str:
        return self.zh if lang == "zh" else self.en


@dataclass(frozen=True)
class Grammar:
    """Entries, slots and scenes, checked once.

    Raises:
        ConfigError: a name that nothing bears, a weight below 1, scenes that lead back to themselves, or a slot of
            which a row is missing.
    """

    entries: Mapping[str, Entry]
    slots: Mapping[str, Slot]
    scenes: Mapping[str, tuple[Frame, ...]]
    start: str = "start"

    def __post_init__(self) -> None:
        _check_slots(self)
        _check_scenes(self)

    def needs(self, frame: Frame) -> tuple[str, ...]:
        """Slots that the frame names in either language, each after the slot it depends on."""
        known = self._needs.get(frame)
        if known is None:
            found: dict[str, None] = {}
            for lang in LANGUAGES:
                for slot in _holes(frame.pattern(lang)):
                    self._add(slot, found)
            known = self._needs[frame] = tuple(found)
        return known

    @cached_property
    def _needs(self) -> dict[Frame, tuple[str, ...]]:
        return {}

    @cached_property
    def alive(self) -> Mapping[str, frozenset[str]]:
        """Scene -> the remembered slots that it or a later scene can name; the rest may be forgotten."""
        alive: dict[str, frozenset[str]] = {END: frozenset()}
        for scene in reversed(self.order):
            names = {slot for frame in self.scenes[scene] for slot in self.needs(frame)}
            later = frozenset().union(*(alive[frame.to] for frame in self.scenes[scene]))
            alive[scene] = later | {slot for slot in names if not self.slots[slot].fresh}
        return alive

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Scenes that can be reached, each before those it leads to."""
        done: dict[str, None] = {}
        path: list[str] = []

        def visit(scene: str) -> None:
            if scene in path:
                raise ConfigError("scenes must not lead back to themselves", value=" > ".join([*path, scene]))
            if scene == END or scene in done:
                return
            path.append(scene)
            for frame in self.scenes[scene]:
                visit(frame.to)
            path.pop()
            done[scene] = None

        visit(self.start)
        return tuple(reversed(done))

    def say(self, pattern: str, values: Mapping[str, str], lang: Language) -> tuple[str, ...]:
        """The words of a pattern whose slots have ``values`` (slot -> entry)."""
        while "{" in pattern:
            pattern = _HOLE.sub(lambda hole: self._form(values[hole[1]], hole[2] or "", lang), pattern)
        return tuple(pattern.split())

    def fillings(self, frame: Frame, told: Mapping[str, str]) -> Iterator[tuple[float, dict[str, str]]]:
        """Each way to fill the frame after ``told``: (probability, ``told`` and the values of the frame's slots)."""
        new = [slot for slot in self.needs(frame) if slot not in told]
        yield from self._fill(new, dict(told), 1.0)

    def _fill(self, new: list[str], values: dict[str, str], p: float) -> Iterator[tuple[float, dict[str, str]]]:
        if not new:
            yield p, values
            return
        slot = self.slots[new[0]]
        row = slot.table[values[slot.given] if slot.given else ""]
        total = sum(row.values())
        for entry, weight in row.items():
            yield from self._fill(new[1:], {**values, new[0]: entry}, p * weight / total)

    def _form(self, entry: str, form: str, lang: Language) -> str:
        forms = self.entries[entry].forms(lang)
        if form not in forms:
            raise ConfigError(f"entry {entry!r} must have the {lang} form that a pattern asks for", value=form)
        return forms[form]

    def _add(self, name: str, found: dict[str, None]) -> None:
        if name in found:
            return
        if name not in self.slots:
            raise ConfigError("a pattern must name slots of the grammar", value=name)
        slot = self.slots[name]
        if slot.given:
            self._add(slot.given, found)
        found[name] = None
        for inner in self._inner(slot):
            self._add(inner, found)

    def _inner(self, slot: Slot) -> Iterator[str]:
        for row in slot.table.values():
            for entry in row:
                for lang in LANGUAGES:
                    for pattern in self.entries[entry].forms(lang).values():
                        yield from _holes(pattern)


def _holes(pattern: str) -> list[str]:
    return [hole[1] for hole in _HOLE.finditer(pattern)]


def _check_slots(grammar: Grammar) -> None:
    for name, slot in grammar.slots.items():
        if slot.given and slot.given not in grammar.slots:
            raise ConfigError(f"slot {name!r} must depend on a slot of the grammar", value=slot.given)
        rows = {""}
        if slot.given:
            rows = {entry for row in grammar.slots[slot.given].table.values() for entry in row}
        if missing := rows - set(slot.table):
            raise ConfigError(f"slot {name!r} must have a row for each value of {slot.given!r}", value=sorted(missing))
        for row in slot.table.values():
            for entry, weight in row.items():
                if entry not in grammar.entries:
                    raise ConfigError(f"slot {name!r} must hold entries of the grammar", value=entry)
                if weight < 1:
                    raise ConfigError(f"slot {name!r} must have weights of at least 1", value=weight)


def _check_scenes(grammar: Grammar) -> None:
    for scene, frames in {grammar.start: (), **grammar.scenes}.items():
        if not frames:
            raise ConfigError("a scene must have a frame", value=scene)
        for frame in frames:
            if frame.to != END and frame.to not in grammar.scenes:
                raise ConfigError(f"scene {scene!r} must lead to scenes of the grammar", value=frame.to)
            if frame.weight < 1:
                raise ConfigError(f"scene {scene!r} must have weights of at least 1", value=frame.weight)
            if bool(frame.zh) != bool(frame.en):
                raise ConfigError("a frame must speak both languages or neither", value=frame.zh or frame.en)
            if not frame.zh and frame.to != END:
                raise ConfigError(
                    f"a frame without words must end the story; one in scene {scene!r} leads on", value=frame.to
                )
            grammar.needs(frame)
    if unreached := set(grammar.scenes) - set(grammar.order):
        raise ConfigError("each scene must be reached from the start", value=sorted(unreached))
