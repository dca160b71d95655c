"""Layers that differ, as Hugging Face configs say it: which of them see a window, and what else changes with them.

A family has one `Layers` entry, after the entries of what all layers share; its parts each know one thing that may
differ from layer to layer. `Windows` is the part of ``sliding_window`` and ``layer_types``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transpect.base.checks import LARGEST, MANY
from transpect.base.codec import Data, to_data
from transpect.base.errors import CheckpointError
from transpect.core import Causal, Full, Visibility, Window
from transpect.interop.options import Entry, Like, Options, Override, at, is_one_of

__all__ = ["EveryLayer", "LastLayers", "Layers", "PerLayer", "Period", "WindowRule", "Windows", "must_agree", "whole"]

FULL, SLIDING = "full_attention", "sliding_attention"
BOTH_WAYS = "use_bidirectional_attention"


class PerLayer:
    """One thing that may differ from layer to layer."""

    def defaults(self) -> Mapping[str, Any]:
        """The names that it knows, with what each means when absent."""
        raise AssertionError("abstract")

    def read(self, options: Options, n_layers: int) -> list[Data]:
        """For each layer its fields as data, e.g. ``{"visibility": {"kind": "causal"}}``; the same fields for all."""
        raise AssertionError("abstract")

    def write(self, layers: Sequence[Data]) -> Mapping[str, Any]:
        """The entries for layers of ours, each with ``attention``, ``ffn``, ``positions`` and ``visibility``.

        Raises:
            CheckpointError: the family has no word for them.
        """
        raise AssertionError("abstract")


@dataclass(frozen=True)
class Layers(Entry):
    """What differs from layer to layer of a tower: the commonest kind is the tower's own, the rest are `others`.

    Attributes:
        place: of the tower in our config.
        parts: what may differ.
        count: their name for the number of layers.
    """

    place: str
    parts: tuple[PerLayer, ...]
    count: str = "num_hidden_layers"

    def defaults(self) -> Mapping[str, Any]:
        return {name: value for part in self.parts for name, value in part.defaults().items()}

    def read(self, options: Options) -> Iterable[Override]:
        count = whole(options, self.count, most=MANY)
        if count is None:
            raise CheckpointError(f"{self.count} must be a whole number", value=count)
        columns = zip(*(part.read(options, count) for part in self.parts), strict=True)
        layers: list[Data] = [
            {name: value for fields in column for name, value in fields.items()} for column in columns
        ]
        kinds: list[Data] = []
        for layer in layers:
            if layer not in kinds:
                kinds.append(layer)
        common = max(kinds, key=layers.count)
        for name, value in common.items():
            yield f"{self.place}.{name}", value
        yield (
            f"{self.place}.others",
            [
                {
                    "at": [index for index, layer in enumerate(layers) if layer == kind],
                    **{name: value for name, value in kind.items() if value != common[name]},
                }
                for kind in kinds
                if kind != common
            ],
        )

    def write(self, ours: Data) -> Mapping[str, Any]:
        tower = at(ours, self.place)
        layers = [tower] * tower["n_layers"]
        for other in tower["others"]:
            for layer in other["at"]:
                layers[layer] = other
        return {name: value for part in self.parts for name, value in part.write(layers).items()}


class WindowRule:
    """Which layers see a window, in a family's own words; an explicit ``layer_types`` overrules it."""

    def defaults(self) -> Mapping[str, Any]:
        """As for `PerLayer`."""
        raise AssertionError("abstract")

    def width(self, options: Options) -> int | None:
        """How many tokens a window holds; None is no window anywhere."""
        raise AssertionError("abstract")

    def windowed(self, options: Options, n_layers: int) -> list[bool]:
        """For each layer whether it sees a window, if there are windows."""
        raise AssertionError("abstract")

    def agree(self, options: Options, windowed: Sequence[bool]) -> None:
        """Refuse words that ``layer_types`` contradicts; words that are void beside it pass."""

    def write(self, windowed: Sequence[bool], width: int | None) -> Mapping[str, Any]:
        """The entries for such layers; ``width`` is None where none of them sees a window."""
        raise AssertionError("abstract")


@dataclass(frozen=True)
class EveryLayer(WindowRule):
    """``sliding_window`` is for all layers (Mistral).

    Attributes:
        default: of ``sliding_window``.
        switch: whether it counts only if ``use_sliding_window``. Of Qwen 3 MoE's readers some let it begin at
            ``max_window_layers`` and others not.
    """

    default: int | None = None
    switch: bool = False

    def defaults(self) -> Mapping[str, Any]:
        switch = {"use_sliding_window": False, "max_window_layers": None} if self.switch else {}
        return {"sliding_window": self.default, **switch}

    def width(self, options: Options) -> int | None:
        if not self.switch:
            return whole(options, "sliding_window")
        if not options["use_sliding_window"]:
            return None
        if options["max_window_layers"]:
            raise CheckpointError(
                "a window from max_window_layers on means different things to different readers of this family",
                value=options["max_window_layers"],
                remedy="Set max_window_layers to 0 if all layers see the window.",
            )
        return whole(options, "sliding_window")

    def windowed(self, options: Options, n_layers: int) -> list[bool]:
        return [True] * n_layers

    def write(self, windowed: Sequence[bool], width: int | None) -> Mapping[str, Any]:
        if not self.switch:
            return {"sliding_window": width}
        return {} if width is None else {"use_sliding_window": True, "sliding_window": width}


@dataclass(frozen=True)
class LastLayers(WindowRule):
    """``sliding_window`` is for layers from ``max_window_layers`` on, if ``use_sliding_window`` (Qwen 2)."""

    default: int | None = 4096
    full: int = 28

    def defaults(self) -> Mapping[str, Any]:
        return {"use_sliding_window": False, "sliding_window": self.default, "max_window_layers": self.full}

    def width(self, options: Options) -> int | None:
        return whole(options, "sliding_window") if options["use_sliding_window"] else None

    def windowed(self, options: Options, n_layers: int) -> list[bool]:
        full = whole(options, "max_window_layers", least=0) or 0
        return [layer >= full for layer in range(n_layers)]

    def agree(self, options: Options, windowed: Sequence[bool]) -> None:
        # `transformers` writes its default beside any layer_types
        if options["use_sliding_window"] and options["max_window_layers"] != self.full:
            must_agree(self, "max_window_layers", options, windowed)

    def write(self, windowed: Sequence[bool], width: int | None) -> Mapping[str, Any]:
        if width is None:
            return {}
        said: dict[str, Any] = {"use_sliding_window": True, "sliding_window": width}
        full = windowed.index(True)
        return {**said, "max_window_layers": full} if all(windowed[full:]) else said


@dataclass(frozen=True)
class Period(WindowRule):
    """All layers but each ``period``-th see a window (Gemma 2 and 3).

    Attributes:
        period: when absent.
        default: of ``sliding_window``.
        name: their name for the period; None where it is fixed.
        same: another name for ``sliding_window``, which may repeat it.
    """

    period: int
    default: int | None = 4096
    name: str | None = None
    same: str | None = None

    def defaults(self) -> Mapping[str, Any]:
        named = {} if self.name is None else {self.name: self.period}
        same = {} if self.same is None else {self.same: Like("sliding_window")}
        return {"sliding_window": self.default, **named, **same}

    def width(self, options: Options) -> int | None:
        width = whole(options, "sliding_window")
        if self.same is not None and options[self.same] != width:
            raise CheckpointError(f"sliding_window and {self.same} must be equal", value=[width, options[self.same]])
        return width

    def windowed(self, options: Options, n_layers: int) -> list[bool]:
        period = None if self.name is None else whole(options, self.name)
        return _periodic(period or self.period, n_layers)

    def agree(self, options: Options, windowed: Sequence[bool]) -> None:
        if self.name is not None:
            must_agree(self, self.name, options, windowed)

    def write(self, windowed: Sequence[bool], width: int | None) -> Mapping[str, Any]:
        periods = [self.period, *range(1, len(windowed) + 2)]
        fitting = [period for period in periods if _periodic(period, len(windowed)) == list(windowed)]
        named = {self.name: fitting[0]} if self.name is not None and width is not None and fitting else {}
        return {"sliding_window": width, **named}


@dataclass(frozen=True)
class Windows(PerLayer):
    """Who sees whom: in some layers a window, in the others all that came before.

    Attributes:
        rule: which layers see a window where ``layer_types`` does not say it.
        typed: whether the family knows ``layer_types``.
        both_ways: whether it knows ``use_bidirectional_attention``: all is seen, and a window of w tokens becomes w/2
            to either side (Gemma 3).
        encoder: whether that is so in any case (ModernBERT).
    """

    rule: WindowRule
    typed: bool = True
    both_ways: bool = False
    encoder: bool = False

    def defaults(self) -> Mapping[str, Any]:
        typed = {"layer_types": None} if self.typed else {}
        return {**self.rule.defaults(), **typed, **({BOTH_WAYS: False} if self.both_ways else {})}

    def windowed(self, options: Options, n_layers: int) -> list[bool]:
        """For each layer whether it sees a window.

        Raises:
            CheckpointError: ``layer_types`` that can't be built, or that want a window where there is none.
        """
        types = options["layer_types"] if self.typed else None
        width = self.rule.width(options)
        if types is None:
            return [width is not None and windowed for windowed in self.rule.windowed(options, n_layers)]
        if (
            not isinstance(types, list)
            or len(types) != n_layers
            or not all(is_one_of(kind, (FULL, SLIDING)) for kind in types)
        ):
            raise CheckpointError(
                f"layer_types must name each of the {n_layers} layers, {FULL} or {SLIDING}: others can't be built",
                value=types,
            )
        if width is None and SLIDING in types:
            raise CheckpointError(f"layers of type {SLIDING} need a sliding_window", value=types)
        windowed = [kind == SLIDING for kind in types]
        self.rule.agree(options, windowed)
        return windowed

    def read(self, options: Options, n_layers: int) -> list[Data]:
        windowed, width = self.windowed(options, n_layers), self.rule.width(options)
        both_ways = self.encoder or (self.both_ways and bool(options[BOTH_WAYS]))
        wide: Visibility = Full() if both_ways else Causal()
        near = wide
        if width is not None:
            near = Window(width // 2 + 1, both_ways=True) if both_ways else Window(width)
        return [{"visibility": to_data(near if is_windowed else wide)} for is_windowed in windowed]

    def write(self, layers: Sequence[Data]) -> Mapping[str, Any]:
        rules = [layer["visibility"] for layer in layers]
        windowed = [rule["kind"] == Window.kind for rule in rules]
        widths = {rule["width"] for rule in rules if rule["kind"] == Window.kind}
        if len(widths) > 1:
            raise CheckpointError("all windows must be of one width", value=sorted(widths))
        width = widths.pop() if widths else None
        said: dict[str, Any] = {}
        if self.both_ways:
            said[BOTH_WAYS] = any(rule["kind"] == Full.kind or rule.get("both_ways") for rule in rules)
        if width is not None and (self.encoder or said.get(BOTH_WAYS)):
            width = 2 * (width - 1)
        if self.typed:
            said["layer_types"] = [SLIDING if is_windowed else FULL for is_windowed in windowed]
        return {**said, **self.rule.write(windowed, width)}


def whole(options: Options, name: str, *, least: int = 1, most: int = LARGEST) -> int | None:
    """The value of an option that must be a whole number or null.

    Raises:
        CheckpointError: it is neither, or not between ``least`` and ``most``.
    """
    value = options[name]
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and least <= value <= most):
        return value
    raise CheckpointError(f"{name} must be a whole number from {least} to {most}, or null", value=value)


def must_agree(rule: WindowRule, name: str, options: Options, windowed: Sequence[bool]) -> None:
    """Check that a rule, where the config states it, means the layers that ``layer_types`` names.

    Raises:
        CheckpointError: it means others.
    """
    said = options.data.get(name)
    if said is not None and rule.windowed(options, len(windowed)) != list(windowed):
        raise CheckpointError(
            f"{name} and layer_types say different things about which layers see a window",
            value=said,
            remedy=f"Take {name} out of config.json if layer_types is right: `transformers` goes by it.",
        )


def _periodic(period: int, n_layers: int) -> list[bool]:
    return [(layer + 1) % period != 0 for layer in range(n_layers)]
