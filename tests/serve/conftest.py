"""Small models with every parameter drawn at random, that there are programs for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from transpect.core import (
    AttentionConfig,
    Causal,
    CausalLM,
    Full,
    ModelConfig,
    PrefixLM,
    StackConfig,
    Transformer,
    Window,
)
from transpect.core.positions import Alibi, Rope
from transpect.lm import LanguageModel
from transpect.serve import Engine, EngineConfig
from transpect.text import train_tokenizer

VOCAB = 61
LETTERS = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ.,!?"
SHAPES = {"decoder": Causal(), "window": Window(7), "prefix": PrefixLM(), "encoder-decoder": Causal()}


def random_model(shape: str = "decoder", *, context_length: int = 128) -> Transformer:
    """A model whose greedy outputs wander."""
    stack = StackConfig(
        n_layers=2,
        attention=AttentionConfig(n_heads=4, n_kv_heads=2),
        positions=Alibi() if shape == "window" else Rope(),
        visibility=SHAPES[shape],
    )
    config = ModelConfig(
        vocab_size=VOCAB, d_model=16, context_length=context_length, decoder=stack, head=CausalLM(tied=False)
    )
    if shape == "encoder-decoder":
        decoder = replace(stack, steps=(("self",), ("cross",), ("ffn",)))
        config = replace(config, encoder=replace(stack, visibility=Full()), decoder=decoder)
    model = Transformer(config).eval()
    generator = torch.Generator().manual_seed(len(shape))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(parameter + 0.1 * noise if noise.ndim == 1 else noise * (2.0 if "token" in name else 0.5))
    return model


@pytest.fixture(scope="session")
def models() -> Callable[[str], LanguageModel]:
    """A language model of each shape, decoded by a program wherever."""
    letters = train_tokenizer("char", [LETTERS])

    @cache
    def of(shape: str) -> LanguageModel:
        return LanguageModel(random_model(shape), letters, runtime="program")

    return of


@pytest.fixture(scope="session")
def tiny(models: Callable[[str], LanguageModel]) -> LanguageModel:
    return models("decoder")


@pytest.fixture
def engines() -> Iterator[Callable[..., Engine]]:
    """Makes engines that are stopped afterwards."""
    made: list[Engine] = []

    def make(lm: LanguageModel, **config: Any) -> Engine:
        made.append(Engine(lm, EngineConfig(**{"blocks": 200, "block": 4, "max_rows": 16, **config})))
        return made[-1]

    yield make
    for engine in made:
        engine.stop()
