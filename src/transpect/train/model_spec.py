"""The ``model`` of a recipe: a preset with changes, or a whole configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from transpect.base.codec import Data, KeyPath, apply_overrides, did_you_mean, from_data, to_data
from transpect.base.errors import ConfigError
from transpect.core.config import SHORT, ModelConfig, expand
from transpect.core.presets import PRESETS, preset
from transpect.train.recipe import ModelSpec

STAND_IN = 1
"""A vocabulary size that stands where the tokenizer's will be."""

TOP = tuple(field.name for field in fields(ModelConfig))
KNOWN = (*TOP, *SHORT)


@dataclass(frozen=True)
class _Change:
    """One value to set.

    Attributes:
        key: dotted, short names allowed.
        value: what it becomes.
        path: where the recipe says so, for messages.
    """

    key: str
    value: Any
    path: KeyPath


def read_model(given: Any, overrides: Iterable[tuple[str, Any]] = ()) -> ModelSpec:
    """Build the spec of a recipe's ``model``.

    In a preset, a mapping with a ``kind`` replaces what stood there, and one without changes only the keys that it
    names.

    Args:
        given: a preset's name, a mapping with ``preset`` and changes, or a mapping of a whole `ModelConfig`.
        overrides: dotted keys below ``model``, applied last; ``preset`` exchanges the preset itself.

    Raises:
        ConfigError: with the path, below ``model``, of what is wrong.
    """
    data = {"preset": given} if isinstance(given, str) else given
    if not isinstance(data, dict):
        raise _fault("model must be a preset's name or a mapping", ("model",), value=given)
    data = dict(data)
    late: list[_Change] = []
    for key, value in overrides:
        if key == "preset":
            data["preset"] = value
        else:
            late.append(_Change(key, value, ("model", *key.split("."))))
    name = data.pop("preset", None)
    if name is None:
        base, changes = _whole(data), late
    else:
        if not isinstance(name, str) or name not in PRESETS:
            remedy = f"{did_you_mean(name, PRESETS)} Known presets: {', '.join(PRESETS)}.".strip()
            raise _fault("no such preset", ("model", "preset"), remedy, name)
        base, changes = to_data(preset(name)), [*_flat(data), *late]
    sized = any(change.key == "vocab_size" for change in changes) or (name is None and base["vocab_size"] is not None)
    if base["vocab_size"] is None:
        base["vocab_size"] = STAND_IN
    return ModelSpec(_changed(base, changes), sized)


def _whole(data: Data) -> Data:
    """A whole configuration, with its vocabulary size left open where it has none."""
    for key in data:
        _check_key(str(key), ("model", str(key)), TOP)
    if not any(data.get(tower) for tower in ("encoder", "decoder")):
        raise _fault(
            "model needs a preset, or a whole configuration with an encoder or a decoder",
            ("model",),
            f"Write e.g. {{preset: llama, d_model: 256, …}}. Presets: {', '.join(PRESETS)}.",
        )
    return {"vocab_size": None, **data}


def _changed(base: Data, changes: list[_Change]) -> ModelConfig:
    towers = [tower for tower in ("encoder", "decoder") if base.get(tower) is not None]
    origin: list[tuple[KeyPath, KeyPath]] = []
    pairs: list[tuple[str, Any]] = []
    for change in changes:
        _check_key(change.key, change.path, KNOWN)
        for full, value in expand([(change.key, change.value)], towers):
            pairs.append((full, value))
            origin.append((tuple(full.split(".")), change.path))
    try:
        return from_data(ModelConfig, apply_overrides(base, pairs))
    except ConfigError as error:
        exact = (*error.path, error.rule.split()[0])  # a rule about a key begins with its name
        error.path = _traced(exact if exact in {full for full, _ in origin} else error.path, origin)
        raise


def _traced(path: KeyPath, origin: list[tuple[KeyPath, KeyPath]]) -> KeyPath:
    """Where the recipe set what stands at ``path`` of the configuration; the last change there decides."""
    for full, where in reversed(origin):
        shared = min(len(full), len(path))
        if shared and full[:shared] == path[:shared]:
            return (*where, *path[shared:])
    return ("model", *path)


def _flat(data: Mapping[str, Any], prefix: str = "", path: KeyPath = ("model",)) -> Iterator[_Change]:
    for key, value in data.items():
        here = (*path, str(key))
        if isinstance(value, Mapping) and value and "kind" not in value:
            yield from _flat(value, f"{prefix}{key}.", here)
        else:
            yield _Change(f"{prefix}{key}", value, here)


def _check_key(key: str, path: KeyPath, known: tuple[str, ...]) -> None:
    first = key.partition(".")[0]
    if first not in known:
        remedy = f"{did_you_mean(first, known)} Known keys: {', '.join(sorted(known))}.".strip()
        raise _fault(f"the model has no key {key!r}", path, remedy)


def _fault(rule: str, path: KeyPath, remedy: str = "", value: object = None) -> ConfigError:
    error = ConfigError(rule, value=value, remedy=remedy)
    error.path = path
    return error
