"""Small models with every parameter drawn at random, that there are programs for."""

from __future__ import annotations

import pytest
import torch

from transpect.core import AttentionConfig, CausalLM, ModelConfig, StackConfig, Transformer
from transpect.core.positions import Rope
from transpect.lm import LanguageModel
from transpect.text import train_tokenizer

VOCAB = 61


def random_model(seed: int = 0, context_length: int = 128) -> Transformer:
    """A decoder whose greedy outputs wander."""
    stack = StackConfig(n_layers=2, attention=AttentionConfig(n_heads=4, n_kv_heads=2), positions=Rope())
    config = ModelConfig(
        vocab_size=VOCAB, d_model=16, context_length=context_length, decoder=stack, head=CausalLM(tied=False)
    )
    model = Transformer(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(parameter + 0.1 * noise if noise.ndim == 1 else noise * (2.0 if "token" in name else 0.5))
    return model


@pytest.fixture(scope="session")
def tiny() -> LanguageModel:
    letters = train_tokenizer("char", ["abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ.,!?"])
    return LanguageModel(random_model(), letters)
