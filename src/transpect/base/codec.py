"""Frozen dataclasses <-> plain data (YAML, JSON): strict, with tagged variants and dotted overrides.

A *variant* is one of several ways to do a thing and owns its options::

    class Position(Variant): ...

    @dataclass(frozen=True)
    class Rope(Position, kind="rope"):
        theta: float = 10000.0

In data it is ``{"kind": "rope", "theta": 10000.0}``, or the bare word ``rope`` for all defaults. An unknown key, a
wrong type or an unknown kind is a `ConfigError` that names the dotted path and, for a file, its line.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import types
import typing
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import yaml

from transpect.base.errors import ConfigError

T = TypeVar("T")
Data = dict[str, Any]
KeyPath = tuple[str, ...]


class Variant:
    """Base of a tagged union. The class that derives from it directly is the union; its children are the kinds."""

    kind: ClassVar[str] = ""
    _kinds: ClassVar[dict[str, type[Variant]]]

    def __init_subclass__(cls, kind: str = "", **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if Variant in cls.__bases__:
            cls._kinds = {}
        if kind:
            cls.kind = kind
            cls._kinds[kind] = cls

    @classmethod
    def kinds(cls) -> dict[str, type[Variant]]:
        """The kinds of this union by tag, in the order of their definition."""
        return dict(cls._kinds)


def to_data(value: Any) -> Any:
    """Turn a dataclass (and what it holds) into dicts, lists and scalars; `from_data` is its inverse."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: to_data(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
        return {"kind": value.kind, **fields} if isinstance(value, Variant) else fields
    if isinstance(value, tuple | list):
        return [to_data(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): to_data(item) for key, item in value.items()}
    if isinstance(value, Path):
        return str(value)
    return value


def from_data(cls: type[T], data: Any, path: KeyPath = ()) -> T:
    """Build ``cls`` from plain data.

    Args:
        cls: a dataclass, a variant union, or any type hint made of scalars, tuples, dicts, Literals and unions.
        data: what YAML or JSON gave.
        path: the dotted path of ``data``, for messages.

    Raises:
        ConfigError: unknown or missing key, unknown kind, wrong type; ``error.path`` holds the dotted path.
    """
    return typing.cast(T, _decode(cls, data, path))


def dump_yaml(value: Any) -> str:
    """The YAML text of a dataclass or of plain data, keys in the order of definition."""
    text: str = yaml.dump(to_data(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


class _Dumper(yaml.SafeDumper):
    """Writes strings with exotic line breaks quoted and escaped, since YAML would fold them into spaces."""


def _represent_str(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = '"' if set(text) & set("\x85\u2028\u2029\ufeff") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_str)


def load_yaml(path: str | Path) -> tuple[Data, dict[KeyPath, int]]:
    """Read a YAML mapping.

    Returns:
        the data, and the 1-based line of each key path, so that an error can point to it.

    Raises:
        ConfigError: no such file, not YAML, or not a mapping.
    """
    file = Path(path)
    if not file.is_file():
        raise ConfigError("no such file", file=file, remedy="Check the path; it is relative to where you are.")
    try:
        node = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError("a configuration must be UTF-8 text", file=file, remedy=str(error)) from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise ConfigError(f"not valid YAML: {error.problem}", file=file, line=line) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"not valid YAML: {error}", file=file) from error
    if not isinstance(data, dict):
        raise ConfigError("a configuration must be a mapping of keys to values", file=file, value=data)
    lines: dict[KeyPath, int] = {}
    try:
        _collect_lines(node, (), lines)
    except RecursionError as error:
        raise ConfigError("an alias in a configuration may not contain itself", file=file) from error
    except ConfigError as error:
        error.file = file
        raise
    return data, lines


def load_config(cls: type[T], path: str | Path, overrides: Iterable[tuple[str, Any]] = ()) -> T:
    """Read ``path`` as ``cls`` after applying dotted overrides. Errors carry file and line."""
    data, lines = load_yaml(path)
    try:
        return from_data(cls, apply_overrides(data, overrides))
    except ConfigError as error:
        raise locate(error, path, lines) from None


def locate(error: ConfigError, file: str | Path, lines: Mapping[KeyPath, int]) -> ConfigError:
    """The same error with the file, and the line of the nearest key at or above its path."""
    path = error.path
    while path and path not in lines:
        path = path[:-1]
    if path:
        error.file, error.line = file, lines[path]
    else:
        error.file = file
    return error


def apply_overrides(data: Data, overrides: Iterable[tuple[str, Any]]) -> Data:
    """A copy of ``data`` with dotted keys set: ``("model.positions.theta", "5e5")``.

    A string value is read as YAML (``64`` is a number, ``[a, b]`` a list, ``null`` None). A key below a bare kind
    (``positions: rope``) opens it into ``{kind: rope, ...}``.
    """
    result: Data = to_data(data)
    for dotted, value in overrides:
        *parents, last = dotted.split(".")
        node: Any = result
        for depth, key in enumerate(parents):
            child = node.get(key)
            if child is None:
                child = {}
            elif isinstance(child, str):
                child = {"kind": child}
            elif not isinstance(child, dict):
                where = ".".join(parents[: depth + 1])
                raise _error(f"{where} holds a single value, so {dotted} can't be set", child, tuple(parents))
            node[key] = child
            node = child
        node[last] = parse_scalar(value, dotted) if isinstance(value, str) else to_data(value)
    return result


def parse_scalar(text: str, name: str = "value") -> Any:
    """Read a command-line value as YAML."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: 2020-13-45 looks like a date
        raise ConfigError(f"{name} is not valid YAML", value=text, remedy="Quote it.") from error


def _error(rule: str, value: object, path: KeyPath, remedy: str = "") -> ConfigError:
    """Of a value, which may be null."""
    error = _fault(rule, path, remedy)
    error.value = "null" if value is None else value
    return error


def _fault(rule: str, path: KeyPath, remedy: str = "") -> ConfigError:
    """Of a key."""
    error = ConfigError(rule, remedy=remedy)
    error.path = path
    return error


def _decode(hint: Any, data: Any, path: KeyPath) -> Any:
    name = ".".join(path) or "the configuration"
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return data
    if origin is Literal:
        if data not in args:
            raise _error(f"{name} must be one of {', '.join(map(repr, args))}", data, path)
        return data
    if origin in (typing.Union, types.UnionType):
        return _decode_union(args, data, path)
    if origin is tuple:
        if not isinstance(data, list | tuple):
            raise _error(f"{name} must be a list", data, path)
        if args[-1:] == (Ellipsis,):
            return tuple(_decode(args[0], item, (*path, str(i))) for i, item in enumerate(data))
        if len(data) != len(args):
            raise _error(f"{name} must have {len(args)} items", data, path)
        return tuple(_decode(a, item, (*path, str(i))) for i, (a, item) in enumerate(zip(args, data, strict=True)))
    if origin is dict:
        if not isinstance(data, dict):
            raise _error(f"{name} must be a mapping", data, path)
        return {key: _decode(args[1], item, (*path, str(key))) for key, item in data.items()}
    if isinstance(hint, type) and dataclasses.is_dataclass(data) and isinstance(data, hint):
        return data
    if isinstance(hint, type) and issubclass(hint, Variant):
        return _decode_variant(hint, data, path)
    if dataclasses.is_dataclass(hint):
        return _decode_dataclass(typing.cast(type, hint), data, path)
    return _decode_scalar(hint, data, path)


def _decode_union(args: tuple[Any, ...], data: Any, path: KeyPath) -> Any:
    if data is None and type(None) in args:
        return None
    errors: list[ConfigError] = []
    for arg in args:
        if arg is type(None):
            continue
        try:
            return _decode(arg, data, path)
        except ConfigError as error:
            errors.append(error)
    # the alternative that got deepest into the data is the one that was meant
    raise max(errors, key=lambda error: len(error.path))


def _decode_variant(union: type[Variant], data: Any, path: KeyPath) -> Any:
    name = ".".join(path) or union.__name__
    data = {"kind": data} if isinstance(data, str) else data
    if not isinstance(data, dict):
        raise _error(f"{name} must be the name of a kind, or a mapping with `kind`", data, path)
    kinds = {union.kind: union} if union.kind else union.kinds()
    if not union.kind and "kind" not in data:
        remedy = f"Set it to one of {', '.join(kinds)}."
        raise _error(f"{name} needs the key 'kind'", ", ".join(map(str, data)) or "no keys", path, remedy)
    tag = data.get("kind", union.kind)
    if not isinstance(tag, str) or tag not in kinds:
        raise _error(f"{name}.kind must be one of {', '.join(kinds)}", tag, (*path, "kind"), did_you_mean(tag, kinds))
    return _decode_dataclass(kinds[tag], {k: v for k, v in data.items() if k != "kind"}, path)


def _decode_dataclass(cls: type, data: Any, path: KeyPath) -> Any:
    name = ".".join(path) or cls.__name__
    if not isinstance(data, dict):
        raise _error(f"{name} must be a mapping", data, path)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}
    for key in data:
        if key not in fields:
            owner = f"{name} ({cls.kind})" if issubclass(cls, Variant) else name
            known = f"Known keys: {', '.join(fields) or 'none'}."
            remedy = f"{did_you_mean(key, fields)} {known}".strip()
            raise _fault(f"{owner} has no key {key!r}", (*path, str(key)), remedy)
    for key, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and key not in data:
            raise _fault(f"{name} needs the key {key!r}", path)
    hints, values = _hints(cls), dict[str, Any]()
    for key, value in data.items():
        try:
            values[key] = _decode(hints[key], value, (*path, key))
        except ConfigError as error:
            _advise(error, fields[key], (*path, key))
            raise
    try:
        return cls(**values)
    except ConfigError as error:
        error.path = error.path or path
        blamed = next((word for word in re.findall(r"[a-z]\w*", error.rule) if word in data), None)
        if blamed is not None:
            _advise(error, fields[blamed], (*path, blamed))
        raise


def _advise(error: ConfigError, field: dataclasses.Field[Any], path: KeyPath) -> None:
    """Say how to do without a value that is wrong, unless the error knows better."""
    name = ".".join(path)
    if error.remedy:
        return
    if field.default is not dataclasses.MISSING:
        error.remedy = f"Leave {name} out for its default, {_flow(field.default)}."
    elif field.default_factory is not dataclasses.MISSING:
        error.remedy = f"Leave {name} out for its default, {_flow(field.default_factory())}."
    else:
        error.remedy = f"Write another; {name} has no default."


def _flow(value: Any) -> str:
    """A value in a line of YAML; of a variant that is all defaults its kind."""
    if isinstance(value, Variant) and value == type(value)():
        return value.kind
    text: str = yaml.dump(to_data(value), Dumper=_Dumper, default_flow_style=True, sort_keys=False, width=math.inf)
    return text.removesuffix("...\n").strip()


def _decode_scalar(hint: Any, data: Any, path: KeyPath) -> Any:
    name = ".".join(path) or "the value"
    if hint is float:
        # YAML 1.1 reads 1e-3 (no dot) as a string
        if isinstance(data, str):
            try:
                data = float(data)
            except ValueError:
                raise _error(f"{name} must be a number", data, path) from None
        if isinstance(data, int | float) and not isinstance(data, bool):
            with suppress(OverflowError):  # a whole number of hundreds of digits
                if not math.isnan(data):
                    return float(data)
        raise _error(f"{name} must be a number", data, path)
    if hint is int:
        if isinstance(data, bool) or not isinstance(data, int):
            raise _error(f"{name} must be a whole number", data, path)
        return data
    if hint is bool:
        if not isinstance(data, bool):
            raise _error(f"{name} must be true or false", data, path)
        return data
    if hint is Path and isinstance(data, str):
        return Path(data)
    if hint is str and isinstance(data, int | float) and not isinstance(data, bool):
        return str(data)
    if not isinstance(data, hint):
        raise _error(f"{name} must be of type {hint.__name__}", data, path)
    return data


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """``"Did you mean X?"`` for the closest known word, or the empty string."""
    close = difflib.get_close_matches(str(word), list(known), n=1)
    return f"Did you mean {close[0]!r}?" if close else ""


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _collect_lines(node: yaml.Node | None, path: KeyPath, lines: dict[KeyPath, int]) -> None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*path, str(key.value))
            if here in lines:  # YAML would let the last one win in silence
                error = _fault(f"the key {'.'.join(here)} stands twice", here, f"See line {lines[here]}.")
                error.line = key.start_mark.line + 1
                raise error
            lines[here] = key.start_mark.line + 1
            _collect_lines(value, here, lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            here = (*path, str(index))
            lines[here] = value.start_mark.line + 1
            _collect_lines(value, here, lines)
