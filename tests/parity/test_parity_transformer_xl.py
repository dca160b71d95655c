"""Transformer-XL's relative attention against XLNet's, which has it both ways and causal, with and without memory.

XLNet's weights are converted by hand, as it is no family here: its segments and its second stream are left aside.
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import XLNetConfig, XLNetLMHeadModel

from transpect.cache import SegmentMemory
from transpect.core import (
    AttentionConfig,
    Causal,
    CausalLM,
    Full,
    LayerNorm,
    Mlp,
    ModelConfig,
    Naive,
    Post,
    Sdpa,
    StackConfig,
    Tags,
    Transformer,
)
from transpect.core.kernels import Kernel
from transpect.core.positions import TransformerXL

TOLERANCE = 1e-5
SIZES: dict[str, Any] = {"vocab_size": 97, "d_model": 42, "n_layer": 3, "n_head": 3, "d_inner": 52}
IDS = torch.randint(0, 97, (3, 29), generator=torch.Generator().manual_seed(0))


def theirs(kind: str, **options: Any) -> XLNetLMHeadModel:
    model = XLNetLMHeadModel(XLNetConfig(**SIZES, attn_type=kind, layer_norm_eps=1e-3, **options)).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            norm = "norm.weight" in name
            parameter.normal_(1.0 if norm else 0.0, 0.2, generator=generator)
    return model


def ours(model: XLNetLMHeadModel, kernel: Kernel | None = None) -> Transformer:
    """The same weights here."""
    config = model.config
    stack = StackConfig(
        n_layers=config.n_layer,
        attention=AttentionConfig(config.n_head, qkv_bias=False, out_bias=False, kernel=kernel or Naive()),
        ffn=Mlp(d_ff=config.d_inner, act="gelu"),
        placement=Post(),
        norm=LayerNorm(eps=config.layer_norm_eps),
        positions=TransformerXL(),
        visibility=Full() if config.attn_type == "bi" else Causal(),
    )
    tower = "encoder" if config.attn_type == "bi" else "decoder"
    net = Transformer(
        ModelConfig(
            vocab_size=config.vocab_size,
            d_model=config.d_model,
            context_length=64,
            head=CausalLM(tied=True, bias=True),
            **{tower: stack},
        )
    )
    there = model.state_dict()
    state = {"token.weight": there["transformer.word_embedding.weight"], "head.project.bias": there["lm_loss.bias"]}
    for i in range(config.n_layer):
        layer, here = f"transformer.layer.{i}", f"towers.{tower}.stack.layers.{i}.steps"
        attention, body = f"{layer}.rel_attn", f"{here}.self.branches.self.body"
        for name, part in (("query", "q"), ("key", "k"), ("value", "v"), ("relation.project", "r")):
            state[f"{body}.{name}.weight"] = there[f"{attention}.{part}"].flatten(1).T
        state[f"{body}.out.weight"] = there[f"{attention}.o"].flatten(1)
        state[f"{body}.relation.u"] = there[f"{attention}.r_w_bias"]
        state[f"{body}.relation.v"] = there[f"{attention}.r_r_bias"]
        for kind in ("weight", "bias"):
            state[f"{here}.self.after.{kind}"] = there[f"{attention}.layer_norm.{kind}"]
            state[f"{here}.ffn.after.{kind}"] = there[f"{layer}.ff.layer_norm.{kind}"]
            state[f"{here}.ffn.branches.ffn.body.up.{kind}"] = there[f"{layer}.ff.layer_1.{kind}"]
            state[f"{here}.ffn.branches.ffn.body.down.{kind}"] = there[f"{layer}.ff.layer_2.{kind}"]
    net.load_state_dict(state)
    return net.eval()


def assert_close(one: Tensor, other: Tensor) -> None:
    assert one.shape == other.shape
    assert float(other.abs().max()) > 0.5, "this comparison would not see anything"
    worst = float((one - other).abs().max())
    assert worst <= TOLERANCE, f"differs by {worst:.2e}"


@pytest.mark.parametrize("kernel", [Naive(), Sdpa()], ids=lambda kernel: type(kernel).__name__)
@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("kind", ["bi", "uni"])
@torch.no_grad()
def test_logits(kind: str, side: str, kernel: Kernel) -> None:
    model = theirs(kind)
    columns, lengths = torch.arange(29), torch.tensor([29, 17, 23])[:, None]
    real = columns >= 29 - lengths if side == "left" else columns < lengths
    real = torch.ones_like(real) if side == "none" else real
    if kind == "bi":
        expected = model(IDS, attention_mask=real.float(), use_mems=False).logits[real]
    else:  # there, the causal kind takes no mask of several rows
        rows = [model(row[kept][None], use_mems=False).logits[0] for row, kept in zip(IDS, real, strict=True)]
        expected = torch.cat(rows)
    assert_close(ours(model, kernel)(IDS, tags=Tags.padded(real))[real], expected)


@pytest.mark.parametrize("kind", ["bi", "uni"])
def test_gradients(kind: str) -> None:
    model = theirs(kind)
    net = ours(model)
    direction = torch.randn(3, 29, 97, generator=torch.Generator().manual_seed(2))
    (model(IDS, use_mems=False).logits * direction).mean().backward()
    (net(IDS) * direction).mean().backward()
    body = net.towers["encoder" if kind == "bi" else "decoder"].stack.layers[1].steps["self"].branches["self"].body
    there = model.transformer.layer[1].rel_attn
    for mine, other in (
        (body.relation.project.weight.grad, there.r.grad.flatten(1).T),
        (body.relation.u.grad, there.r_w_bias.grad),
        (body.relation.v.grad, there.r_r_bias.grad),
        (body.query.weight.grad, there.q.grad.flatten(1).T),
    ):
        assert float(other.abs().max()) > 1e-6
        assert float((mine - other).abs().max()) <= TOLERANCE * max(1.0, float(other.abs().max()))


@pytest.mark.parametrize("limit", [64, 5], ids=["all", "5"])
@pytest.mark.parametrize("pieces", [(10, 10, 9), (1, 20, 8), (7,) * 4 + (1,)], ids=str)
@pytest.mark.parametrize("kind", ["bi", "uni"])
@torch.no_grad()
def test_segment_by_segment_with_memory(kind: str, pieces: tuple[int, ...], limit: int) -> None:
    """What is remembered, how far it reaches, and the distances to it are theirs."""
    model = theirs(kind, mem_len=limit)
    net, memory, mems = ours(model), SegmentMemory(limit), None
    for ids in IDS.split(list(pieces), 1):
        out = model(ids, mems=mems, use_mems=True)
        mems = out.mems
        assert_close(net(ids, memory=memory), out.logits)


@torch.no_grad()
def test_memory_matters() -> None:
    model = theirs("uni", mem_len=64)
    net, memory = ours(model), SegmentMemory(64)
    net(IDS[:, :10], memory=memory)
    assert not torch.allclose(net(IDS[:, 10:], memory=memory), net(IDS[:, 10:]), atol=1e-2)
