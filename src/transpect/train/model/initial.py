"""What a run begins with: drawn weights, or those of a checkpoint, with a new head or more tokens where asked for.

Axes: V vocabulary, W width of a token vector.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from transpect.base.errors import ConfigError
from transpect.core import CausalLM, Head, MaskedLM, ModelConfig, Transformer
from transpect.core.heads import Sizes
from transpect.core.initialization import initialize
from transpect.interop import load_model
from transpect.interop.blank import blank, shapes
from transpect.interop.quantising import FULL


@dataclass(frozen=True, eq=False)
class Initial:
    """A model before its first update.

    Attributes:
        model: on the CPU, in float32.
        remarks: which of its tensors come from no checkpoint, where others do.
    """

    model: Transformer
    remarks: tuple[str, ...] = ()


def initial_model(config: ModelConfig, path: str | None, seed: int, known: int | None = None) -> Initial:
    """The model of a config with drawn weights, or with those of a checkpoint.

    Args:
        config: of the model.
        path: the checkpoint, by any name that `transpect.interop.locate` knows; None draws all weights.
        seed: of what is drawn.
        known: see `fitted`.

    Raises:
        CheckpointError: a checkpoint that can't be read.
        ConfigError: its tensors don't fit the config.
    """
    if path is None:
        return Initial(Transformer(config, seed=seed))
    origin = load_model(path, dtype="float32", quant=FULL)
    model, new = fitted(origin, config, seed, known)
    remarks = [f"Not in {path}, so drawn anew: {', '.join(new)}"] if new else []
    first = origin.config.vocab_size if known is None else known
    if first < config.vocab_size:
        remarks.append(f"Tokens {first} to {config.vocab_size - 1} are new; their rows begin at the mean of the others")
    return Initial(model, tuple(remarks))


def fitted(
    origin: Transformer, config: ModelConfig, seed: int, known: int | None = None
) -> tuple[Transformer, list[str]]:
    """A model of ``config`` with the weights of ``origin``, each in memory of its own.

    The body must have the same tensors. A head of another kind, or with another number of classes, is drawn anew; its
    projection to the vocabulary, where it has one of its own, begins as the token table, and a layer before it that
    both heads have is kept (BERT's pooler). The vocabulary may grow: rows of new tokens, in the table and in the head,
    are the mean of the others, so that a new token's logit is at first the mean of the old logits.

    Args:
        origin: a model, in full.
        config: what its weights are to serve.
        seed: of what is drawn.
        known: the number of tokens that the checkpoint's tokenizer had, where tokens were added to it: rows from there
            on are new, also those that the checkpoint had in store. None: those that the checkpoint has not.

    Returns:
        the model, and the names of the tensors that were drawn.

    Raises:
        ConfigError: tensors that differ elsewhere.
    """
    if wrong := misfits(origin.config, config):
        raise ConfigError(
            "the config must leave the tensors of the checkpoint as they are, apart from the head",
            value=", ".join(wrong[:10]),
            remedy="Change only what has no tensors, such as dropout or the kernel, or start from drawn weights.",
        )
    theirs = origin.state_dict()
    first = min(known or origin.config.vocab_size, origin.config.vocab_size)
    model, kept = blank(config), {}
    for name, like in model.state_dict().items():
        if not name.startswith("head.") or _serves(name, origin.config.head, config.head, theirs, like):
            kept[name] = _grown(theirs[name], like, first if _by_token(name, config.head) else len(theirs[name]))
    new = [name for name in model.state_dict() if name not in kept]
    head = _drawn_head(config, seed, kept["token.weight"])
    model.load_state_dict(kept | {name: head[name] for name in new}, assign=True)
    return model, new


def misfits(origin: ModelConfig, config: ModelConfig) -> list[str]:
    """The tensors that a model of ``config`` can't take from one of ``origin``, by name; a new head needs none, and a
    vocabulary may grow."""
    one = shapes(replace(origin, vocab_size=max(origin.vocab_size, config.vocab_size)))
    other = shapes(config)
    lost = one.keys() - other.keys() if origin.head.kind == config.head.kind else set[str]()
    return [
        name
        for name in {**one, **other}
        if one.get(name) != other.get(name) and (name in lost or not name.startswith("head."))
    ]


def _drawn_head(config: ModelConfig, seed: int, table: Tensor) -> dict[str, Tensor]:
    """All tensors of a new head; what projects to the vocabulary begins as the table of tokens."""
    head = config.head.build(Sizes(config.d_model, config.vocab_size, config.embedding.token_width))
    initialize(head, config.init, {}, seed)
    drawn = {f"head.{name}": tensor for name, tensor in head.state_dict().items()}
    name = "head.project.weight"
    if name in drawn and isinstance(config.head, CausalLM | MaskedLM):
        drawn[name] = table.clone(memory_format=torch.contiguous_format)
    return drawn


def _serves(name: str, before: Head, now: Head, theirs: dict[str, Tensor], like: Tensor) -> bool:
    """Whether a tensor of one head is that of another, too."""
    if name not in theirs or (theirs[name].shape != like.shape and not _by_token(name, now)):
        return False
    shared = name.startswith("head.transform.") and getattr(before, "transform", None) == getattr(
        now, "transform", None
    )
    return shared or before.kind == now.kind


def _by_token(name: str, head: Head) -> bool:
    """Whether a tensor has a row for each token."""
    return name == "token.weight" or (name.startswith("head.project.") and isinstance(head, CausalLM | MaskedLM))


def _grown(rows: Tensor, like: Tensor, first: int) -> Tensor:
    """The rows, those from ``first`` on as the mean of those before: [V, …] or fewer -> [V, …]."""
    out = torch.empty(like.shape, dtype=rows.dtype)
    out[:first] = rows[:first]
    if first < len(out):
        out[first:] = rows[:first].mean(0)
    return out
