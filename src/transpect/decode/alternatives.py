"""How probable the chosen tokens were, and which others were probable there.

Axes: B batch, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from transpect.base.errors import TokenizerError
from transpect.decode.sampling import totalled
from transpect.text.token_bytes import token_bytes
from transpect.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from transpect.decode.params import GenerationParams
    from transpect.decode.request import Result

Top = tuple[tuple[int, float], ...]
"""Tokens and their log-probabilities in nats, by the model itself; the most probable first."""


def alternatives(logits: Tensor, params: Sequence[GenerationParams]) -> list[Top]:
    """The most probable tokens of each row, as many as it asks for, the best first; of equal ones the lower ids.

    Args:
        logits: by the model itself, [B, V].
        params: of the rows.
    """
    counts = [min(row.logprobs or 0, logits.shape[-1]) for row in params]
    asking = [row for row, count in enumerate(counts) if count]
    found: list[Top] = [()] * len(counts)
    if asking:
        wide, total = totalled(logits[asking] if len(asking) < len(counts) else logits)
        own = wide - total[:, None]
        # the stable sort decides between equals, which topk does not
        threshold = own.topk(max(counts), dim=-1).values[:, -1:]  # [A, 1]
        for row, values, most in zip(asking, own, threshold, strict=True):
            ids = (values >= most).nonzero()[:, 0]
            order = values[ids].sort(descending=True, stable=True)
            kept = slice(0, counts[row])
            found[row] = tuple(zip(ids[order.indices[kept]].tolist(), order.values[kept].tolist(), strict=True))
    return found


@dataclass(frozen=True)
class TokenLogprob:
    """A token as a person reads it, and its log-probability.

    Attributes:
        id: its id.
        token: its text; bytes that are no whole character are spelled ``\\xe5``.
        bytes: what it adds to the text; None for a special token, or where tokens have no bytes of their own.
        logprob: in nats, by the model itself, before temperature and filters.
        top: the most probable tokens in its place, the best first; they have none themselves.
    """

    id: int
    token: str
    bytes: bytes | None
    logprob: float
    top: tuple[TokenLogprob, ...] = ()


def described(result: Result, tokenizer: Tokenizer) -> list[TokenLogprob]:
    """Each token of an output with its log-probability and, where they were asked for, its alternatives.

    Args:
        result: of the tokenizer's model.
        tokenizer: says what the tokens are.
    """
    try:
        table: Sequence[bytes] = token_bytes(tokenizer)
    except TokenizerError:  # the text of a token depends on the next one
        table = ()

    def one(token: int, logprob: float, top: Top = ()) -> TokenLogprob:
        (shown,) = tokenizer.tokens([token])
        added = (table[token] or None) if token < len(table) else None
        return TokenLogprob(token, shown, added, logprob, tuple(one(*other) for other in top))

    tops = result.top_logprobs or [()] * len(result.ids)
    return [one(*place) for place in zip(result.ids, result.logprobs, tops, strict=True)]
