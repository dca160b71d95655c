"""What a model needs to read rows outside training: ids that it has, one rectangle of them, a model that is at rest.

Axes: B batch, T query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from transpect.base.errors import GenerationError
from transpect.core import CausalLM, ModelConfig, Tags


def batched(
    rows: Sequence[Sequence[int]], device: torch.device, *, prefixes: Sequence[int] | None = None
) -> tuple[Tensor, Tags]:
    """Ids [B, T], padded on the left, and their tags.

    Args:
        rows: ids of each row.
        device: where the tensors go.
        prefixes: how many of each row's first tokens are its prefix.
    """
    longest = max(map(len, rows))
    ids = torch.tensor([[0] * (longest - len(row)) + list(row) for row in rows], dtype=torch.int64, device=device)
    if prefixes is None and all(len(row) == longest for row in rows):
        return ids, Tags.dense(len(rows), longest, device=device)
    lengths = torch.tensor([len(row) for row in rows], device=device)
    tags = Tags.padded(torch.arange(longest, device=device) >= longest - lengths[:, None])
    if prefixes is None:
        return ids, tags
    in_prefix = tags.position < torch.tensor(prefixes, device=device)[:, None]
    return ids, replace(tags, prefix=in_prefix & (tags.position >= 0))


def check_writes(config: ModelConfig) -> None:
    """Refuse a model that can't write text.

    Raises:
        GenerationError: no decoder, a head that gives no next token, or a decoder that looks ahead.
    """
    if config.decoder is None:
        raise GenerationError(
            "an encoder reads text and writes none", value=config.kind, remedy="Use a decoder or an encoder–decoder."
        )
    if not isinstance(config.head, CausalLM):
        raise GenerationError(
            "only a language-model head gives next tokens", value=config.head.kind, remedy="Use the head `causal_lm`."
        )
    if config.last.looks_ahead(prefix=False):
        raise GenerationError(
            "a decoder writes from left to right, so its tokens may not look ahead of themselves",
            value=f"visibility {config.last.visibility.kind}",
            remedy="Use `causal`, `window` or `prefix_lm`.",
        )


def check_vocabulary(name: str, ids: Sequence[int], vocab_size: int) -> None:
    """Refuse ids that the model has no row for.

    Args:
        name: what they are, for the message.
        ids: any number of them.
        vocab_size: V.

    Raises:
        GenerationError: an id below 0 or from V on; the first is named.
    """
    if len(ids) == 0 or (min(ids) >= 0 and max(ids) < vocab_size):
        return
    place, worst = next((place, i) for place, i in enumerate(ids) if not 0 <= i < vocab_size)
    raise GenerationError(
        f"each id of a {name} must be at least 0 and below the model's vocab_size={vocab_size}",
        value=f"{worst} at place {place}",
        remedy="Encode the text with the tokenizer of this model.",
    )


@contextmanager
def evaluating(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Without gradients and dropout; afterwards each module is in the mode that it was in.

    Not for use around a `yield`: both would reach the code that consumes the generator.
    """
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        with torch.inference_mode():
            yield
    finally:
        for module in training:
            module.training = True
