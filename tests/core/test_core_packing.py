"""Real tokens become the same whether padding goes through the layers with them or not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from transpect.cache import DenseCache
from transpect.core import (
    AttentionConfig,
    Causal,
    CausalLM,
    Full,
    GlobalTokens,
    Linear,
    ModelConfig,
    StackConfig,
    Summaries,
    Tags,
    Transformer,
    Window,
)
from transpect.core.moe import Moe
from transpect.core.packing import Packed
from transpect.core.positions import NoPosition, Rope

STACK = StackConfig(2, AttentionConfig(4), visibility=Full(), positions=Rope())
LOCAL = Window(3, both_ways=True)
STACKS = {
    "plain": STACK,
    "global": replace(STACK, attention=AttentionConfig(4, global_projections=True), visibility=LOCAL | GlobalTokens()),
    "first-global": replace(STACK, visibility=LOCAL | GlobalTokens(), first_is_global=True),
    "linear": replace(STACK, attention=AttentionConfig(4, kernel=Linear()), positions=NoPosition()),
    "experts": replace(STACK, ffn=Moe(4)),
    "summaries": replace(STACK, visibility=LOCAL, summaries=Summaries(2)),
}
LENGTHS = (7, 2, 5, 1)


def batch(side: str) -> tuple[Tensor, Tags]:
    longest, lengths = max(LENGTHS), torch.tensor(LENGTHS)[:, None]
    columns = torch.arange(longest)
    real = columns < lengths if side == "right" else columns >= longest - lengths
    tags = Tags.padded(real, is_global=real & (columns % 3 == 0))
    return torch.randint(0, 19, real.shape, generator=torch.Generator().manual_seed(2)), tags


def built(stack: StackConfig, **towers: Any) -> Transformer:
    config = ModelConfig(19, 16, 32, **(towers or {"encoder": stack}), head=CausalLM())
    return Transformer(config, seed=5).double().eval()


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", STACKS)
def test_real_tokens_become_the_same(name: str, side: str) -> None:
    model, (ids, tags) = built(STACKS[name]), batch(side)
    padded, packed = (model.hidden(ids, tags=tags, packed=packed) for packed in (False, True))
    real = tags.position >= 0
    torch.testing.assert_close(packed[real], padded[real], rtol=0, atol=1e-12)
    if STACKS[name].summaries is None:
        assert not packed[~real].any()
    direction = torch.randn(packed[real].shape, dtype=torch.float64)
    grads = []
    for hidden in (padded, packed):
        model.zero_grad()
        (hidden[real] * direction).sum().backward()
        grads.append([None if own.grad is None else own.grad.clone() for own in model.parameters()])
    torch.testing.assert_close(*grads, rtol=0, atol=1e-10)


def test_a_decoder_reads_packed_prompts_and_sources_into_its_cache() -> None:
    causal = replace(STACK, visibility=Causal(), steps=(("self",), ("cross",), ("ffn",)))
    model, (ids, tags) = built(STACK, encoder=STACK, decoder=causal), batch("left")
    following, logits = ids[:, :1], []
    for packed in (False, True):
        source, cache = model.encode(ids, tags=tags, packed=packed), DenseCache()
        model(ids, tags=tags, source=source, cache=cache, packed=packed)
        logits.append(model(following, source=source, cache=cache))
    torch.testing.assert_close(*logits, rtol=0, atol=1e-12)


def test_what_is_token_by_token_sees_real_tokens_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (ids, tags) = built(STACK), batch("right")
    seen = list[torch.Size]()
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape[:2]))
    model.hidden(ids, tags=tags, packed=True)
    assert set(seen) == {(1, sum(LENGTHS))}


def test_packing_and_spreading_are_inverse() -> None:
    _, tags = batch("right")
    packed, x = Packed(tags), torch.randn(1, sum(LENGTHS), 3)
    spread = packed.spread(x)
    assert spread.shape == (len(LENGTHS), max(LENGTHS), 3)
    assert torch.equal(packed.pack(spread), x)
    assert torch.equal(spread[tags.position >= 0], x[0])
