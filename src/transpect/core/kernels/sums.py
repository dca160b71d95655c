"""The engine of attention by feature maps: sums over keys instead of a softmax over them.

Axes: B batch, T query, S key, H heads, K key-value heads, G = H/K, m features, E head, c columns of a chunk.

    out_i = Σ_j (φ(q_i)·φ(k_j)) v_j / Σ_j φ(q_i)·φ(k_j)

for positive φ. Both sums are read off Σ_j φ(k_j) [v_j, 1]ᵀ, whose size no number of keys changes (Katharopoulos et al.
2020, §3.2).

No number is too large or too small, since features come as logarithms: each is divided by its largest value among the
keys that a query may see, and each query by what makes its largest term 1, so that a denominator is at least 1. These
factors cancel, so they are constants to autograd. In the causal form they are running ones: nothing of a later key
reaches a query, not even by a rounding.

Features exist for a chunk of columns at a time, and in training are computed again in the backward pass, so memory
grows with T·E and not with T·m.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

CHUNK = 128
"""c, a power of 2: within a chunk pairs are written down, O(c) a query; between chunks go sums, O(m·E) a chunk."""


class Features(Protocol):
    """A positive feature map φ, given by its logarithm, in the dtype that it is asked in."""

    def log_query(self, query: Tensor) -> Tensor:
        """log φ(q), plus any number of each query's own, which cancels: [B, H, T, E] -> [B, H, T, m]."""

    def log_key(self, key: Tensor) -> Tensor:
        """log φ(k): [B, K, S, E] -> [B, K, S, m]."""


class Sums(NamedTuple):
    """What is kept of keys, however many they are.

    Attributes:
        peak: [B, K, m], the largest log φ of each feature; the lowest number where there is no key.
        total: [B, K, m, E+1], Σ_j exp(log φ(k_j) − peak) [v_j, 1]ᵀ.
    """

    peak: Tensor
    total: Tensor


def everything(
    features: Features, query: Tensor, key: Tensor, value: Tensor, hidden: Tensor | None, past: Sums | None = None
) -> tuple[Tensor, Sums]:
    """Every query sees every key.

    Args:
        features: φ.
        query: [B, H, T, E].
        key: [B, K, S, E]; query head h uses key-value head h // (H/K).
        value: [B, K, S, E].
        hidden: [B, S] bool, keys that nobody sees; None is none of them.
        past: of keys that came before; every query sees them.

    Returns:
        the output [B, H, T, E], at least float32, 0 for a query that sees nothing; and the sums with all these keys.
    """
    sums = collect(features, key, value, hidden, past)
    return torch.cat([_piece(_read, features, part, *sums) for part in torch.split(query, CHUNK, 2)], 2), sums


def causal(
    features: Features, query: Tensor, key: Tensor, value: Tensor, hidden: Tensor | None, past: Sums | None = None
) -> tuple[Tensor, Sums]:
    """A query sees its own column and those before it; S ≥ T, and the last columns are those of the queries.

    Arguments and results are as for `everything`.
    """
    earlier = key.shape[2] - query.shape[2]
    (first, key), (first_value, value) = (x.tensor_split([earlier], 2) for x in (key, value))
    first_hidden, hidden = (None, None) if hidden is None else hidden.tensor_split([earlier], 1)
    sums, outs = collect(features, first, first_value, first_hidden, past), []
    for rows, part in zip(torch.split(query, CHUNK, 2), _parts(key, value, hidden), strict=True):
        out, *kept = _piece(_causal, features, rows, *part, *sums)
        sums = Sums(*kept)
        outs.append(out)
    return torch.cat(outs, 2), sums


def collect(features: Features, key: Tensor, value: Tensor, hidden: Tensor | None, past: Sums | None = None) -> Sums:
    """The sums of all keys; arguments as for `causal`."""
    sums = _nothing(features, key, value) if past is None else past
    for part in _parts(key, value, hidden):
        sums = _piece(_collect, features, *part, *sums)
    return sums


def wide(x: Tensor) -> Tensor:
    """At least float32."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _parts(key: Tensor, value: Tensor, hidden: Tensor | None) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Chunks of columns."""
    if not key.shape[2]:
        return iter(())
    # by `split`, whose gradient is put together once, where that of every slice is as long as the whole
    keys, values = torch.split(key, CHUNK, 2), torch.split(value, CHUNK, 2)
    masks = [None] * len(keys) if hidden is None else torch.split(hidden, CHUNK, 1)
    return zip(keys, values, masks, strict=True)


def _piece(function: Callable[..., Any], *args: Any) -> Any:
    """Call it, and keep nothing for the backward pass but its arguments."""
    if not torch.is_grad_enabled():
        return function(*args)
    return checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False)


def _read(features: Features, query: Tensor, peak: Tensor, total: Tensor) -> Tensor:
    rows = _rows(features, query, peak)
    rows = rows - _largest(rows, peak[:, :, None])
    return _divided(_numbers(rows, peak, total))


def _collect(
    features: Features, key: Tensor, value: Tensor, hidden: Tensor | None, peak: Tensor, total: Tensor
) -> Sums:
    return _added(*_keys(features, key, value, hidden), peak, total)


def _causal(
    features: Features, query: Tensor, key: Tensor, value: Tensor, hidden: Tensor | None, peak: Tensor, total: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`causal` of one chunk, and the sums behind it.

    Blocks of 1, 2, 4, … columns see the block before them: a product whose keys are all earlier than all its queries
    may divide features by what is largest among its keys.
    """
    key, value = _keys(features, key, value, hidden)
    behind = _added(key, value, peak, total)
    length = query.shape[2]
    lacking = (1 << (length - 1).bit_length()) - length
    if lacking:
        query, value = (functional.pad(x, (0, 0, 0, lacking)) for x in (query, value))
        key = functional.pad(key, (0, 0, 0, lacking), value=float("-inf"))
    rows = _rows(features, query, peak)
    running = torch.maximum(key.detach().cummax(2).values, peak[:, :, None])
    rows = rows - _largest(rows, running)
    out = _numbers(rows, peak, total)
    out = out + (rows + key[:, :, :, None]).exp().sum(-1, keepdim=True) * value[:, :, :, None]  # its own column
    block = 1
    while block < out.shape[2]:
        _add_block(out, rows, key, value, block)
        block *= 2
    return _divided(out)[:, :, :length], *behind


def _add_block(out: Tensor, rows: Tensor, key: Tensor, value: Tensor, block: int) -> None:
    """Let every second block of columns see all of the one before it."""
    pairs = (-1, 2, block)
    late = torch.unflatten(rows, 2, pairs)[:, :, :, 1].flatten(3, 4)  # [B, K, c/2b, b·G, m]
    early, values = (torch.unflatten(x, 2, pairs)[:, :, :, 0] for x in (key, value))  # [B, K, c/2b, b, …]
    peak = _peak(early)[..., None, :]
    weights = (late + peak).exp() @ (early - peak).exp().transpose(-1, -2)
    torch.unflatten(out, 2, pairs)[:, :, :, 1].add_(torch.unflatten(weights @ values, 3, (block, -1)))


def _rows(features: Features, query: Tensor, peak: Tensor) -> Tensor:
    """Logarithms of queries' features, the heads of a group side by side: [B, H, T, E] -> [B, K, T, G, m]."""
    return torch.unflatten(features.log_query(wide(query)), 1, (peak.shape[1], -1)).transpose(2, 3)


def _keys(features: Features, key: Tensor, value: Tensor, hidden: Tensor | None) -> tuple[Tensor, Tensor]:
    """Logarithms of keys' features [B, K, S, m], −inf where hidden, and [v, 1], [B, K, S, E+1]."""
    logs = features.log_key(wide(key))
    if hidden is not None:
        logs = logs.masked_fill(hidden[:, None, :, None], float("-inf"))
    return logs, functional.pad(wide(value), (0, 1), value=1.0)


def _nothing(features: Features, key: Tensor, value: Tensor) -> Sums:
    logs = features.log_key(wide(key[:, :, :0]))  # of no column, for its dtype and its m
    peak = logs.new_full((*logs.shape[:2], logs.shape[3]), _lowest(logs))
    return Sums(peak, peak.new_zeros(*peak.shape, value.shape[-1] + 1))


def _added(key: Tensor, value: Tensor, peak: Tensor, total: Tensor) -> Sums:
    higher = torch.maximum(peak, _peak(key))
    new = (key - higher[:, :, None]).exp().transpose(-1, -2) @ value
    return Sums(higher, total * (peak - higher).exp()[..., None] + new)


def _numbers(rows: Tensor, peak: Tensor, total: Tensor) -> Tensor:
    """Numerators and denominators of queries [B, K, T, G, m] over all that is kept: [B, K, T, G, E+1]."""
    out: Tensor = (rows + peak[:, :, None, None]).exp().flatten(2, 3) @ total
    return torch.unflatten(out, 2, rows.shape[2:4])


def _largest(rows: Tensor, peak: Tensor) -> Tensor:
    """[B, K, T, G, 1]: the logarithm of each query's largest term, where the features of what it sees reach ``peak``
    [B, K, T|1, m]. Of a query that sees nothing it is the lowest number: its terms are 1, times sums that are 0."""
    return (rows.detach() + peak[:, :, :, None]).amax(-1, keepdim=True)


def _peak(key: Tensor) -> Tensor:
    """[…, S, m] -> […, m]: the largest of each feature, a finite number."""
    return key.detach().amax(-2).clamp(min=_lowest(key))


def _lowest(like: Tensor) -> float:
    """Stands for −inf where differences must be numbers."""
    return torch.finfo(like.dtype).min / 8


def _divided(out: Tensor) -> Tensor:
    """Numerators over denominators: [B, K, T, G, E+1] -> [B, H, T, E]; 0 over 0 is 0."""
    above, below = out[..., :-1], out[..., -1:]
    return (above / below.masked_fill(below == 0, 1.0)).transpose(2, 3).flatten(1, 2)
