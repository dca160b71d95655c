"""What a model that reads texts whole is asked: calls that wait together become one."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
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
    """One question.

    Attributes:
        name: of `CALLS`.
        inputs: one text or several.
        options: of the ability.
        future: holds the answer.
    """

    name: str
    inputs: Any
    options: dict[str, Any]
    future: Future[Any] = field(default_factory=Future)


def batched(calls: Sequence[Call]) -> list[Call]:
    """The first call, and those that can be answered with it."""
    first = calls[0]
    if first.name not in MERGED:
        return [first]
    return [call for call in calls if call.name == first.name and call.options == first.options]


def answer(lm: LanguageModel, calls: Sequence[Call], batch_size: int) -> None:
    """Answer calls that belong together, in passes of texts of about one length. Where one is wrong each is answered by
    itself, so that the others do not suffer.

    Args:
        lm: the model.
        calls: from `batched`.
        batch_size: how many texts are read at a time.
    """
    asking = [call for call in calls if call.future.set_running_or_notify_cancel()]
    if len(asking) > 1:
        try:
            several = [_several(call) for call in asking]
            found = iter(_asked(lm, asking[0], [text for own in several for text in own], batch_size))
        except Exception:
            for call in asking:
                answer_alone(lm, call, batch_size)
        else:
            for call, own in zip(asking, several, strict=True):
                call.future.set_result(_joined([next(found) for _ in own]))
    elif asking:
        answer_alone(lm, asking[0], batch_size)


def answer_alone(lm: LanguageModel, call: Call, batch_size: int) -> None:
    """Answer one call, or say what is wrong with it."""
    try:
        call.future.set_result(_asked(lm, call, call.inputs, batch_size))
    except Exception as error:
        call.future.set_exception(error)


def _joined(found: list[Any]) -> Any:
    """Vectors as one tensor, as the ability itself gives them."""
    return torch.stack(found) if found and isinstance(found[0], torch.Tensor) else found


def _several(call: Call) -> list[Any]:
    if call.name == "embed":
        return [call.inputs] if is_single(call.inputs) else list(call.inputs)
    return list(texts_or_pairs(call.inputs))


def _asked(lm: LanguageModel, call: Call, inputs: Any, batch_size: int) -> Any:
    size = {"batch_size": batch_size} if call.name in MERGED else {}
    return getattr(lm, call.name)(inputs, **{**size, **call.options})
