"""The core against torch.nn: another implementation of the same papers, on random weights in float64."""

import pytest
import torch
from torch import Tensor, nn

from transpect.core import (
    AttentionConfig,
    Full,
    LayerNorm,
    Mlp,
    ModelConfig,
    Naive,
    Placement,
    Post,
    Pre,
    RMSNorm,
    StackConfig,
    Tags,
    Transformer,
)
from transpect.core.context import Context, Source
from transpect.core.positions import NoPosition

D, H, F, B, T, S = 48, 3, 60, 3, 7, 5
LENGTHS = torch.tensor([7, 4, 6])
SOURCE_LENGTHS = torch.tensor([5, 2, 3])


class Record(dict[str, Tensor]):
    """A tap that keeps everything by the last part of its name's tower."""

    def see(self, name: str, value: Tensor) -> None:
        self[name.split(".", 1)[1] if name.startswith(("encoder.", "decoder.")) else name] = value


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def randomized(module: nn.Module) -> nn.Module:
    module = module.double()
    with torch.no_grad():
        for index, parameter in enumerate(module.parameters()):
            parameter.copy_(numbers(*parameter.shape, seed=index) / 4)
    return module.eval()


def tower(placement: Placement, *, crossing: bool = False, bias: bool = True) -> nn.Module:
    """One layer without positions and final norm, which sees everything if it is an encoder's."""
    attention = AttentionConfig(n_heads=H, qkv_bias=bias, out_bias=bias, kernel=Naive())
    common = {
        "n_layers": 1,
        "attention": attention,
        "ffn": Mlp(d_ff=F, act="relu", bias=bias),
        "placement": placement,
        "norm": LayerNorm(bias=bias),
        "final_norm": False,
        "positions": NoPosition(),
    }
    encoder = StackConfig(visibility=Full(), **common)
    decoder = StackConfig(steps=(("self",), ("cross",), ("ffn",)), **common) if crossing else None
    model = Transformer(ModelConfig(vocab_size=97, d_model=D, context_length=T, encoder=encoder, decoder=decoder))
    return model.double().eval().towers["decoder" if crossing else "encoder"].stack


def fill_attention(ours: nn.Module, theirs: nn.MultiheadAttention) -> None:
    """Their in_proj holds query, key and value one after the other."""
    parts = [ours.query, ours.key, ours.value]
    for part, weight in zip(parts, theirs.in_proj_weight.chunk(3), strict=True):
        part.weight.copy_(weight)
    ours.out.weight.copy_(theirs.out_proj.weight)
    if theirs.in_proj_bias is not None:
        for part, bias in zip(parts, theirs.in_proj_bias.chunk(3), strict=True):
            part.bias.copy_(bias)
        ours.out.bias.copy_(theirs.out_proj.bias)


@torch.no_grad()
def fill(
    stack: nn.Module, layer: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer, placement: Placement
) -> None:
    steps = stack.layers[0].steps
    attentions = {"self": layer.self_attn} | ({"cross": layer.multihead_attn} if "cross" in steps else {})
    for name, attention in attentions.items():
        fill_attention(steps[name].branches[name].body, attention)
    ffn = steps["ffn"].branches["ffn"].body
    ffn.up.load_state_dict(layer.linear1.state_dict())
    ffn.down.load_state_dict(layer.linear2.state_dict())
    for index, (name, step) in enumerate(steps.items(), 1):
        norm = step.after if isinstance(placement, Post) else step.branches[name].before
        norm.load_state_dict(getattr(layer, f"norm{index}").state_dict())


def padded(lengths: Tensor, width: int, side: str) -> tuple[Tags, Tensor]:
    """Tags, and torch's mask, which is True where it hides."""
    columns = torch.arange(width)
    real = columns < lengths[:, None] if side == "right" else columns >= width - lengths[:, None]
    return Tags.padded(real), ~real


def assert_equal_at_tokens(ours: Tensor, theirs: Tensor, hidden: Tensor) -> None:
    torch.testing.assert_close(ours[~hidden], theirs[~hidden], atol=1e-12, rtol=1e-12)


PLACEMENTS = pytest.mark.parametrize("placement", [Post(), Pre()], ids=["post", "pre"])
SIDES = pytest.mark.parametrize("side", ["left", "right"])
BIASES = pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])


@PLACEMENTS
@SIDES
@BIASES
@torch.no_grad()
def test_an_encoder_layer(placement: Placement, side: str, bias: bool) -> None:
    layer = nn.TransformerEncoderLayer(
        D, H, F, dropout=0.0, batch_first=True, norm_first=isinstance(placement, Pre), bias=bias
    )
    stack = tower(placement, bias=bias)
    fill(stack, randomized(layer), placement)
    tags, hidden = padded(LENGTHS, T, side)
    x = numbers(B, T, D, seed=99)
    assert_equal_at_tokens(stack(x, Context(tags)), layer(x, src_key_padding_mask=hidden), hidden)


@PLACEMENTS
@SIDES
@torch.no_grad()
def test_a_decoder_layer(placement: Placement, side: str) -> None:
    """Source and target of different lengths, both padded."""
    layer = nn.TransformerDecoderLayer(D, H, F, dropout=0.0, batch_first=True, norm_first=isinstance(placement, Pre))
    stack = tower(placement, crossing=True)
    fill(stack, randomized(layer), placement)
    x, memory = numbers(B, T, D, seed=99), numbers(B, S, D, seed=98)
    # a left-padded row of torch's begins with tokens that see nothing, which there is NaN
    tags, hidden = padded(LENGTHS, T, "right")
    source_tags, source_hidden = padded(SOURCE_LENGTHS, S, side)
    theirs = layer(
        x,
        memory,
        tgt_mask=torch.ones(T, T, dtype=torch.bool).triu(1),
        tgt_key_padding_mask=hidden,
        memory_key_padding_mask=source_hidden,
    )
    assert_equal_at_tokens(stack(x, Context(tags, Source(memory, source_tags))), theirs, hidden)


@SIDES
@torch.no_grad()
def test_attention_weights_head_by_head(side: str) -> None:
    """Self- and cross-attention show the weights that torch averages unless told otherwise."""
    stack, record = tower(Post(), crossing=True), Record()
    theirs = {name: randomized(nn.MultiheadAttention(D, H, batch_first=True)) for name in ("self", "cross")}
    steps = stack.layers[0].steps
    for name, attention in theirs.items():
        fill_attention(steps[name].branches[name].body, attention)
    x, memory = numbers(B, T, D, seed=99), numbers(B, S, D, seed=98)
    tags, hidden = padded(LENGTHS, T, "right")
    source_tags, source_hidden = padded(SOURCE_LENGTHS, S, side)
    run = stack.prepare(Context(tags, Source(memory, source_tags), tap=record), x)[0]

    out = steps["self"].branches["self"].body(x, run)
    expected, weights = theirs["self"](
        x,
        x,
        x,
        key_padding_mask=hidden,
        attn_mask=torch.ones(T, T, dtype=torch.bool).triu(1),
        average_attn_weights=False,
    )
    assert_equal_at_tokens(out, expected, hidden)
    seen = record["0.self.attention_weights"]
    assert seen.shape == (B, H, T, T)
    assert_equal_at_tokens(seen.transpose(1, 2), weights.transpose(1, 2), hidden)

    out = steps["cross"].branches["cross"].body(x, run)
    expected, weights = theirs["cross"](x, memory, memory, key_padding_mask=source_hidden, average_attn_weights=False)
    assert_equal_at_tokens(out, expected, hidden)
    seen = record["0.cross.attention_weights"]
    assert seen.shape == (B, H, T, S)
    assert_equal_at_tokens(seen.transpose(1, 2), weights.transpose(1, 2), hidden)


@PLACEMENTS
def test_gradients_of_an_encoder_layer(placement: Placement) -> None:
    layer = nn.TransformerEncoderLayer(D, H, F, dropout=0.0, batch_first=True, norm_first=isinstance(placement, Pre))
    stack = tower(placement)
    fill(stack, randomized(layer), placement)
    tags, hidden = padded(LENGTHS, T, "right")
    x, direction = (
        numbers(B, T, D, seed=99).requires_grad_(),
        numbers(B, T, D, seed=97).masked_fill(hidden[..., None], 0),
    )
    layer.train()  # in evaluation torch takes a fused path without gradients
    layer(x, src_key_padding_mask=hidden).mul(direction).sum().backward()
    expected = x.grad
    x.grad = None
    stack(x, Context(tags)).mul(direction).sum().backward()
    torch.testing.assert_close(x.grad, expected, atol=1e-12, rtol=1e-10)
    body = stack.layers[0].steps["self"].branches["self"].body
    fused = torch.cat([body.query.weight.grad, body.key.weight.grad, body.value.weight.grad])
    torch.testing.assert_close(fused, layer.self_attn.in_proj_weight.grad, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("bias", [True, False])
@torch.no_grad()
def test_layer_norm_by_its_formula(bias: bool) -> None:
    norm = randomized(LayerNorm(eps=1e-3, bias=bias).build(D))
    x = numbers(B, T, D, seed=99)
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
    expected = (x - mean) / (variance + 1e-3).sqrt() * norm.weight + (norm.bias if bias else 0)
    torch.testing.assert_close(norm(x), expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("offset", [True, False])
@torch.no_grad()
def test_rms_norm_by_its_formula(offset: bool) -> None:
    norm = randomized(RMSNorm(eps=1e-3, unit_offset=offset).build(D))
    x = numbers(B, T, D, seed=99)
    expected = x / (x.square().mean(-1, keepdim=True) + 1e-3).sqrt() * (norm.weight + offset)
    torch.testing.assert_close(norm(x), expected, atol=1e-12, rtol=1e-12)
