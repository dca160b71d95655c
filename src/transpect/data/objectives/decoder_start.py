"""What the decoder of an encoder–decoder reads before a target, in training as in writing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from transpect.base.errors import ConfigError
from transpect.data.batch import IGNORE
from transpect.data.objectives.base import filler
from transpect.data.ragged import Ints
from transpect.text.tokenizer import Tokenizer

Start = tuple[int, ...]
"""The id that a decoder begins with, and perhaps one that is forced to follow it."""


def check_start(start: Start | None) -> None:
    """Refuse what no target begins with.

    Raises:
        ConfigError: another number of ids than one or two.
    """
    if start is not None and not 1 <= len(start) <= 2:
        raise ConfigError(
            "start must be the id that a decoder begins with, and perhaps one that is forced to follow it", value=start
        )


def decoder_start_and_end(tokenizer: Tokenizer, start: Start | None) -> tuple[Start, int]:
    """What a target is read after, and what it ends with.

    Args:
        tokenizer: of the texts.
        start: ids; the last of them predicts the target's first token. None is the tokenizer's bos, or its pad where it
            has no bos. A run that begins with a checkpoint takes what that is written after (BART: eos, bos).
    """
    own = tokenizer.pad_id if tokenizer.bos_id is None else tokenizer.bos_id
    eos = tokenizer.eos_id
    assert own is not None and eos is not None
    return start or (own,), eos


def written_after(generation: Mapping[str, Any]) -> Start | None:
    """What the decoder of a model begins with by its ``generation_config.json``, where that says it."""
    first, forced = (generation.get(name) for name in ("decoder_start_token_id", "forced_bos_token_id"))
    if not isinstance(first, int):
        return None
    return (first, forced) if isinstance(forced, int) else (first,)


def decoder_generation(tokenizer: Tokenizer, start: Start | None) -> dict[str, int]:
    """Special ids for whoever writes with a model that was trained so."""
    (first, *forced), eos = decoder_start_and_end(tokenizer, start)
    ids = {"decoder_start_token_id": first, "eos_token_id": eos, "pad_token_id": filler(tokenizer)}
    return {**ids, "forced_bos_token_id": forced[0]} if forced else ids


def teacher_forced(start: Start, target: Ints, end: int) -> tuple[Ints, Ints]:
    """What a decoder reads for a target, and its labels: none for what is forced."""
    ids = np.concatenate([start, target])
    labels = np.concatenate([np.full(len(start) - 1, IGNORE, np.int64), target, [end]])
    return ids, labels
