"""Models of which a checkpoint holds only what an adapter adds to them."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from transpect.adapters import adapters_of, full_state
from transpect.base.errors import CheckpointError
from transpect.core import ModelConfig, Transformer
from transpect.interop.blank import blank
from transpect.interop.names import locate
from transpect.interop.peft.reading import read_adapter
from transpect.interop.peft.settings import read_settings
from transpect.interop.places import ADAPTER_CONFIG, is_adapter

__all__ = ["base_of", "described_in", "merged", "with_adapter"]


def base_of(folder: Path) -> str:
    """The name of the model that an adapter is for.

    Raises:
        CheckpointError: it says none.
    """
    base = read_settings(folder).base
    if base is None:
        raise CheckpointError(
            "an adapter that is opened alone must name its model as base_model_name_or_path",
            file=folder / ADAPTER_CONFIG,
            remedy="Open the model, and name the adapter beside it: adapter=DIR, or --adapter DIR.",
        )
    return base


def described_in(place: Path) -> Path:
    """Where the config and the tokenizer of a checkpoint lie: in it, or where its adapter's model is."""
    return locate(base_of(place)) if is_adapter(place) and not (place / "config.json").is_file() else place


def with_adapter(origin: Transformer, adapter: str | Path, config: ModelConfig | None = None) -> Transformer:
    """A model with an adapter merged into its weights; beside them, where these are packed in a few bits.

    Args:
        origin: the model that the adapter is for; it is used up.
        adapter: the directory, or a run that holds it.
        config: of the model with the adapter, where it has a head or a vocabulary of its own; None is that of
            ``origin``.

    Raises:
        CheckpointError: an adapter that is not for this model, or that can't be read.
    """
    model = origin if config is None else _rebuilt(origin, config)
    read_adapter(model, locate(adapter))
    empty = [name for name, weight in model.named_parameters() if weight.is_meta]
    if empty:
        raise CheckpointError("neither the model nor the adapter has these tensors", value=", ".join(empty[:5]))
    packed = any(not isinstance(layer.base, nn.Linear) for layer in adapters_of(model).values())
    return model.eval() if packed else merged(model).eval()


def merged(model: Transformer) -> Transformer:
    """The model without adapters that computes the same; the one with them is as it was, so that to unmerge is to go
    back to it. Weights that have no adapter are shared.

    Raises:
        ConfigError: an adapter beside a packed weight.
    """
    twin = blank(model.config)
    twin.load_state_dict(full_state(model), assign=True)
    return twin.train(model.training)


def _rebuilt(origin: Transformer, config: ModelConfig) -> Transformer:
    """A model of another head or vocabulary over the same modules; what only the adapter has is left empty."""
    model = blank(config)
    model.towers = origin.towers
    if origin.config.vocab_size == config.vocab_size:
        model.token = origin.token
    theirs, ours = origin.head.state_dict(), model.head.state_dict()
    if type(origin.head) is type(model.head) and {n: t.shape for n, t in theirs.items()} == {
        n: t.shape for n, t in ours.items()
    }:
        model.head = origin.head
    return model
