"""Longformer where nobody says which tokens are global: a classifier of sequences marks the first, others mark none."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LongformerConfig, LongformerForMaskedLM, LongformerForSequenceClassification

from transpect.core import Tags
from transpect.interop import load_model

PAD = 1


@pytest.mark.parametrize("model", [LongformerForMaskedLM, LongformerForSequenceClassification])
@pytest.mark.parametrize("window", [4, 12, 64])
@torch.no_grad()
def test_without_a_word_about_global_tokens(model: Any, window: int, tmp_path: Path) -> None:
    config = LongformerConfig(
        vocab_size=97,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=60,
        max_position_embeddings=66,
        attention_window=window,
        num_labels=3,
    )
    theirs = model(config).eval()
    generator = torch.Generator().manual_seed(0)
    for parameter in theirs.parameters():
        parameter.normal_(0.0, 0.2, generator=generator)
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    ids = torch.randint(2, 97, (2, 29), generator=generator)
    ids[1, 20:] = PAD
    real = ids != PAD
    expected, out = theirs(ids, attention_mask=real.long()).logits, ours(ids, tags=Tags.padded(real))
    if expected.ndim == 3:
        expected, out = expected[real], out[real]
    assert (out - expected).abs().max() <= 1e-5 * max(1.0, float(expected.abs().max()))
    marked = ours(ids, tags=Tags.padded(real, is_global=torch.arange(29).expand(2, -1) == 17))
    assert (marked - ours(ids, tags=Tags.padded(real))).abs().max() > 1e-3
