"""Recipes from YAML and the command line; every mistake is named with its file and line, or with its option.

A recipe file has the keys ``model``, ``tokenizer``, ``data``, ``train``, ``logging``, ``parallel`` and
``generation``. ``model`` is
either a preset with changes (``{preset: llama, d_model: 256, n_layers: 4, positions: {kind: rope, theta: 5e5}}``;
short and dotted names) or a whole `ModelConfig`; ``vocab_size`` may be left to the tokenizer in both. Or it is a
checkpoint to begin with (``{path: hf:OWNER/NAME, dropout: 0.1}``), whose tokenizer is then the default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from transpect.adapters import Lora
from transpect.base.codec import (
    Data,
    KeyPath,
    apply_overrides,
    did_you_mean,
    from_data,
    load_yaml,
    locate,
    to_data,
)
from transpect.base.errors import ConfigError, TokenizerError, TranspectError
from transpect.data.sources import Source, source_from_path, with_bad_lines
from transpect.text.kinds import KINDS, Kind
from transpect.text.train import resolve_kind
from transpect.train.evaluate import OBJECTIVES
from transpect.train.generation import GenerationSpec
from transpect.train.model.reading import keys_named, read_model
from transpect.train.parallel.spec import ParallelSpec
from transpect.train.recipe import DataSpec, LoggingSpec, ModelSpec, Recipe, TokenizerSpec, TrainSpec

T = TypeVar("T")
Lines = Mapping[KeyPath, int]

SECTIONS: dict[str, type] = {
    "model": ModelSpec,
    "tokenizer": TokenizerSpec,
    "data": DataSpec,
    "train": TrainSpec,
    "logging": LoggingSpec,
    "parallel": ParallelSpec,
    "generation": GenerationSpec,
}


def load_recipe(
    path: str | Path,
    overrides: Iterable[tuple[str, Any]] = (),
    data: str | Path | None = None,
    on_bad_line: str | None = None,
) -> Recipe:
    """Read a recipe file.

    Args:
        path: the YAML file.
        overrides: dotted keys and values, as from ``--train.max_steps 24``; a string is read as YAML.
        data: train on this file or folder instead (``--data``), and evaluate on a part of it that is held out. With
            an override of ``data.valid``, that stands.
        on_bad_line: set in every source that has it (``--on-bad-line``): ``error`` or ``skip``.

    Raises:
        ConfigError: a key or value that is wrong, with file and line, or with the option that set it.
        DataError: ``data`` is no file whose kind is known.
    """
    content, lines = load_yaml(path)
    return parse_recipe(content, overrides, data, on_bad_line, file=path, lines=lines)


def parse_recipe(
    content: Mapping[str, Any],
    overrides: Iterable[tuple[str, Any]] = (),
    data: str | Path | None = None,
    on_bad_line: str | None = None,
    *,
    file: str | Path | None = None,
    lines: Lines | None = None,
) -> Recipe:
    """A recipe from plain data; see `load_recipe`.

    Args:
        content: what a recipe file holds.
        file: where it was read, for messages.
        lines: the line of each key path there.
    """
    options = list(overrides)
    try:
        recipe = _Reader(content, options, data).recipe()
        return recipe if on_bad_line is None else replace(recipe, data=with_bad_lines(recipe.data, on_bad_line))
    except TranspectError as error:
        raise _located(error, options, file, lines or {}) from None


class _Reader:
    """One recipe being read: its own data, and the overrides over it."""

    def __init__(self, content: Mapping[str, Any], overrides: list[tuple[str, Any]], data: str | Path | None) -> None:
        self.content: Data = to_data(content)
        self.overrides = overrides
        self.data = data

    def recipe(self) -> Recipe:
        self._check_sections()
        sections = {name: self._section(name) for name in SECTIONS if name != "model"}
        self._name_sources(sections["data"])
        model = read_model(self.content["model"], self._below("model"))
        if model.path is not None and not sections["tokenizer"].keys() & {"kind", "path"}:
            sections["tokenizer"]["path"] = model.path
        # an option of the default kind needs no kind beside it
        default = TrainSpec()
        _name_kind(sections["train"], "optimizer", default.optimizer.kind)
        _name_kind(sections["train"], "schedule", default.schedule.kind)
        _name_kind(sections["train"], "adapter", Lora.kind)
        _name_kind(sections["data"], "objective", OBJECTIVES[model.config.kind].kind)
        data = _read(DataSpec, "data", sections["data"])
        _name_kind(sections["train"], "loss", (data.objective or OBJECTIVES[model.config.kind]).loss)
        return Recipe(
            model,
            _read_tokenizer(sections["tokenizer"]),
            data,
            _read(TrainSpec, "train", sections["train"]),
            _read(LoggingSpec, "logging", sections["logging"]),
            _read(ParallelSpec, "parallel", sections["parallel"]),
            GenerationSpec(sections["generation"]),
        )

    def _check_sections(self) -> None:
        for key, _ in self.overrides:
            name, dot, _ = key.partition(".")
            if name not in SECTIONS or not dot:
                raise _fault(f"a recipe has no key {key!r}", tuple(key.split(".")), _suggest(key))
        for name in self.content:
            if name not in SECTIONS:
                raise _fault(f"a recipe has no key {name!r}", (name,), _suggest(name))
        model = self.content.get("model")
        begun = (isinstance(model, dict) and model.get("path")) or any(key == "path" for key, _ in self._below("model"))
        needed = ["model", *([] if begun else ["tokenizer"]), *([] if self.data is not None else ["data"])]
        for name in needed:
            if self.content.get(name) is None and not self._below(name):
                raise _fault(f"a recipe needs the key {name!r}", (), f"Its keys: {', '.join(SECTIONS)}.")
        self.content.setdefault("model", {})

    def _section(self, name: str) -> Data:
        given = self.content.get(name)
        if name == "tokenizer" and isinstance(given, str):
            given = {"kind": given}
        if given is None:
            given = {}
        if not isinstance(given, dict):
            raise _fault(f"{name} must be a mapping", (name,), value=given)
        return apply_overrides(given, self._below(name))

    def _below(self, name: str) -> list[tuple[str, Any]]:
        """The overrides of one section, without its name."""
        return [(key.partition(".")[2], value) for key, value in self.overrides if key.partition(".")[0] == name]

    def _name_sources(self, section: Data) -> None:
        """Turn bare paths into sources, and put ``--data`` in its place."""
        for key in ("train", "valid"):
            given = section.get(key)
            if isinstance(given, str) and given not in Source.kinds():
                section[key] = to_data(source_from_path(given))
        if self.data is None:
            return
        if any(key == "train" or key.startswith("train.") for key, _ in self._below("data")):
            raise _fault("--data and --data.train name the training data twice", ("data", "train"), "Leave one out.")
        like = _read(DataSpec, "data", {"train": section["train"]}).train if section.get("train") else None
        section["train"] = to_data(source_from_path(str(self.data), like))
        named = any(key == "valid" or key.startswith("valid.") for key, _ in self._below("data"))
        if not named and isinstance(section.get("valid"), dict):
            section["valid"] = DataSpec.valid  # the recipe's own would measure another kind of text


def _name_kind(section: Data, key: str, kind: str) -> None:
    if isinstance(given := section.get(key), dict):
        section[key] = {"kind": kind, **given}


def _read(cls: type[T], name: str, section: Data) -> T:
    try:
        return from_data(cls, section, (name,))
    except ConfigError as error:
        key = error.path[-1] if error.path else ""
        elsewhere = [
            f"{other}.{key}"
            for other, owner in SECTIONS.items()
            if other != name and key in {field.name for field in fields(owner)}
        ]
        if elsewhere and "has no key" in error.rule:
            error.remedy = f"It stands elsewhere: {' or '.join(elsewhere)}. {error.remedy}"
        raise


def _read_tokenizer(section: Data) -> TokenizerSpec:
    """The section with the kind's own options, which stand beside the common ones, gathered."""
    common = {field.name for field in fields(TokenizerSpec)} - {"options"}
    options = {key: value for key, value in section.items() if key not in common}
    shared = {key: value for key, value in section.items() if key in common}
    kind = shared.get("kind")
    owner = None if kind is None else type(_kind(str(kind)))
    own = {field.name for field in fields(owner)} if owner is not None else set()
    for key in options:
        if key not in own:
            known = sorted(common | own)
            remedy = f"{did_you_mean(key, known)} Known keys: {', '.join(known)}.".strip()
            raise _fault(f"tokenizer has no key {key!r}", ("tokenizer", key), remedy)
    if owner is not None:
        from_data(owner, options, ("tokenizer",))
    return from_data(TokenizerSpec, {**shared, "options": options}, ("tokenizer",))


def _kind(tag: str) -> Kind:
    try:
        return resolve_kind(tag, {})
    except TokenizerError as error:
        near = did_you_mean(tag, KINDS)
        raise _fault(error.rule, ("tokenizer", "kind"), f"{near} {error.remedy}".strip(), tag) from None


def _suggest(key: str) -> str:
    """What may have been meant by a key that no recipe has."""
    first = key.partition(".")[0]
    if first == "compare":
        return "That section is for `transpect compare`; to train one of its variants, set its keys here."
    inside = [f"{name}.{field.name}" for name, owner in SECTIONS.items() for field in fields(owner)]
    near = did_you_mean(first, SECTIONS) or did_you_mean(key, inside)
    owners = [full for full in inside if full.partition(".")[2] == first and not full.startswith("model.")]
    hint = f"Did you mean {owners[0]!r}?" if owners else near
    return f"{hint} Its keys: {', '.join(SECTIONS)}.".strip()


def _fault(rule: str, path: KeyPath, remedy: str = "", value: object = None) -> ConfigError:
    error = ConfigError(rule, value=value, remedy=remedy)
    error.path = path
    return error


def _located(
    error: TranspectError, overrides: list[tuple[str, Any]], file: str | Path | None, lines: Lines
) -> TranspectError:
    """The error with the option that set the value, or else with file and line."""
    if not isinstance(error, ConfigError) or error.file is not None:
        return error
    named = [(*error.path, word) for word in keys_named(error.rule)]
    for known in ({tuple(key.split(".")) for key, _ in overrides}, lines):
        exact = next((path for path in named if path in known), None)
        if exact is not None:
            error.path = exact
            break
    option = next((key for key, _ in reversed(overrides) if _concerns(key, error.path)), None)
    if option is not None:
        error.file = f"option --{option}"
        return error
    return error if file is None else locate(error, file, lines)


def _concerns(option: str, path: KeyPath) -> bool:
    """Whether what an option sets is what an error is about, or is around it."""
    keys = tuple(option.split("."))
    return keys == path[: len(keys)]
