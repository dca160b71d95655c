"""Checkpoints of two small layers, so that a server can be asked thousands of times in minutes.

    python benchmarks/tiny.py FOLDER
    python benchmarks/tiny.py FOLDER classes

The second word is one of writer, translator, vectors, classes and masked.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from transpect.core import (
    AttentionConfig,
    CausalLM,
    Full,
    Head,
    MaskedLM,
    ModelConfig,
    Pooled,
    SequenceClass,
    StackConfig,
    Transformer,
)
from transpect.core.positions import Rope
from transpect.lm import LanguageModel
from transpect.text import Tokenizer, train_tokenizer

TEXTS = ["小猫爱吃鱼。小狗爱吃肉。", 'The quick brown fox jumps over the lazy dog. {}[]":,0123456789<>/_']
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}>"
HEADS: dict[str, Head] = {
    "writer": CausalLM(),
    "translator": CausalLM(),
    "vectors": Pooled(),
    "classes": SequenceClass(n_classes=3),
    "masked": MaskedLM(),
}


def save(folder: Path, kind: str = "writer") -> None:
    """Write one."""
    masks = {"mask": "[MASK]"} if kind == "masked" else {}
    trained = train_tokenizer("byte-bpe", TEXTS, 300, special_tokens=masks)
    tokenizer = Tokenizer(trained.backend, trained.special_tokens, chat_templates={"default": TEMPLATE})
    stack = StackConfig(n_layers=2, attention=AttentionConfig(n_heads=2), positions=Rope())
    both_ways = StackConfig(n_layers=2, attention=AttentionConfig(n_heads=2), positions=Rope(), visibility=Full())
    steps = (("self",), ("cross",), ("ffn",))
    crossing = StackConfig(n_layers=2, attention=AttentionConfig(n_heads=2), positions=Rope(), steps=steps)
    encoder = None if kind == "writer" else both_ways
    decoder = {"writer": stack, "translator": crossing}.get(kind)
    size, head = tokenizer.vocab_size, HEADS[kind]
    config = ModelConfig(size, d_model=16, context_length=512, encoder=encoder, decoder=decoder, head=head)
    model = Transformer(config)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    writes = decoder is not None
    LanguageModel(model.eval(), tokenizer, {"eos_token_id": tokenizer.eos_id} if writes else {}).save(folder)


if __name__ == "__main__":
    save(Path(sys.argv[1]), *sys.argv[2:3])
