"""One sentence on its way through a decoder, up to the next token: what stands where, as plain numbers.

Axes: B batch, T query, S key, D model, H heads, K key-value heads, E head, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transpect.base.errors import ConfigError
from transpect.cli.watching import watched
from transpect.core import Tags, Transformer
from transpect.core.attention import SelfAttention
from transpect.core.global_attention import GlobalSelfAttention
from transpect.core.model import Tower
from transpect.lm import LanguageModel

__all__ = ["AttentionMap", "Grid", "Guess", "Walk", "walk"]

Grid = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Guess:
    """A possible next token."""

    id: int
    token: str
    probability: float


@dataclass(frozen=True)
class AttentionMap:
    """One head of one layer.

    Attributes:
        layer: from 0.
        head: from 0.
        scores: [T][S] q·k·scale, before the mask and the softmax (and before a bias of the positions, if any).
        weights: [T][S] what the softmax makes of the visible scores; 0 for what a token does not see.
    """

    layer: int
    head: int
    scores: Grid
    weights: Grid


@dataclass(frozen=True)
class Walk:
    """What passes while a model reads a text.

    Attributes:
        ids: of the tokens read, a start token included.
        tokens: as a person reads them.
        embeddings: [T][D] what enters layer 0.
        attention: the head whose last token looks most decidedly at the tokens before it.
        norms: [N+1][T] the length ‖x‖ of each token's residual vector before layer 0 … N−1, and after the last.
        lens: [N+1] the best guesses if the head read the last token's residual vector there (nostalgebraist 2020, "the
            logit lens").
        guesses: the best next tokens, the most probable first.
    """

    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    embeddings: Grid
    attention: AttentionMap
    norms: Grid
    lens: tuple[tuple[Guess, ...], ...]
    guesses: tuple[Guess, ...]


def walk(lm: LanguageModel, text: str, *, k: int = 5) -> Walk:
    """Read ``text`` and note what passes; ``k`` guesses each.

    Raises:
        ConfigError: the model is no decoder.
        ContextLengthError: the text is too long for it.
    """
    model = lm.model
    if model.config.kind != "decoder":
        raise ConfigError("only a decoder can be walked through", value=model.config.kind)
    (request,) = lm.requests([text], max_new_tokens=1)
    ids = torch.tensor([list(request.prompt)], device=lm.device)
    tags = Tags.dense(*ids.shape, device=ids.device)
    if model.config.last.looks_ahead(prefix=True):  # the prompt is the prefix, as it is in decoding
        tags = Tags.of(tags.position, prefix=torch.ones_like(ids, dtype=torch.bool))
    seen = _Seen()
    with torch.inference_mode(), watched(model):
        logits = model(ids, tags=tags, tap=seen)
        streams = [seen[f"{layer}.input"] for layer in range(model.config.last.n_layers)] + [seen["output"]]
        through_head = [_read(model, stream, tags) for stream in streams]
    return Walk(
        ids=tuple(request.prompt),
        tokens=tuple(lm.tokenizer.tokens(request.prompt)),
        embeddings=_grid(streams[0][0]),
        attention=_most_decided(model, seen),
        norms=_grid(torch.stack([stream[0].norm(dim=-1) for stream in streams])),
        lens=tuple(_guesses(lm, at[0, -1], k) for at in through_head),
        guesses=_guesses(lm, logits[0, -1], k),
    )


class _Seen(dict[str, Tensor]):
    """A tap that keeps what it sees, by its name without the tower."""

    def see(self, name: str, value: Tensor) -> None:
        self[name.removeprefix("decoder.")] = value.detach().float()


def _read(model: Transformer, stream: Tensor, tags: Tags) -> Tensor:
    """Logits [B, T, V] from a residual stream [B, T, D] by the final norm and the head."""
    tower = model.towers["decoder"]
    assert isinstance(tower, Tower)
    normed = tower.stack.final_norm(stream.to(model.token.weight.dtype))
    logits: Tensor = model.head(normed, tags, model.token.weight)
    return logits


def _guesses(lm: LanguageModel, logits: Tensor, k: int) -> tuple[Guess, ...]:
    best = logits.double().softmax(-1).topk(min(k, logits.shape[-1]))
    ids = best.indices.tolist()
    return tuple(map(Guess, ids, lm.tokenizer.tokens(ids), best.values.tolist()))


def _most_decided(model: Transformer, seen: _Seen) -> AttentionMap:
    """The head whose last token gives the largest weight to one token between the first and itself.

    The first token is often a resting place for attention that has nothing to say, and the token itself is no news.
    """
    weights = torch.stack(
        [seen[f"{layer}.self.attention_weights"][0] for layer in range(model.config.last.n_layers)]
    )  # [N, H, T, S]
    last = weights[:, :, -1, :]
    between = last[:, :, 1:-1] if last.shape[-1] > 2 else last
    layer, head = divmod(int(between.amax(-1).argmax()), weights.shape[1])
    attention = [module for module in model.modules() if isinstance(module, SelfAttention | GlobalSelfAttention)][layer]
    query = seen[f"{layer}.self.query_heads"][0, head]  # [T, E]
    key = seen[f"{layer}.self.key_heads"][0, head // (attention.heads // attention.kv_heads)]  # [S, E]
    return AttentionMap(layer, head, _grid(query @ key.T * attention.scale), _grid(weights[layer, head]))


def _grid(values: Tensor) -> Grid:
    rows: Sequence[Sequence[float]] = values.tolist()
    return tuple(tuple(row) for row in rows)
