"""Mixture of experts: many feed-forwards, of which each token visits a few.

Axes: B batch, T query, D model, N experts, K experts that a token visits, V visits to one expert.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from transpect.base.checks import MANY, within
from transpect.base.errors import ConfigError
from transpect.core.attention import Pass
from transpect.core.feedforward import FeedForward, Glu
from transpect.core.recording import recording
from transpect.core.tags import Tags

ROUTER = "router_logits"


@dataclass(frozen=True)
class Moe(FeedForward, kind="moe"):
    """y = Σ_e p_e · expert_e(x) over the K largest of p = softmax(W x) (Shazeer et al. 2017, §2; Mixtral, §2.1).

    Attributes:
        experts: N.
        active: K.
        normalize: the K weights are divided by their sum (Mixtral).
        ffn: what each expert is.
    """

    experts: int
    active: int = 2
    normalize: bool = True
    ffn: FeedForward = field(default_factory=Glu)

    def __post_init__(self) -> None:
        within("Moe.active", self.active, 1, MANY)
        within("Moe.experts", self.experts, self.active, MANY)
        if isinstance(self.ffn, Moe):
            raise ConfigError("an expert can't be a mixture of experts itself", value=self.ffn.kind)

    @property
    def parts(self) -> int:
        return self.experts

    def width(self, d_model: int) -> int:
        return self.ffn.width(d_model)

    def resolved(self, d_model: int) -> Moe:
        return replace(self, ffn=self.ffn.resolved(d_model))

    def build(self, d_model: int) -> nn.Module:
        return MoeModule(self, d_model)


class MoeModule(nn.Module):
    def __init__(self, options: Moe, d_model: int) -> None:
        super().__init__()
        self.active = options.active
        self.router = nn.Linear(d_model, options.experts, bias=False)
        self.experts = nn.ModuleList(options.ffn.build(d_model) for _ in range(options.experts))
        self.weigh = _shares if options.normalize else _as_they_are

    def forward(self, x: Tensor, run: Pass) -> Tensor:
        logits = self.router(x)  # [B, T, N]
        run.context.tap.see(f"{run.layer}.ffn.{ROUTER}", logits)
        wide = torch.promote_types(x.dtype, torch.float32)
        weights, chosen = logits.softmax(-1, dtype=wide).topk(self.active, -1)  # [B, T, K]
        weights, chosen = self.weigh(weights).flatten(0, 1).to(x.dtype), chosen.flatten(0, 1)  # [B·T, K]
        tokens = x.flatten(0, 1)  # [B·T, D]
        # where no numbers exist nobody knows who is chosen
        ask = self.ask_all if recording() or x.is_meta else self.ask_chosen
        return ask(tokens, weights, chosen).view_as(x)

    def ask_chosen(self, tokens: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """[B·T, D] -> [B·T, D]: each expert that was chosen reads the tokens that chose it."""
        out = torch.zeros_like(tokens)
        for index in chosen.flatten().bincount().nonzero().flatten().tolist():
            token, place = torch.where(chosen == index)  # [V]
            answer = self.experts[index](tokens[token]) * weights[token, place, None]  # [V, D]
            out = out.index_add(0, token, answer)
        return out

    def ask_all(self, tokens: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """The same by N times the work: each expert reads all tokens, and counts 0 for those that did not choose it."""
        out = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            out = out + expert(tokens) * (weights * (chosen == index)).sum(-1, keepdim=True)
        return out


def _shares(weights: Tensor) -> Tensor:
    return weights / weights.sum(-1, keepdim=True)


def _as_they_are(weights: Tensor) -> Tensor:
    return weights


class RouterTap:
    """A tap that keeps what the routers of one pass said, for `balance_loss`."""

    def __init__(self) -> None:
        self.logits: list[Tensor] = []

    def see(self, name: str, value: Tensor) -> None:
        if re.fullmatch(rf"(\w+\.)?\d+\.ffn\.{ROUTER}", name):
            self.logits.append(value)


def balance_loss(logits: Sequence[Tensor], tags: Tags, active: int) -> Tensor:
    """N · Σ_e f_e · P_e: least where tokens spread evenly over the experts; to be added to a loss with a small weight.

    f_e is how many visits expert e gets a token, P_e its mean probability, over the real tokens of all layers
    (Fedus et al. 2021, eq. 4–6, with K visits a token as in Mixtral). 1·K where the spread is even.

    Args:
        logits: of each layer's router, [B, T, N], as `RouterTap` keeps them.
        tags: of the tokens; padding does not count.
        active: K.

    Raises:
        ConfigError: no router was seen.
    """
    if not logits:
        raise ConfigError("there are no router logits to balance", remedy="Use a model with a `moe` feed-forward.")
    real = tags.position >= 0  # [B, T]
    rows = torch.cat([layer[real] for layer in logits])  # [R, N]
    probabilities = rows.softmax(-1, dtype=torch.promote_types(rows.dtype, torch.float32))
    chosen = probabilities.topk(active, -1).indices  # [R, K]
    visits = nn.functional.one_hot(chosen, rows.shape[-1]).sum(1).to(probabilities).mean(0)  # [N]
    return rows.shape[-1] * (visits * probabilities.mean(0)).sum()
