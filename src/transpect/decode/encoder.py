"""What a model that reads a text whole says of it: one vector, its class, those of its tokens, what its masks hide.

Axes: N texts, B batch, T position, D model, V vocabulary, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from transpect.base.errors import ContextLengthError, GenerationError
from transpect.core import (
    CausalLM,
    Head,
    MaskedLM,
    Pooled,
    SequenceClass,
    TokenClass,
    Transformer,
)
from transpect.decode.batching import check_vocabulary, evaluating
from transpect.decode.whole_texts import Text, reader_of

__all__ = ["Text", "at_masks", "classes", "pooled", "token_classes"]

_Head = TypeVar("_Head", bound=Head)

# what to call instead, by the head that a model has
_ABILITIES: dict[type[Head], str] = {
    CausalLM: "It writes text: generate(), score() and next_token()",
    MaskedLM: "It predicts masked tokens: fill_mask()",
    Pooled: "It gives one vector for a text: embed()",
    SequenceClass: "It tells the class of a text: classify()",
    TokenClass: "It tells the class of each token: classify_tokens()",
}


def pooled(model: Transformer, rows: Sequence[Sequence[int]], *, batch_size: int, runtime: str = "torch") -> Tensor:
    """The vector of each row of ids, [N, D].

    Args:
        model: with the head `Pooled`.
        rows: ids of each.
        batch_size: how many are read at a time.
        runtime: see `reader_of`.

    Raises:
        GenerationError: the model gives no vectors, a row is empty, or has an id outside the vocabulary.
        ContextLengthError: a row is longer than the model's context.
        ConfigError: a runtime that can't read with this model.
    """
    _need(model, Pooled, "embed")
    weight = model.token.weight
    out = torch.empty(len(rows), model.config.d_model, dtype=weight.dtype, device=weight.device)  # [N, D]
    for chosen, vectors, _ in _read(model, [(row, ()) for row in rows], batch_size, runtime):
        out[chosen] = vectors
    return out


def classes(
    model: Transformer,
    texts: Sequence[Text],
    *,
    batch_size: int,
    start: Callable[[], int] | None = None,
    runtime: str = "torch",
) -> Tensor:
    """Logits of the classes of each text, [N, C], in float32 or wider.

    Args:
        model: with the head `SequenceClass`.
        texts: ids and segments of each.
        batch_size: how many are read at a time.
        start: gives the token that the decoder of an encoder–decoder begins with; it reads the text again after that
            token, all but the last of it (BART, appendix of Lewis et al. 2020, and its implementations).
        runtime: see `reader_of`.

    Raises:
        GenerationError, ContextLengthError, ConfigError: as `pooled`.
    """
    head = _need(model, SequenceClass, "classify")
    out = torch.empty(len(texts), head.n_classes, dtype=_wide(model), device=model.device)
    for chosen, logits, _ in _read(model, texts, batch_size, runtime, start):
        out[chosen] = logits.to(out.dtype)
    return out


def token_classes(
    model: Transformer, rows: Sequence[Sequence[int]], *, batch_size: int, runtime: str = "torch"
) -> list[Tensor]:
    """Logits of the classes of each token, [T, C] for each row of ids, in float32 or wider.

    Raises:
        GenerationError, ContextLengthError, ConfigError: as `pooled`.
    """
    _need(model, TokenClass, "classify tokens")
    out = [torch.empty(0)] * len(rows)
    for chosen, logits, lengths in _read(model, [(row, ()) for row in rows], batch_size, runtime):
        for place, own, length in zip(chosen, logits.to(_wide(model)), lengths, strict=True):
            out[place] = own[:length]
    return out


def at_masks(model: Transformer, ids: Sequence[int], mask_id: int | None, *, runtime: str = "torch") -> Tensor:
    """Logits at each mask of a row of ids, [masks, V].

    Raises:
        GenerationError: the model predicts no masked tokens, or there is no mask.
        ContextLengthError: the row is longer than the model's context.
        ConfigError: a runtime that can't read with this model.
    """
    _need(model, MaskedLM, "fill_mask")
    if mask_id is None:
        raise GenerationError("the tokenizer has no mask token, so there is nothing to fill")
    places = [place for place, number in enumerate(ids) if number == mask_id]
    if not places:
        raise GenerationError("there must be at least one mask token in the text", value=list(ids)[:20])
    _fit(model, ids)
    check_vocabulary("text", ids, model.config.vocab_size)
    with reader_of(model, runtime, len(ids)) as reader, evaluating(list(model.modules())):
        return reader.said_at((ids, ()), places)


def _read(
    model: Transformer,
    texts: Sequence[Text],
    batch_size: int,
    runtime: str,
    start: Callable[[], int] | None = None,
) -> Iterator[tuple[list[int], Tensor, list[int]]]:
    """Which texts were read, what the head says of them, and how long they are.

    Of the texts in their order of length ``batch_size`` are taken at a time, and read in as many passes as are the
    quickest.
    """
    if batch_size < 1:
        raise GenerationError("batch_size must be at least 1", value=batch_size)
    for ids, _ in texts:
        if not ids:
            raise GenerationError("a text must have at least one token to be read", value="an empty text")
        _fit(model, ids)
        check_vocabulary("text", ids, model.config.vocab_size)
    lengths = [len(ids) for ids, _ in texts]
    order = sorted(range(len(texts)), key=lengths.__getitem__)
    modules = list(model.modules())
    with reader_of(model, runtime, max(lengths, default=0), start) as reader:
        for begin in range(0, len(order), batch_size):
            batch = order[begin : begin + batch_size]
            for group in reader.passes([lengths[i] for i in batch]):
                chosen = [batch[place] for place in group]
                with evaluating(modules):
                    said = reader.said([texts[i] for i in chosen])
                yield chosen, said, [lengths[i] for i in chosen]


def _wide(model: Transformer) -> torch.dtype:
    return torch.promote_types(model.token.weight.dtype, torch.float32)


def _need(model: Transformer, head: type[_Head], method: str) -> _Head:
    if not isinstance(model.config.head, head):
        ability = _ABILITIES.get(type(model.config.head), f"It is a {model.config.kind}")
        raise GenerationError(f"this model can't {method}", value=model.config.head.kind, remedy=f"{ability}.")
    return model.config.head


def _fit(model: Transformer, ids: Sequence[int]) -> None:
    if len(ids) > model.config.context_length:
        raise ContextLengthError(
            f"a text must fit into the model's context of {model.config.context_length} tokens",
            value=len(ids),
            remedy="Shorten it, or cut it: truncate=True.",
        )
