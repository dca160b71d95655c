"""How near a changed model stays to the one that it was made from, on a text.

Axes: B windows at once, T tokens of a window, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transpect.base.checks import within
from transpect.base.errors import DataError
from transpect.core.model import Transformer
from transpect.quant.linear import Quantised


@dataclass(frozen=True)
class Agreement:
    """Attributes:
    n_tokens: that were predicted.
    perplexity_before, perplexity: of the model in full and of the changed one.
    kl: mean KL(before ‖ after) of the next token's distribution, in nats.
    top1: share of tokens at which both find the same token most probable.
    """

    n_tokens: int
    perplexity_before: float
    perplexity: float
    kl: float
    top1: float


@torch.no_grad()
def agreement(
    before: Transformer,
    after: Transformer,
    windows: Sequence[Tensor],
    *,
    after_window: Callable[[int], object] = lambda count: None,
) -> Agreement:
    """Compare two decoders on windows of ids [B, T], each read by itself and predicted from its second token on.

    Args:
        before, after: of one vocabulary, with logits [B, T, V].
        windows: of the text.
        after_window: is called with 1 after each.
    """
    sums = torch.zeros(4, dtype=torch.float64)
    n_tokens = 0
    for ids in windows:
        full, changed = (_logprobs(model, ids) for model in (before, after))  # [B, T−1, V]
        target = ids[:, 1:, None].to(full.device)
        sums += torch.stack(
            [
                -full.gather(-1, target).double().sum(),
                -changed.gather(-1, target).double().sum(),
                (full.exp() * (full - changed)).sum(-1).double().sum(),
                (full.argmax(-1) == changed.argmax(-1)).double().sum(),
            ]
        ).cpu()
        n_tokens += target.numel()
        after_window(1)
    loss_before, loss, kl, same = (sums / max(n_tokens, 1)).tolist()
    perplexity_before, perplexity = torch.tensor([loss_before, loss], dtype=torch.float64).exp().tolist()
    return Agreement(n_tokens, perplexity_before, perplexity, kl, same)


def windows_of(ids: Sequence[int], length: int, most: int | None = None, start: int = 0) -> list[Tensor]:
    """A text's ids in windows [1, T] of ``length``, one after another; the rest that fills none is left out.

    Args:
        ids: of the text.
        length: T, at least 2.
        most: tokens in all; None is the whole text.
        start: the first token.

    Raises:
        DataError: the text fills no window.
    """
    within("length", length, 2)
    taken = torch.as_tensor(ids[start:] if most is None else ids[start : start + most], dtype=torch.long)
    n_windows = len(taken) // length
    if n_windows == 0:
        raise DataError(f"a text must fill a window of {length} tokens", value=len(taken), remedy="Give a longer text.")
    return list(taken[: n_windows * length].view(n_windows, 1, length))


def bits_per_weight(model: Transformer, before: Transformer) -> float:
    """Bits in which all weights are stored, scales, norms and tables included, by the number of weights in full."""
    parts: list[Tensor] = list(model.parameters())
    parts += [part for module in model.modules() if isinstance(module, Quantised) for part in module.stored().values()]
    n_weights = sum(parameter.numel() for parameter in before.parameters())
    return 8 * sum(part.numel() * part.element_size() for part in parts) / n_weights


def _logprobs(model: Transformer, ids: Tensor) -> Tensor:
    device = next(iter(model.state_dict().values())).device
    logits: Tensor = model(ids.to(device))
    return logits[:, :-1].float().log_softmax(-1)
