"""The ``model`` of a recipe: a preset with changes, a checkpoint with changes, or a whole configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from transpect.base.codec import Data, KeyPath, apply_overrides, did_you_mean, from_data, to_data
from transpect.base.errors import ConfigError
from transpect.core.config import SHORT, ModelConfig, expand
from transpect.core.presets import PRESETS, preset
from transpect.interop import head_of_kind, load_config
from transpect.train.model.initial import misfits
from transpect.train.recipe import STAND_IN, ModelSpec

TOP = tuple(field.name for field in fields(ModelConfig))
KNOWN = (*TOP, *SHORT)


@dataclass(frozen=True)
class _Change:
    """One value to set.

    Attributes:
        key: dotted, short names allowed.
        value: what it becomes.
        path: where the recipe says so, for messages.
        late: whether it is an override.
    """

    key: str
    value: Any
    path: KeyPath
    late: bool = False


def read_model(given: Any, overrides: Iterable[tuple[str, Any]] = ()) -> ModelSpec:
    """Build the spec of a recipe's ``model``.

    In a preset, a mapping with a ``kind`` replaces what stood there, and one without changes only the keys that it
    names.

    Args:
        given: a preset's name, a mapping with ``preset`` and changes, a mapping with the ``path`` of a checkpoint and
            changes that leave its tensors as they are (all but the head, see `transpect.train.model.initial`), or a
            mapping of a whole `ModelConfig`.
        overrides: dotted keys below ``model``, applied last; ``preset`` or ``path`` exchanges what is changed.

    Raises:
        ConfigError: with the path, below ``model``, of what is wrong.
        CheckpointError: a checkpoint that can't be read.
    """
    data = {"preset": given} if isinstance(given, str) else given
    if not isinstance(data, dict):
        raise _fault("model must be a preset's name or a mapping", ("model",), value=given)
    data = dict(data)
    late: list[_Change] = []
    for key, value in overrides:
        if key in ("preset", "path"):
            data[key] = value
        else:
            late.append(_Change(key, value, ("model", *key.split(".")), late=True))
    name, path = data.pop("preset", None), data.pop("path", None)
    if path is not None:
        if name is not None:
            raise _fault("a model begins with a preset or with a checkpoint, not both", ("model", "path"), value=path)
        return _opened(str(path), data, late)
    if name is None:
        base, changes = _whole(data), late
    else:
        if not isinstance(name, str) or name not in PRESETS:
            remedy = f"{did_you_mean(name, PRESETS)} Known presets: {', '.join(PRESETS)}.".strip()
            raise _fault("no such preset", ("model", "preset"), remedy, name)
        base, changes = to_data(preset(name)), [*_flat(data), *late]
    sizes = [change for change in changes if change.key == "vocab_size"]
    sized = sizes[-1].value not in (None, "null") if sizes else name is None and base["vocab_size"] is not None
    if not sized:
        changes = [change for change in changes if change not in sizes]
        base["vocab_size"] = STAND_IN
    return ModelSpec(_changed(base, changes), sized)


def _opened(path: str, data: Data, late: list[_Change]) -> ModelSpec:
    """A checkpoint's config with changes; a whole one beside the path, as a resolved recipe has, is taken as it is."""
    if data.keys() >= set(TOP):
        return ModelSpec(_changed(data, late), sized=True, path=path)
    origin = load_config(path)
    changes = [_headed(change, origin) for change in (*_flat(data), *late)]
    base = to_data(origin)
    config = _changed(base, changes)
    if misfits(origin, config):
        for change in changes:
            if misfits(origin, _changed(base, [change])):
                raise _fault(
                    f"the weights of {path} can't be used with another {change.key}",
                    change.path,
                    "Leave it out; what changes no tensor may be changed (dropout, kernel, theta, …), and the head.",
                    change.value,
                )
    return ModelSpec(config, sized=True, path=path)


def _headed(change: _Change, origin: ModelConfig) -> _Change:
    """A change to another kind of head, with what the family of a checkpoint has in it where the change is silent."""
    given = {"kind": change.value} if isinstance(change.value, str) else change.value
    if change.key != "head" or not isinstance(given, Mapping) or given.get("kind") == origin.head.kind:
        return change
    usual = head_of_kind(origin, str(given.get("kind")))
    return change if usual is None else replace(change, value={**to_data(usual), **given})


def _whole(data: Data) -> Data:
    """A whole configuration, with its vocabulary size left open where it has none."""
    for key in data:
        _check_key(str(key), ("model", str(key)), (*TOP, "preset", "path"))
    if not any(data.get(tower) for tower in ("encoder", "decoder")):
        raise _fault(
            "model needs a preset, or a whole configuration with an encoder or a decoder",
            ("model",),
            f"Write e.g. {{preset: llama, d_model: 256, …}}. Presets: {', '.join(PRESETS)}.",
        )
    return {"vocab_size": None, **data}


def _changed(base: Data, changes: list[_Change]) -> ModelConfig:
    towers = [tower for tower in ("encoder", "decoder") if base.get(tower) is not None]
    origin: list[tuple[KeyPath, _Change]] = []
    pairs: list[tuple[str, Any]] = []
    for change in changes:
        _check_key(change.key, change.path, KNOWN)
        for full, value in expand([(change.key, change.value)], towers):
            pairs.append((full, value))
            origin.append((tuple(full.split(".")), change))
    try:
        return from_data(ModelConfig, apply_overrides(base, pairs))
    except ConfigError as error:
        error.path = _traced(error, origin)
        raise


def _traced(error: ConfigError, origin: list[tuple[KeyPath, _Change]]) -> KeyPath:
    """Where the recipe set what an error is about: a key that the rule names, an override first; else what was changed
    last at, inside or around the error's path."""
    path, words = error.path, keys_named(error.rule)
    named = [(full, change) for full, change in origin if full[-1] in words and full[: len(path)] == path]
    if named:
        late = [item for item in named if item[1].late]
        return late[-1][1].path if late else min(named, key=lambda item: words.index(item[0][-1]))[1].path
    for full, change in reversed(origin):
        shared = min(len(full), len(path))
        if shared and full[:shared] == path[:shared]:
            return (*change.path, *path[shared:])
    return ("model", *path)


def keys_named(rule: str) -> list[str]:
    """The words of a rule that may be keys, in their order."""
    return re.findall(r"[a-z]\w*", rule)


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
