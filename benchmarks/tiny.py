"""A checkpoint of two small layers, so that a server can be asked thousands of times in minutes.

python benchmarks/tiny.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from transpect.core import AttentionConfig, ModelConfig, StackConfig, Transformer
from transpect.core.positions import Rope
from transpect.lm import LanguageModel
from transpect.text import Tokenizer, train_tokenizer

TEXTS = ["小猫爱吃鱼。小狗爱吃肉。", 'The quick brown fox jumps over the lazy dog. {}[]":,0123456789<>/_']
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}>"


def save(folder: Path) -> None:
    """Write it."""
    trained = train_tokenizer("byte-bpe", TEXTS, 300)
    tokenizer = Tokenizer(trained.backend, trained.special_tokens, chat_templates={"default": TEMPLATE})
    stack = StackConfig(n_layers=2, attention=AttentionConfig(n_heads=2), positions=Rope())
    model = Transformer(ModelConfig(vocab_size=tokenizer.vocab_size, d_model=16, context_length=512, decoder=stack))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    LanguageModel(model.eval(), tokenizer, {"eos_token_id": tokenizer.eos_id}).save(folder)


if __name__ == "__main__":
    save(Path(sys.argv[1]))
