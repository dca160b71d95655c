"""An architecture of GGUF as a table: its metadata and tensor names, and what Hugging Face calls them, both ways.

In a tensor's name ``#`` stands for a layer's number and ``*`` for ``weight`` or ``bias``. A new architecture is a file
with such a table and a row in `transpect.interop.gguf.architectures`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from transpect.base.errors import CheckpointError
from transpect.interop.tensors import fill, matcher

__all__ = ["PLAIN", "Architecture", "Entry", "Fixed", "Key", "Layout", "Place", "Source", "short"]

Values = dict[str, Any]
REQUIRED: Final = "required"


@dataclass(frozen=True)
class Source:
    """A GGUF file, or one that is about to be written, as an architecture's table reads it.

    Attributes:
        name: of the architecture, which stands before its keys.
        metadata: the keys and values of the file.
        shapes: of its tensors.
        numbers: gives a (small) tensor's numbers.
    """

    name: str
    metadata: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    numbers: Callable[[str], npt.NDArray[np.float32]]

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """The value of ``{architecture}.{key}``; a number that was rounded to float32 in its shortest spelling.

        Raises:
            CheckpointError: it has another type.
        """
        value = self.metadata.get(f"{self.name}.{key}")
        if value is None:
            return default
        if isinstance(value, np.ndarray) and value.size and np.all(value == value.flat[0]):
            value = value.flat[0].item()  # one value a layer, the same for all
        if kind is float and isinstance(value, float):
            return short(value)
        if type(value) is not kind:
            what = "the same number for each layer" if isinstance(value, np.ndarray) else f"of the type {kind.__name__}"
            raise CheckpointError(f"{self.name}.{key} must be {what}", value=value)
        return value

    def need(self, key: str, kind: type) -> Any:
        """As `get`, for what must be there.

        Raises:
            CheckpointError: it is not, or has another type.
        """
        value = self.get(key, kind)
        if value is None:
            raise CheckpointError(f"the file must say {self.name}.{key}", remedy="Convert the model again.")
        return value


def short(value: float) -> float:
    """The shortest decimal that float32 rounds to ``value``: 1e-05 where the file holds 9.99999974737875e-06."""
    return float(str(np.float32(value)))


class Entry:
    """An option, or a few that belong together."""

    keys: tuple[str, ...]
    """What it reads, without the architecture's name before it."""

    def read(self, source: Source) -> Values:
        """Options of config.json.

        Raises:
            CheckpointError: a value that can't be read.
        """
        raise AssertionError("abstract")

    def write(self, config: Mapping[str, Any]) -> Values:
        """Metadata without the architecture's name; None values are left out.

        Raises:
            CheckpointError: the architecture has no word for it.
        """
        raise AssertionError("abstract")


@dataclass(frozen=True)
class Key(Entry):
    """One value.

    Attributes:
        name: in the metadata, after the architecture's name.
        option: in config.json.
        kind: int, float, bool or str.
        default: where the file says nothing; `REQUIRED` if it must.
    """

    name: str
    option: str
    kind: type = int
    default: Any = REQUIRED

    @property
    def keys(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.name,)

    def read(self, source: Source) -> Values:
        if self.default == REQUIRED:
            return {self.option: source.need(self.name, self.kind)}
        return {self.option: source.get(self.name, self.kind, self.default)}

    def write(self, config: Mapping[str, Any]) -> Values:
        value = config.get(self.option)
        return {self.name: float(value) if self.kind is float and value is not None else value}


@dataclass(frozen=True)
class Fixed(Entry):
    """Options that an architecture implies, so that its files do not state them."""

    options: Mapping[str, Any]
    keys: tuple[str, ...] = ()

    def read(self, source: Source) -> Values:
        return dict(self.options)

    def write(self, config: Mapping[str, Any]) -> Values:
        return {}


@dataclass(frozen=True)
class Layout:
    """How a tensor of the file differs from the one of the Hugging Face checkpoint.

    Attributes:
        heads: the option with the number of heads within which the rows of a rotary projection are interleaved: the
            file has row 2i of a head where Hugging Face has i, and 2i + 1 where it has i + d/2.
        shift: what the file has more, in each number.
        transposed: the file has [out, in] where Hugging Face has [in, out].
    """

    heads: str = ""
    shift: float = 0.0
    transposed: bool = False

    def order(self, rows: int, heads: int) -> npt.NDArray[np.int64]:
        """For each row of the Hugging Face tensor, the row of the file."""
        return np.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).reshape(-1)


PLAIN: Final = Layout()


@dataclass(frozen=True)
class Place:
    """A kind of tensor: its name in the file, and in the Hugging Face checkpoint."""

    theirs: str
    name: str
    layout: Layout = PLAIN


@dataclass(frozen=True)
class Architecture:
    """An architecture.

    Attributes:
        name: ``general.architecture``.
        model_type: of config.json.
        head: the entry of ``architectures`` in config.json.
        entries: the options.
        places: the tensors.
        void: keys that say nothing about what is computed, or repeat what others say.
        absorbed: tensors that an entry turns into options.
        causal: what ``attention.causal`` must be.
    """

    name: str
    model_type: str
    head: str
    entries: tuple[Entry, ...]
    places: tuple[Place, ...]
    void: frozenset[str] = frozenset()
    absorbed: frozenset[str] = frozenset()
    causal: bool = True

    def read(self, source: Source) -> Values:
        """The config.json of a file.

        Raises:
            CheckpointError: an unknown key, a missing one, a value that can't be read.
        """
        config: Values = {"model_type": self.model_type, "architectures": [self.head]}
        for entry in self.entries:
            config |= entry.read(source)
        known = {key for entry in self.entries for key in entry.keys} | self.void | COMMON_VOID
        known |= {key for key in NONE if source.get(key, int) == 0}
        prefix = f"{self.name}."
        unknown = {key for key in source.metadata if key.startswith(prefix)} - {prefix + key for key in known}
        if unknown:
            raise CheckpointError(
                f"the architecture {self.name} does not know these keys, which might change what is computed",
                value=", ".join(sorted(unknown)),
            )
        if source.get("attention.causal", bool, self.causal) is not self.causal:
            raise CheckpointError(f"{prefix}attention.causal must be {self.causal}", value=not self.causal)
        return config

    def write(self, config: Mapping[str, Any]) -> Values:
        """The metadata for a config.json.

        Raises:
            CheckpointError: the architecture has no word for something.
        """
        found = {key: value for entry in self.entries for key, value in entry.write(config).items()}
        found |= {} if self.causal else {"attention.causal": False}
        return {f"{self.name}.{key}": value for key, value in found.items() if value is not None}

    def name_of(self, theirs: str) -> tuple[str, Layout]:
        """The Hugging Face name of a tensor of the file; one that is not known keeps its own."""
        return _translate(theirs, ((place.theirs, place.name, place.layout) for place in self.places)) or (
            theirs,
            PLAIN,
        )

    def place_of(self, name: str) -> tuple[str, Layout] | None:
        """The file's name of a Hugging Face tensor; None where it has no place."""
        return _translate(name, ((place.name, place.theirs, place.layout) for place in self.places))


COMMON_VOID: Final = frozenset({"vocab_size", "attention.causal", "rope.scaling.finetuned", "tensor_data_layout"})
NONE: Final = ("expert_count", "expert_used_count")
"""Counts of what a dense model has none of; some writers say 0."""


def _translate(name: str, rows: Iterable[tuple[str, str, Layout]]) -> tuple[str, Layout] | None:
    for source, target, layout in rows:
        if match := matcher(source).fullmatch(name):
            return fill(target, match.groups()), layout
    return None
