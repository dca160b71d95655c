"""Passes of many rows give what the model gives, and a row gives the same whatever else is in them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from transpect.core import AttentionConfig, Causal, Mlp, ModelConfig, RMSNorm, StackConfig, Transformer, Window
from transpect.core.attention import QkNorm
from transpect.core.kernels import Naive
from transpect.core.positions import Alibi, Learned, NoPosition, Position, Rope
from transpect.quant import Int4, Int8, Plan, quantise_model
from transpect.runtime import Layout, Program, program

VOCAB, CAPACITY = 37, 700
PLAIN = Layout()
ATTENTION = {
    "mha": AttentionConfig(n_heads=4),
    "gqa": AttentionConfig(n_heads=6, n_kv_heads=2, head_dim=16),
    "mqa": AttentionConfig(n_heads=5, n_kv_heads=1, head_dim=6),
    "more heads than queries": AttentionConfig(n_heads=101, n_kv_heads=1, head_dim=2),
    "soft cap": AttentionConfig(n_heads=4, soft_cap=0.7, kernel=Naive()),
    "norm of heads": AttentionConfig(n_heads=4, qk_norm=QkNorm(RMSNorm()), clip=0.5),
    "scale, no biases": AttentionConfig(n_heads=2, scale=0.9, qkv_bias=False, out_bias=False),
}
POSITIONS: dict[str, Position] = {
    "none": NoPosition(),
    "learned": Learned(),
    "rope": Rope(),
    "rope interleaved": Rope(interleaved=True),
    "alibi": Alibi(),
}
PROMPTS = {2: list(range(33)), 0: [5, 9] * 150, 1: [7], 3: [3, 1, 4, 1, 5] * 8}
"""Of several segments of keys, of one, and one that few rows read."""


def built(position: Position, attention: AttentionConfig, **options: object) -> Transformer:
    tower = StackConfig(n_layers=2, attention=attention, positions=position, **options)  # type: ignore[arg-type]
    model = Transformer(ModelConfig(VOCAB, 32, CAPACITY, decoder=tower)).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model


@torch.inference_mode()
def check(model: Transformer, layout: Layout = PLAIN, tolerance: float = 2e-5) -> None:
    """Prompts, and a token after each."""
    own = Program(model, 4, CAPACITY, layout=layout)
    logits, hidden = own.begin(PROMPTS)
    for row, prompt in enumerate(PROMPTS.values()):
        ids = torch.tensor([prompt])
        assert torch.allclose(logits[row], model(ids)[0, -1].float(), atol=tolerance)
        assert torch.allclose(hidden[row], model.hidden(ids)[0, -1].float(), atol=tolerance)
    following, _ = own.read(torch.tensor([8, 8, 8, 8]), list(PROMPTS))
    for row, prompt in enumerate(PROMPTS.values()):
        assert torch.allclose(following[row], model(torch.tensor([[*prompt, 8]]))[0, -1].float(), atol=tolerance)


@pytest.mark.parametrize("position", POSITIONS)
def test_every_scheme_of_positions(position: str) -> None:
    check(built(POSITIONS[position], ATTENTION["gqa"]))


@pytest.mark.parametrize("attention", ATTENTION)
def test_every_shape_of_attention(attention: str) -> None:
    check(built(Rope(), ATTENTION[attention]))


@pytest.mark.parametrize("window", [1, 7, 64, 290])
def test_windows(window: int) -> None:
    check(built(Rope(), ATTENTION["gqa"], visibility=Causal() & Window(window)))


@pytest.mark.parametrize("block", [16, 100])
def test_keys_in_blocks(block: int) -> None:
    check(built(Alibi(), ATTENTION["gqa"]), Layout(block))


@pytest.mark.slow
def test_bfloat16_is_the_model_in_float32() -> None:
    """Weights are rounded, what is computed from them is not."""
    model = built(Rope(), ATTENTION["gqa"], ffn=Mlp(d_ff=40)).to(torch.bfloat16)
    expected = built(Rope(), ATTENTION["gqa"], ffn=Mlp(d_ff=40))
    expected.load_state_dict(model.state_dict())
    found, _ = Program(model, 4, CAPACITY).begin(PROMPTS)
    with torch.inference_mode():
        for row, prompt in enumerate(PROMPTS.values()):
            assert torch.allclose(found[row], expected(torch.tensor([prompt]))[0, -1], atol=2e-5)


@pytest.mark.parametrize("form", [None, Int8(), Int8(32), Int4(32)], ids=str)
def test_no_pass_and_no_neighbour_changes_a_bit(form: Int8 | Int4 | None, monkeypatch: pytest.MonkeyPatch) -> None:
    model = built(Rope(), ATTENTION["gqa"], visibility=Causal() & Window(70))
    if form is not None:
        quantise_model(model, Plan(form))
    together, _ = Program(model, 4, CAPACITY).begin(PROMPTS)
    monkeypatch.setattr(program, "MANY_ROWS", 48)
    for row, (which, prompt) in enumerate(PROMPTS.items()):
        alone, _ = Program(model, 4, CAPACITY).begin({which: prompt})
        assert torch.equal(together[row], alone[0])


def test_few_rows_and_many_multiply_int8_alike() -> None:
    """Sums of integers are exact, so both ways differ by attention alone: without it, by nothing."""
    tower = StackConfig(n_layers=2, attention=AttentionConfig(n_heads=2), steps=(("ffn",),))
    model = Transformer(ModelConfig(VOCAB, 80, 64, decoder=tower)).eval()
    quantise_model(model, Plan(Int8()))
    tokens = [token % VOCAB for token in range(40)]
    many, _ = Program(model, 1, 64).begin({0: tokens})
    few, _ = Program(model, 1, 64).read(torch.tensor(tokens), [0] * 40)
    assert torch.equal(many[0], few[-1])


def test_nan_is_not_lost() -> None:
    model = built(Rope(), ATTENTION["gqa"])
    with torch.no_grad():
        model.token.weight[3] = torch.nan
    _, hidden = Program(model, 2, 100).begin({0: [1, 2, 3] * 20, 1: [1, 2, 4] * 20})
    assert hidden.isnan().any(1).tolist() == [True, False]


def test_a_stack_grows_after_a_long_prompt() -> None:
    model = built(Rope(), ATTENTION["gqa"])
    own = Program(model, 1, 100)
    own.begin({0: list(range(36)) * 2})
    own.select([0, 0, 0])
    following, _ = own.read(torch.tensor([1, 2, 3]), [0, 1, 2])
    for row in range(3):
        ids = torch.tensor([[*range(36), *range(36), row + 1]])
        assert torch.allclose(following[row], model(ids)[0, -1], atol=2e-5)


def test_many_rows_have_whole_tiles() -> None:
    assert program.MANY_ROWS % 12 == 0 == replace(Program(built(Rope(), ATTENTION["mha"]), 1, 40)._many().room).rows % 6
