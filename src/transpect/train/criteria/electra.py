"""ELECTRA's loss: a generator's cross-entropy at masks, and whether the model tells what the generator put there
(Clark et al. 2020, §2 and §3.2).

Axes: B batch, T query, N masks, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, final

import torch
from torch import Tensor
from torch.nn import functional

from transpect.base.checks import above
from transpect.base.errors import ConfigError
from transpect.core.config import ModelConfig, override
from transpect.core.context import NO_MEMORY, Memory
from transpect.core.heads import TokenClass
from transpect.core.model import Transformer
from transpect.data.batch import IGNORE, Batch
from transpect.train.criteria.base import Counts, Criterion, Loss, Setting, Sums, check_loss_head
from transpect.train.loss import labelled, logits_of, summed_loss

GENERATOR: Final = "generator"
"""The module of a model in training that is its generator, and the directory in which it is saved."""


@final
@dataclass(frozen=True)
class ElectraLoss(Loss, kind="electra"):
    """mean over masks of −ln p_G(token) + λ · mean over tokens of the cross-entropy of "was it replaced".

    The generator is trained along. It has the model's own table of tokens, segments and positions, and the norm after
    them; its layers are as many, and narrower. What it draws at a mask is a sample of its distribution (Gumbel-max),
    through which no gradient goes; a token that it guesses right is not replaced.

    Attributes:
        generator: its width as a share of the model's, in whole heads.
        weight: λ.
    """

    generator: float = 0.25
    weight: float = 50.0

    def __post_init__(self) -> None:
        above("weight", self.weight, 0)
        if not 0 < self.generator <= 1:
            raise ConfigError("generator must be above 0 and at most 1", value=self.generator, remedy="Take 0.25.")

    def build(self, setting: Setting) -> ReplacedTokens:
        check_loss_head(setting.model, self.kind, TokenClass)
        model = setting.model
        if GENERATOR not in model._modules:
            config = generator_config(model.config, self.generator)
            generator = Transformer(config, seed=setting.recipe.train.seed + 1).to(model.device)
            share_embeddings(generator, model)
            model.add_module(GENERATOR, generator)
        return ReplacedTokens(self.generator, self.weight)


@final
@dataclass(frozen=True)
class ReplacedTokens(Criterion):
    """Two sums: over masks, and over tokens.

    Attributes:
        size: of the generator, as a share of the model.
        weight: λ.
    """

    size: float
    weight: float

    unit: ClassVar[str] = "masks"

    def counts(self, batch: Batch) -> Counts:
        return (batch.n_labels, batch.n_tokens)

    def training(self, model: Transformer, batch: Batch, memory: Memory = NO_MEMORY) -> Sums:
        generator = model.get_submodule(GENERATOR)
        assert isinstance(generator, Transformer)
        assert batch.noise is not None
        hidden, answers = labelled(generator, batch)
        logits = logits_of(generator, hidden, batch)  # [N, V]
        guessing = summed_loss(logits, answers)
        masks = batch.labels != IGNORE
        original = torch.where(masks, batch.labels, batch.ids)
        read = original.masked_scatter(masks, gumbel_max(logits.detach(), batch.noise, masks.sum(1)))
        replaced, real = read != original, batch.tags.position >= 0
        scores = model(read, tags=batch.tags, token_types=batch.token_types).squeeze(-1).float()  # [B, T]
        telling = functional.binary_cross_entropy_with_logits(scores[real], replaced[real].float(), reduction="sum")
        said = scores.detach() > 0
        measures = {
            "guessing": guessing.detach(),
            "telling": telling.detach(),
            "right": (said == replaced)[real].sum(),
            "found": (said & replaced).sum(),
            "replaced": replaced.sum(),
        }
        return Sums((guessing, self.weight * telling), measures)

    def summary(self, measures: Mapping[str, Tensor], counts: Counts) -> dict[str, Tensor]:
        masks, tokens = counts
        return {
            "generator_loss": measures["guessing"] / masks,
            "discriminator_loss": measures["telling"] / tokens,
            "accuracy": measures["right"] / tokens,
            "recall": measures["found"] / measures["replaced"].clamp(min=1),
        }

    def beside(self, config: ModelConfig) -> dict[str, ModelConfig]:
        return {GENERATOR: generator_config(config, self.size)}


def generator_config(config: ModelConfig, size: float) -> ModelConfig:
    """The generator of a model: as many layers, ``size`` of the width, over token vectors of the model's width."""
    stack, width = config.last, config.embedding.width(config.d_model)
    heads = max(1, round(stack.attention.n_heads * size))
    d_model = heads * stack.attention.width(config.d_model)
    norm = {"kind": "layernorm", "eps": 1e-12}
    return override(
        config,
        {
            "d_model": d_model,
            "n_heads": heads,
            "d_ff": max(1, round(stack.ffn.width(config.d_model) * size)),
            "embedding.factor": None if d_model == width else {"width": width},
            "head": {"kind": "masked_lm", "norm": norm},
        }.items(),
    )


def share_embeddings(generator: Transformer, model: Transformer) -> None:
    """Let a generator read by the model's own embeddings: the same modules, which stay the model's alone."""
    ours, theirs = generator.towers["encoder"], model.towers["encoder"]
    _borrow(generator, "token", model)
    _borrow(ours.get_submodule("embeddings"), "segment", theirs.get_submodule("embeddings"))
    _borrow(ours.get_submodule("embeddings"), "norm", theirs.get_submodule("embeddings"))
    if model.config.last.positions.embeds:
        _borrow(ours.get_submodule("stack"), "positions", theirs.get_submodule("stack"))


def _borrow(borrower: torch.nn.Module, name: str, owner: torch.nn.Module) -> None:
    """Use another module's part without owning it, so that its weights are saved and stepped once."""
    part = owner.get_submodule(name)
    del borrower._modules[name]
    object.__setattr__(borrower, name, part)


def gumbel_max(logits: Tensor, seeds: Tensor, counts: Tensor) -> Tensor:
    """A sample of softmax(logits) for each row, [N, V] -> [N]: argmax(logits + g), where g = −ln(−ln u).

    Args:
        logits: of all masks, row of the batch after row.
        seeds: [B], of the noise of each row of the batch.
        counts: [B], how many masks it has.
    """
    noise = []
    for seed, count in zip(seeds.tolist(), counts.tolist(), strict=True):
        generator = torch.Generator(logits.device).manual_seed(seed)
        noise.append(torch.rand(count, logits.shape[-1], generator=generator, device=logits.device))
    return (logits.float() - torch.log(-torch.log(torch.cat(noise)))).argmax(-1)
