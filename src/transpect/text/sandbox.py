"""A Jinja environment for templates from strangers.

jinja2's immutable sandbox keeps a template from Python: no attribute that begins with an underscore, no method that
changes its receiver, no import, no file. It does not keep it from working for ever or filling the memory. So here a
template has only the filters and methods that templates of real models use, and all that can grow is paid for out of
a budget: loops and macros by the turn, text, operators, filters and methods by the size that they read or can make. A
template of a real model spends less than a thousandth of it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache, wraps
from typing import Any, Final, NoReturn, cast

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from transpect.text.template_words import FILTERS, METHODS

BUDGET: Final = 100_000_000
"""Units of work that a rendering may cost: one for a character that is copied. It lasts for about two seconds."""
ITEM: Final = 50
"""What an item of a list costs where it is looked at."""
TURN: Final = 1000
"""What a turn of a loop or a call of a macro costs."""

_till: ContextVar[list[int]] = ContextVar("the units of work that are left, as a list of one", default=[0])  # noqa: B039

_marks: ContextVar[tuple[str, str]] = ContextVar("what stands around the assistant's own words", default=("", ""))


class TemplateLimitError(TemplateError):
    """A template that works for too long, or makes too much."""


def render(template: Template, variables: Mapping[str, Any], max_chars: int, marks: tuple[str, str] = ("", "")) -> str:
    """The text of a template.

    Args:
        template: compiled.
        variables: what it sees.
        max_chars: of the text.
        marks: what to write before and after each ``{% generation %} … {% endgeneration %}``.

    Raises:
        TemplateLimitError: more text than ``max_chars``, or more work than :data:`BUDGET`.
        Exception: whatever the template's own expressions raise.
    """
    token, marking = _till.set([BUDGET]), _marks.set(marks)
    try:
        parts: list[str] = []
        for part in template.generate(variables):
            max_chars -= len(part)
            if max_chars < 0:
                raise TemplateLimitError("the text gets too long")
            parts.append(part)
        return "".join(parts)
    finally:
        _till.reset(token)
        _marks.reset(marking)


@lru_cache(maxsize=64)
def compiled(source: str) -> Template:
    """A template ready to render.

    Raises:
        TemplateSyntaxError: it is none.
    """
    return _environment().from_string(source)


@lru_cache(maxsize=1)
def _environment() -> ImmutableSandboxedEnvironment:
    environment = _Budgeted(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation], finalize=_read
    )
    kept = {name: f for name, f in environment.filters.items() if name in FILTERS}
    environment.filters = {name: _paid(name, f) for name, f in {**kept, "tojson": _tojson}.items()}
    tests = cast("Mapping[str, Callable[..., Any]]", environment.tests)
    environment.tests = {name: _paid(name, f) for name, f in tests.items()}
    environment.globals = {name: environment.globals[name] for name in ("range", "dict", "namespace")}
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    return environment


# what is paid


def _spend(units: int) -> None:
    till = _till.get()
    if till[0] < units:
        raise TemplateLimitError("the template does too much work")
    till[0] -= units


def _turn() -> str:
    _spend(TURN)
    return ""


def _metered(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        _spend(ITEM)
        yield item


def _size(value: object) -> int:
    """What it costs to look at all of a value; an iterator is paid for as it goes."""
    if isinstance(value, tuple):  # it may become a key, and hashing goes through all that is in it
        return _text_size(value)
    return len(value) * (1 if isinstance(value, (str, bytes)) else ITEM) if isinstance(value, Sized) else 1


def _text_size(value: object) -> int:
    """About the characters that a value has as text. The way through nested values is paid here."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, LoopContext):  # it shows the items at its sides
        raise TemplateLimitError("a loop is no value to write or compare")
    if isinstance(value, Namespace):
        value = getattr(value, "_Namespace__attrs")  # noqa: B009 - the name that it answers to
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    if isinstance(value, Iterable) and isinstance(value, Sized):
        _spend(len(value) * ITEM)
        return sum(_text_size(item) + 2 for item in value)
    return value.bit_length() // 3 + 1 if isinstance(value, int) else 20


_AT_ONCE: Final = frozenset({"length", "count", "first", "last", "default", "d"})
"""Filters that don't look at all of a value."""
_READS_ALL: Final = frozenset(
    {"join", "format", "format_map", "tojson", "string", "in", "eq", "==", "equalto", "ne", "!="}
    | {"sort", "unique", "dictsort", "groupby", "min", "max", "sum", "dict"}
)
"""Filters, functions, methods and tests that go through all that is in their arguments, however nested."""
_MULTIPLIES: Final = frozenset({"join", "format", "format_map", "replace", "indent"})
"""Those whose result can have the product of their arguments' sizes, not the sum."""
_TAKES_APART: Final = frozenset({"list", "sort", "unique", "groupby", "min", "max"})
"""Those that make an item of each character of a string."""
_WIDE: Final = re.compile(r"%(\([^)]*\))?[-+ #0_^]*(\d{4}|\d*\.\d{4}|\d*\.?\*)|\{[^{}]*:[^{}]*(\d{4}|\{)")
"""A field of a format string, of either style, as wide as 1000 or as an argument says."""
_FIELD: Final = 1000
"""More than a field of a format can add to the text that it shows."""
_BLANKS: Final = tuple(c for c in map(chr, range(0x3001)) if c.isspace())


def _pay(name: str, receiver: object, arguments: Sequence[object]) -> None:
    size = _text_size if name in _READS_ALL else _size
    # A number as an argument can be a width.
    others = sum(abs(a) if isinstance(a, int) else size(a) for a in arguments)
    if name.startswith("format"):
        _check_widths(str(receiver))
        others += _FIELD
    if name == "sum" and arguments:  # lists, put one after another
        others += size(receiver) * _size(receiver)
    if isinstance(receiver, str) and name in _TAKES_APART:
        others += len(receiver) * ITEM
    if isinstance(receiver, str) and name in {"split", "rsplit", "splitlines"}:
        others += _pieces(receiver, arguments) * ITEM
    # An empty string multiplies too: it may be the one between the items.
    _spend((size(receiver) + 1) * (others + 1) if name in _MULTIPLIES else size(receiver) + others)


def _pieces(text: str, arguments: Sequence[object]) -> int:
    separators = [a for a in arguments if isinstance(a, str) and a] or _BLANKS
    return sum(map(text.count, separators)) + 1


def _check_widths(pattern: str) -> None:
    if _WIDE.search(pattern):
        raise TemplateLimitError("a format asks for too wide a field")


def _check_digits(bits: int) -> None:
    if bits > 4096:
        raise TemplateLimitError("a number gets too large")


def _listed(value: Any) -> Any:
    """An iterator as the list of its items, whose size can be told; each item is paid."""
    return list(_metered(value)) if isinstance(value, Iterator) else value


def _paid(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter or test that is paid for."""
    passed = 1 if hasattr(function, "jinja_pass_arg") else 0  # jinja2 itself passes the context first

    @wraps(function)
    def paid(*args: Any, **kwargs: Any) -> Any:
        args = (*args[:passed], *map(_listed, args[passed:]))
        if name not in _AT_ONCE:
            _pay(name, args[passed], [*args[passed + 1 :], *kwargs.values()])
        result = function(*args, **kwargs)
        if isinstance(result, int):
            _check_digits(result.bit_length())
        return _metered(result) if isinstance(result, Iterator) else result

    return paid


def _read(value: Any) -> Any:
    """A value that is about to be written out, or compared."""
    _spend(_text_size(value))
    return value


def _copied(value: Any) -> Any:
    """A value of which a part is about to be copied."""
    _spend(len(value) if isinstance(value, Sized) else 1)
    return value


def _concatenated(*values: Any) -> str:
    """What ``~`` does."""
    _spend(sum(map(_text_size, values)))
    return "".join(map(str, values))


def _key(value: Any) -> Any:
    """A value that may be hashed: a tuple is, through all its depth, and one too deep would end the process."""
    if isinstance(value, tuple):
        _spend(_text_size(value))
    return value


def _written(chars: int) -> str:
    """Text that stands in the template itself."""
    _spend(chars)
    return ""


def _opened() -> str:
    return _marks.get()[0]


def _closed() -> str:
    return _marks.get()[1]


class _Budgeted(ImmutableSandboxedEnvironment):
    """The immutable sandbox, with a budget."""

    intercepted_binops = frozenset({"*", "**", "+", "-", "/", "//", "%"})
    turn = staticmethod(_turn)
    metered = staticmethod(_metered)
    read = staticmethod(_read)
    copied = staticmethod(_copied)
    concatenated = staticmethod(_concatenated)
    key = staticmethod(_key)
    written = staticmethod(_written)
    opened = staticmethod(_opened)
    closed = staticmethod(_closed)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether a template may use it: of Python's own types, only what :data:`METHODS` names."""
        kinds = [kind for kind in METHODS if isinstance(obj, kind)]
        named = not kinds or any(attr in METHODS[kind] for kind in kinds)
        return named and super().is_safe_attribute(obj, attr, value)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """An item by its key."""
        return super().getitem(obj, _key(argument))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """An operator whose result can be large."""
        for value in (left, right):
            if isinstance(value, int):
                _check_digits(value.bit_length())
        match operator, left, right:
            case "**", int(), int():
                _check_digits(left.bit_length() * abs(right))
            case "*", int(), int():
                _check_digits(left.bit_length() + right.bit_length())
            case "*", _, _:  # a string or list, so many times
                _spend(math.prod(abs(v) if isinstance(v, int) else _size(v) for v in (left, right)))
            case "%", str(), _:
                _pay("format", left, [right])
            case _:
                _spend(_size(left) + _size(right))
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """A function or method in a template; the names leave room for all that a template may pass by keyword."""
        if not isinstance(__obj, Macro) and all(__obj is not part for part in _TILL):
            args, kwargs = tuple(map(_listed, args)), {name: _listed(value) for name, value in kwargs.items()}
            receiver = getattr(getattr(__obj, "__wrapped__", __obj), "__self__", None)
            _pay(getattr(__obj, "__name__", ""), receiver, [*args, *kwargs.values()])
        return super().call(__context, __obj, *args, **kwargs)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Metering().visit(super()._parse(source, name, filename))
        tree.set_environment(self)
        return tree


class _Metering(NodeTransformer):
    """Puts the till into a template's syntax tree."""

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        """Every node, after those inside it."""
        node = super().generic_visit(node, *args, **kwargs)
        if isinstance(node, nodes.Concat):
            return self._call("concatenated", node.nodes, node)
        if isinstance(node, nodes.Output) and (
            chars := sum(len(part.data) for part in node.nodes if isinstance(part, nodes.TemplateData))
        ):
            node.nodes.insert(0, self._call("written", [nodes.Const(chars)], node))
        if isinstance(node, nodes.Pair):
            node.key = self._call("key", [node.key], node)
        if isinstance(node, nodes.Compare):
            node.expr = self._call("key", [node.expr], node)
        if isinstance(node, nodes.Operand):  # the right-hand side of a comparison, or of `in`
            node.expr = self._call("read", [node.expr], node)
        if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
            node.node = self._call("copied", [node.node], node)
        if isinstance(node, nodes.For):
            node.iter = self._call("metered", [node.iter], node)
        if isinstance(node, (nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block)):
            node.body.insert(0, nodes.Output([self._call("turn", [], node)], lineno=node.lineno))
        return node

    @staticmethod
    def _call(name: str, arguments: Sequence[nodes.Node], at: nodes.Node) -> nodes.Call:
        function = nodes.EnvironmentAttribute(name, lineno=at.lineno)
        return nodes.Call(function, list(arguments), [], None, None, lineno=at.lineno)


class _Generation(Extension):
    """``{% generation %} … {% endgeneration %}``: what the assistant says, written between the marks of `render`."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The statements between, and a mark at each side."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        first, last = (
            nodes.Output([nodes.Call(nodes.EnvironmentAttribute(name, lineno=line), [], [], None, None)], lineno=line)
            for name in ("opened", "closed")
        )
        return [first, *body, last]


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is, where jinja2's own filter would escape ``<`` and ``&`` for HTML."""
    if isinstance(indent, int) and indent > _FIELD:
        raise TemplateLimitError("JSON is indented too far")
    encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    parts: list[str] = []
    for part in encoder.iterencode(value):  # paid as it goes: indents and separators multiply
        _spend(len(part))
        parts.append(part)
    return "".join(parts)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    _check_widths(pattern)
    if len(pattern) > _FIELD:
        raise TemplateLimitError("a format of a time is too long")
    return datetime.now().strftime(pattern)


_TILL: Final = (_turn, _metered, _read, _copied, _concatenated, _key, _written, _opened, _closed)
"""What the till itself calls."""
