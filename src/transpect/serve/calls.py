"""What a model that reads texts whole is asked: calls that wait together are read together, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from typing import Any, Final

import torch

from transpect.lm import LanguageModel
from transpect.lm.parts import is_single, texts_or_pairs

CALLS: Final = ("embed", "classify", "classify_tokens", "fill_mask")
"""The abilities of `LanguageModel` that an engine is asked for by name."""
MERGED: Final = ("embed", "classify", "classify_tokens")
"""Those that take several texts."""


@dataclass(eq=False)
class Call:
    """One question. Nobody waits for it any more where its future is cancelled.

    Attributes:
        name: of `CALLS`.
        inputs: one text or several.
        options: of the ability.
        future: holds the answer.
        over: whether there is one, or nobody waits for it.
    """

    name: str
    inputs: Any
    options: dict[str, Any]
    future: Future[Any] = field(default_factory=Future)
    over: bool = False
    _texts: list[tuple[int, Any]] | None = None
    _found: dict[int, Any] = field(default_factory=dict)

    @property
    def left(self) -> list[tuple[int, Any]]:
        """The texts that are still to be read, each with its place; those of about one length stand together.

        Raises:
            TranspectError: what is wrong with the inputs.
        """
        if self._texts is None:
            several = self._several() if self.name in MERGED else [self.inputs]
            self._texts = sorted(enumerate(several), key=lambda own: -_length(own[1]))
        return self._texts

    def take(self, part: Sequence[tuple[int, Any]], found: Iterable[Any]) -> None:
        """What was found of a part of the texts that are left; after the last one the future has the answer."""
        assert self._texts is not None, "they were looked at"
        self._found |= zip([place for place, _ in part], found, strict=True)
        gone = {place for place, _ in part}
        self._texts = [own for own in self._texts if own[0] not in gone]
        if not self._texts:
            found = [self._found[place] for place in range(len(self._found))]
            self.end(_joined(found) if self.name in MERGED else found[0])

    def end(self, found: Any) -> None:
        """The answer, or the error that is one, for whoever still waits; the first end counts."""
        over, self.over = self.over, True
        if not over and self.future.set_running_or_notify_cancel():
            if isinstance(found, BaseException):
                self.future.set_exception(found)
            else:
                self.future.set_result(found)

    def _several(self) -> list[Any]:
        if self.name != "embed":
            return list(texts_or_pairs(self.inputs))
        return [self.inputs] if is_single(self.inputs) else list(self.inputs)


def batched(calls: Sequence[Call]) -> list[Call]:
    """The first call, and those that can be answered with it."""
    first = calls[0]
    if first.name not in MERGED:
        return [first]
    return [call for call in calls if call.name == first.name and call.options == first.options]


def answer(lm: LanguageModel, calls: Sequence[Call], batch_size: int) -> None:
    """Read as many texts of calls that belong together as are read at a time, a text of each call in turn, so that one
    that has thousands lets the others go on. Where a text is wrong its call ends with the error, and no other.

    Args:
        lm: the model.
        calls: from `batched`; those that have ended are `Call.over`.
        batch_size: how many texts are read at a time.
    """
    for call in calls:
        if call.future.cancelled():
            call.end(None)
    parts = _parts([call for call in calls if not call.over], batch_size)
    if len(parts) > 1:
        texts = [text for part in parts.values() for _, text in part]
        with suppress(Exception):  # by itself each says what is wrong
            found = iter(_asked(lm, calls[0], texts))
            for call, part in parts.items():
                call.take(part, islice(found, len(part)))
            return
    for call, part in parts.items():
        try:
            call.take(part, _asked(lm, call, [text for _, text in part]))
        except Exception as error:
            call.end(error)


def _parts(calls: Sequence[Call], most: int) -> dict[Call, list[tuple[int, Any]]]:
    """So many texts at most, of each call in turn."""
    lefts = dict[Call, list[tuple[int, Any]]]()
    for call in calls:
        try:
            lefts[call] = call.left
            if not call.left:
                call.take([], [])
        except Exception as error:
            call.end(error)
    turns = zip_longest(*([(call, own) for own in left] for call, left in lefts.items()))
    parts = dict[Call, list[tuple[int, Any]]]()
    for call, own in islice((one for turn in turns for one in turn if one is not None), most):
        parts.setdefault(call, []).append(own)
    return parts


def _asked(lm: LanguageModel, call: Call, texts: list[Any]) -> Iterable[Any]:
    if call.name not in MERGED:
        return [getattr(lm, call.name)(text, **call.options) for text in texts]
    found: Iterable[Any] = getattr(lm, call.name)(texts, batch_size=len(texts), **call.options)
    return found


def _joined(found: list[Any]) -> Any:
    """Vectors as one tensor, as the ability itself gives them."""
    return torch.stack(found) if found and isinstance(found[0], torch.Tensor) else found


def _length(text: Any) -> int:
    """How long one is: in characters, or in ids."""
    return sum(map(len, text)) if isinstance(text, tuple) else len(text)
