"""Classifiers on encoder–decoders against `transformers`: the decoder reads the source again, shifted right."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    BartConfig,
    BartForSequenceClassification,
    BigBirdPegasusConfig,
    BigBirdPegasusForSequenceClassification,
    MBartConfig,
    MBartForSequenceClassification,
)

from transpect.core import SequenceClass, Tags, Transformer
from transpect.interop import load_model, save_model

TOLERANCE = 1e-5
PAD, START, END = 96, 3, 2
OPTIONS: dict[str, Any] = {
    "vocab_size": 97,
    "d_model": 48,
    "max_position_embeddings": 64,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 60,
    "decoder_ffn_dim": 52,
    "decoder_start_token_id": START,
    "eos_token_id": END,
    "pad_token_id": PAD,
}
KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "bart": (BartConfig, BartForSequenceClassification, {"num_labels": 5}),
    "bart-three": (BartConfig, BartForSequenceClassification, {"scale_embedding": True}),
    "mbart": (MBartConfig, MBartForSequenceClassification, {"num_labels": 4}),
    "bigbird-pegasus": (
        BigBirdPegasusConfig,
        BigBirdPegasusForSequenceClassification,
        {"num_labels": 3, "block_size": 4, "num_random_blocks": 1},
    ),
}


def theirs(kind: str) -> nn.Module:
    config, model, options = KINDS[kind]
    net = model(config(**OPTIONS, **options, attn_implementation="eager")).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in net.parameters():
            start = float(parameter.ndim == 1 and parameter.flatten()[0] == 1)
            parameter.normal_(start, 0.15, generator=generator)
    return net


def rows() -> list[Tensor]:
    """Sources of several lengths, each with one end, at the end."""
    generator = torch.Generator().manual_seed(1)
    return [
        torch.cat([torch.randint(4, PAD, (length,), generator=generator), torch.tensor([END])])
        for length in (39, 36, 30)
    ]


def shifted(kind: str, row: Tensor) -> Tensor:
    start = row[-1:] if kind == "mbart" else torch.tensor([START])
    return torch.cat([start, row[:-1]])


def classify(net: Transformer, kind: str, sources: list[Tensor], side: str) -> Tensor:
    length = max(map(len, sources))
    ids, targets = torch.full((2, len(sources), length), PAD).unbind()
    real = torch.zeros(len(sources), length, dtype=torch.bool)
    for i, row in enumerate(sources):
        real[i, length - len(row) if side == "left" else 0 :][: len(row)] = True
        ids[i, real[i]], targets[i, real[i]] = row, shifted(kind, row)
    tags = Tags.padded(real)
    return net(targets, source=net.encode(ids, tags=tags), tags=tags)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_classes_are_theirs(kind: str, side: str, tmp_path: Path) -> None:
    other = theirs(kind)
    other.save_pretrained(tmp_path)
    net = load_model(tmp_path, kernel="naive")
    expected = torch.cat([other(row[None], attention_mask=torch.ones(1, len(row))).logits for row in rows()])
    assert expected.shape == (3, KINDS[kind][2].get("num_labels", 3))
    assert float(expected.std(0).min()) > 1e-2, "this comparison would not see anything"
    worst = float((classify(net, kind, rows(), side) - expected).abs().max())
    assert worst <= TOLERANCE, f"differs by {worst:.2e}"


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_theirs(kind: str, tmp_path: Path) -> None:
    other, row = theirs(kind), rows()[0]
    other.save_pretrained(tmp_path)
    net = load_model(tmp_path, kernel="naive")
    for out in (other(row[None]).logits, classify(net, kind, [row], "right")):
        (out * torch.linspace(-1, 1, out.shape[-1])).sum().backward()
    for mine, there in (
        (net.token.weight.grad, other.model.shared.weight.grad),
        (net.head.transform.dense.weight.grad, other.classification_head.dense.weight.grad),
        (net.head.project.bias.grad, other.classification_head.out_proj.bias.grad),
    ):
        assert float((mine - there).abs().max()) <= TOLERANCE * max(1.0, float(there.abs().max()))


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_there_and_back(kind: str, tmp_path: Path) -> None:
    other = theirs(kind)
    other.save_pretrained(tmp_path / "theirs")
    net = load_model(tmp_path / "theirs")
    ids = {"decoder_start_token_id": START, "eos_token_id": END, "pad_token_id": PAD}
    save_model(net, tmp_path / "ours", generation=ids)
    again, report = type(other).from_pretrained(
        tmp_path / "ours", attn_implementation="eager", output_loading_info=True
    )
    assert not any(report.values())
    assert all(torch.equal(again.state_dict()[name], value) for name, value in other.state_dict().items())
    assert torch.equal(again.eval()(rows()[0][None]).logits, other(rows()[0][None]).logits)
    back = load_model(tmp_path / "ours")
    assert isinstance(back.config.head, SequenceClass)
    assert all(torch.equal(back.state_dict()[name], value) for name, value in net.state_dict().items())
