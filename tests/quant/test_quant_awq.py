"""AWQ: scales that change nothing in the model in full, and bring what is rounded nearer."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.quant.test_quant_gptq import correlated, made, small, texts, weight_like
from torch import nn

from transpect.core import Mlp, Moe, Transformer
from transpect.core.blocks import Layer
from transpect.core.norms import OffsetRMSNorm, RMSNorm
from transpect.quant import Awq, Gptq, Int4, Int8, Plan, calibrated_model, quantise_model
from transpect.quant.folds import Fold, folds
from transpect.quant.grid import PLAIN, SEARCH, Search
from transpect.quant.rounding import rounded

IDS = torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(3))


def changed(name: str, **stack: Any) -> Transformer:
    """A small model in float64, with numbers where a new one has ones and zeros."""
    config = small(name)
    tower = next(iter(config.towers))
    model = Transformer(replace(config, **{tower: replace(config.towers[tower], **stack)}), seed=2).double().eval()
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.add_(0.1 * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(1)))
    return model


def models() -> dict[str, Transformer]:
    llama = next(iter(small("llama").towers.values()))
    return {
        "llama": changed("llama"),
        "groups of heads": changed("llama", attention=replace(llama.attention, n_kv_heads=2)),
        "experts": changed("llama", ffn=Moe(experts=3, ffn=llama.ffn)),
        "norms around 1": changed("llama", norm=RMSNorm(unit_offset=True)),
        "gpt2": changed("gpt2"),
        "relu": changed("gpt2", ffn=Mlp(d_ff=64, act="relu")),
        "after the norm": changed("bert-base"),
        "parallel": changed("gpt2", steps=(("self", "ffn"),)),
        "clipped": changed("llama", attention=replace(llama.attention, clip=0.3)),
    }


FOLDS = {"llama": 4, "groups of heads": 4, "experts": 6, "norms around 1": 4, "gpt2": 3, "relu": 4, "after the norm": 1}
FOLDS |= {"parallel": 3, "clipped": 3}


@pytest.mark.parametrize("name", FOLDS)
@torch.no_grad()
def test_folds_change_nothing_in_full(name: str) -> None:
    model = models()[name]
    before, draw = model(IDS), torch.Generator().manual_seed(5)
    layers = [layer for tower in model.towers.values() for layer in tower.stack.layers]  # type: ignore[union-attr]
    for layer in layers:
        assert isinstance(layer, Layer)
        found = list(folds(layer))
        assert len(found) == FOLDS[name]
        for fold in found:
            D = fold.readers[0].weight.shape[1]
            weight = fold.readers[0].weight.clone()
            scale = fold.shared(torch.rand(D, generator=draw, dtype=torch.float64) + 0.5)
            fold.apply(scale)
            assert torch.equal(fold.readers[0].weight, weight * scale)
    torch.testing.assert_close(model(IDS), before, rtol=1e-9, atol=1e-9)


def test_columns_with_large_inputs_get_nearer() -> None:
    X, W, format = correlated(512, 64, 1), weight_like(24, 64, 2), Int4(16)
    X[:, ::16] *= 6
    norm, reader = OffsetRMSNorm(64, 1e-6), nn.Linear(64, 24, bias=False)
    reader.weight = nn.Parameter(W.float())
    H = X.T @ X
    scale, ones = Awq().scale(Fold(norm, (reader,)), [format], H), torch.ones(64)
    assert scale[::16].min() > scale[1::16].max()

    def far(s: torch.Tensor, search: Search) -> float:
        importance = None if search == PLAIN else H.diagonal() / s.double().square()
        found = format.unpack(rounded(W.float() * s, format, importance, search)) / s
        return float(((found - W) @ X.T).square().sum())

    assert far(scale, PLAIN) < 0.6 * far(ones, PLAIN)
    assert far(scale, SEARCH) < 0.9 * far(ones, SEARCH)
    stored = Awq().stored(W, H, format)
    assert all(torch.equal(stored[key], value) for key, value in rounded(W, format, H.diagonal()).items())
    assert torch.equal(Awq().scale(Fold(norm, (reader,)), [format], torch.zeros(64, 64).double()), torch.ones(64))


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@torch.no_grad()
def test_a_model_is_nearer_than_by_rounding(name: str) -> None:
    full, windows, plan = made(name), texts(16, 16), Plan(Int4(group=16), {"down": Int8()})
    for norm in (module for module in full.modules() if isinstance(module, nn.LayerNorm | nn.RMSNorm)):
        norm.weight[::7] *= 8  # a few channels are large, as in trained models
    rounding = quantise_model(deepcopy(full), plan)
    far = {}
    for label, method in (("awq", Awq()), ("gptq", Gptq()), ("both", Awq(then=Gptq()))):
        model = calibrated_model(deepcopy(full), plan, windows, method=method)
        far[label] = sum((model.hidden(w) - full.hidden(w)).square().sum() for w in windows)
    plain = sum((rounding.hidden(w) - full.hidden(w)).square().sum() for w in windows)
    assert far["awq"] < 0.8 * plain and far["both"] < 0.8 * plain and far["both"] < far["awq"]
