"""Parts of a model that several processes would keep: together they are the whole."""

from __future__ import annotations

import threading
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from transpect.base.errors import ConfigError
from transpect.core import AttentionConfig, Full, MaskedLM, ModelConfig, StackConfig, Transformer
from transpect.core.attention import QkNorm
from transpect.core.feedforward import Glu, Mlp
from transpect.core.kernels import Linear, Linformer, Performer
from transpect.core.moe import Moe
from transpect.core.norms import LayerNorm, Post, RMSNorm
from transpect.core.parts import check_parts, keep_part
from transpect.core.positions import Alibi, Kerple, Rope, T5Buckets, TransformerXL

ATTENTION = AttentionConfig(n_heads=8, n_kv_heads=4)
STACK = StackConfig(n_layers=2, attention=ATTENTION, positions=Rope())
CROSSING = (("self",), ("cross",), ("ffn",))
STACKS = {
    "gqa-mlp": STACK,
    "mha-no-bias": replace(STACK, attention=AttentionConfig(n_heads=8, qkv_bias=False, out_bias=False), ffn=Glu()),
    "parallel-post": replace(STACK, steps=(("self", "ffn"),), placement=Post(), norm=RMSNorm()),
    "moe": replace(STACK, ffn=Moe(4, ffn=Glu(d_ff=16))),
    "moe-mlp": replace(STACK, ffn=Moe(3, ffn=Mlp(d_ff=16))),
    "t5": replace(STACK, positions=T5Buckets()),
    "t5-per-layer": replace(STACK, positions=T5Buckets(per_layer=True)),
    "head-norm": replace(STACK, attention=replace(ATTENTION, qk_norm=QkNorm(RMSNorm()))),
    "each-head-norm": replace(STACK, attention=replace(ATTENTION, qk_norm=QkNorm(LayerNorm(), "each_head"))),
    "one-layer-for-all": replace(STACK, n_unique=1),
    "alibi": replace(STACK, positions=Alibi()),
    "kerple": replace(STACK, positions=Kerple()),
    "transformer-xl": replace(STACK, positions=TransformerXL()),
    "linformer": replace(STACK, visibility=Full(), attention=replace(ATTENTION, kernel=Linformer(4, share="none"))),
    "linformer-one": replace(STACK, visibility=Full(), attention=replace(ATTENTION, kernel=Linformer(4))),
    "linear": replace(STACK, attention=replace(ATTENTION, kernel=Linear())),
    "performer": replace(STACK, attention=replace(ATTENTION, kernel=Performer())),
    "encoder-decoder": replace(STACK, steps=CROSSING, cross=AttentionConfig(n_heads=8)),
}


def built(name: str) -> Transformer:
    stack = STACKS[name]
    towers: dict[str, Any] = {"decoder": stack}
    if stack.crosses:
        towers["encoder"] = replace(STACK, visibility=Full())
    elif stack.visibility == Full():
        towers = {"encoder": stack, "decoder": None, "head": MaskedLM()}
    model = Transformer(ModelConfig(vocab_size=17, d_model=32, context_length=32, **towers)).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model


class Sum:
    """The sum over threads that wait for one another."""

    def __init__(self, size: int) -> None:
        self._terms: list[Any] = [None] * size
        self._met = threading.Barrier(size, timeout=30)

    def of(self, rank: int) -> Callable[[Tensor], Tensor]:
        def total(term: Tensor) -> Tensor:
            self._terms[rank] = term
            self._met.wait()
            found = torch.stack(self._terms).sum(0)
            self._met.wait()
            return found

        return total


def together(model: Transformer, size: int, ask: Callable[[Transformer], Tensor]) -> list[Tensor]:
    """What each of so many parts gives."""
    total, found = Sum(size), [torch.empty(0)] * size

    def run(rank: int) -> None:
        part = deepcopy(model)
        keep_part(part, rank, size, total.of(rank))
        with torch.inference_mode():
            found[rank] = ask(part)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", STACKS)
def test_parts_are_the_whole(name: str, size: int) -> None:
    model, ids = built(name), torch.randint(17, (2, 9), generator=torch.Generator().manual_seed(2))

    def ask(own: Transformer) -> Tensor:
        return own(ids, source=own.encode(ids.flip(1))) if own.config.kind == "encoder-decoder" else own(ids)

    with torch.inference_mode():
        wanted = ask(model)
    first, *others = together(model, size, ask)
    torch.testing.assert_close(first, wanted, rtol=1e-5, atol=1e-5)
    assert all(torch.equal(own, first) for own in others), "what is between branches must stay alike, bit for bit"


def test_a_part_has_its_share_of_the_weights() -> None:
    model = built("gqa-mlp")
    whole = sum(own.numel() for own in model.towers.parameters())
    parts = [deepcopy(model) for _ in range(4)]
    for rank, part in enumerate(parts):
        keep_part(part, rank, 4, lambda term: term)
    held = [sum(own.numel() for own in part.towers.parameters()) for part in parts]
    assert max(held) < 0.3 * whole


@pytest.mark.parametrize(
    ("stack", "size", "rule"),
    [
        (STACK, 8, "key-value heads"),
        (STACK, 3, "key-value heads"),
        (replace(STACK, ffn=Mlp(d_ff=33)), 2, "inner features"),
        (replace(STACK, attention=replace(ATTENTION, qk_norm=QkNorm(RMSNorm(), "all_heads"))), 2, "all heads at once"),
    ],
)
def test_what_does_not_fall_into_parts_is_refused(stack: StackConfig, size: int, rule: str) -> None:
    config = ModelConfig(vocab_size=17, d_model=32, context_length=32, decoder=stack)
    with pytest.raises(ConfigError, match=rule):
        check_parts(config, size)
