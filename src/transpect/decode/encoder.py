"""What a model that reads a text whole says of it: one vector, or what stands at its masks.

Axes: N texts, B batch, T position, D model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from transpect.base.errors import ContextLengthError, GenerationError
from transpect.core import CausalLM, Head, MaskedLM, Pooled, SequenceClass, Tags, TokenClass, Transformer

__all__ = ["at_masks", "pooled"]

# what to call instead, by the head that a model has
_ABILITIES: dict[type[Head], str] = {
    CausalLM: "It writes text: generate(), score() and next_token()",
    MaskedLM: "It predicts masked tokens: fill_mask()",
    Pooled: "It gives one vector for a text: embed()",
    SequenceClass: "It gives scores of classes for a text: model(ids)",
    TokenClass: "It gives scores of classes for each token: model(ids)",
}


@torch.no_grad()
def pooled(model: Transformer, rows: Sequence[Sequence[int]], *, batch_size: int) -> Tensor:
    """The vector of each row of ids, [N, D]; rows of about one length are read together, padded on the right.

    Raises:
        GenerationError: the model gives no vectors, or a row is empty.
        ContextLengthError: a row is longer than the model's context.
    """
    _need(model, Pooled, "embed")
    if batch_size < 1:
        raise GenerationError("batch_size must be at least 1", value=batch_size)
    if not all(rows):
        raise GenerationError("a text must have at least one token to be embedded", value="an empty text")
    for row in rows:
        _fit(model, row)
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    weight = model.token.weight
    out = torch.empty(len(rows), model.config.d_model, dtype=weight.dtype, device=weight.device)  # [N, D]
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        length = max(len(rows[i]) for i in chosen)
        ids = torch.zeros(len(chosen), length, dtype=torch.long)  # [B, T]
        real = torch.zeros(len(chosen), length, dtype=torch.bool)
        for at, i in enumerate(chosen):
            ids[at, : len(rows[i])] = torch.tensor(rows[i])
            real[at, : len(rows[i])] = True
        out[chosen] = model(ids.to(weight.device), tags=Tags.padded(real.to(weight.device)))
    return out


@torch.no_grad()
def at_masks(model: Transformer, ids: Sequence[int], mask_id: int | None) -> Tensor:
    """Logits at each mask of a row of ids, [masks, V].

    Raises:
        GenerationError: the model predicts no masked tokens, or there is no mask.
        ContextLengthError: the row is longer than the model's context.
    """
    _need(model, MaskedLM, "fill_mask")
    if mask_id is None:
        raise GenerationError("the tokenizer has no mask token, so there is nothing to fill")
    places = [place for place, number in enumerate(ids) if number == mask_id]
    if not places:
        raise GenerationError("there must be at least one mask token in the text", value=list(ids)[:20])
    _fit(model, ids)
    logits: Tensor = model(torch.tensor([list(ids)], device=model.token.weight.device))  # [1, T, V]
    return logits[0, places]


def _need(model: Transformer, head: type[Head], method: str) -> None:
    if not isinstance(model.config.head, head):
        ability = _ABILITIES.get(type(model.config.head), f"It is a {model.config.kind}")
        raise GenerationError(f"this model can't {method}", value=model.config.head.kind, remedy=f"{ability}.")


def _fit(model: Transformer, ids: Sequence[int]) -> None:
    if len(ids) > model.config.context_length:
        raise ContextLengthError(
            f"a text must fit into the model's context of {model.config.context_length} tokens",
            value=len(ids),
            remedy="Shorten it, or cut it: truncate=True.",
        )
