"""Programs over weights in formats give what the modules' own definition gives, but for the rounding of activations."""

from __future__ import annotations

import pytest
import torch

from transpect.base.errors import ConfigError
from transpect.core import AttentionConfig, Glu, ModelConfig, StackConfig, Transformer
from transpect.core.heads import CausalLM
from transpect.decode import program_steps
from transpect.decode.stepper import Stepper
from transpect.quant import Format, GgufBlocks, Int4, Int8, Plan, quantise_model
from transpect.runtime import Program

FORMATS: dict[str, Format] = {
    "int8": Int8(),
    "int8 groups": Int8(group=32),
    "int8 wide groups": Int8(group=64),
    "int4": Int4(),
    "int4 wide": Int4(group=64),
    "int4 zero": Int4(symmetric=False),
    **{kind: GgufBlocks(kind) for kind in ("Q8_0", "Q4_0", "Q4_1")},  # type: ignore[arg-type]
}


def built(plan: Plan | None, *, tied: bool = True, d_ff: int = 128) -> Transformer:
    attention = AttentionConfig(n_heads=4, n_kv_heads=2, qkv_bias=True)
    stack = StackConfig(n_layers=2, attention=attention, ffn=Glu(d_ff=d_ff))
    model = Transformer(ModelConfig(40, 64, 32, decoder=stack, head=CausalLM(tied=tied))).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model if plan is None else quantise_model(model, plan)


def assert_near(model: Transformer, tolerance: float) -> None:
    """By prompts and steps; ``tolerance`` is a share of the logits' size."""
    program = Program(model, 3, 32)
    prompts = {0: [3, 1, 4, 1, 5], 1: [9], 2: [2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2]}
    logits, _ = program.begin(prompts)
    steps, _ = program.read(torch.tensor([11, 12]), [0, 2])
    expected = [model(torch.tensor([prompt]))[0, -1] for prompt in prompts.values()]
    expected += [model(torch.tensor([[*prompts[own], token]]))[0, -1] for own, token in ((0, 11), (2, 12))]
    wanted = torch.stack(expected).detach()
    assert float((torch.cat([logits, steps]) - wanted).abs().max()) <= tolerance * float(wanted.std())


@pytest.mark.parametrize("table", ["full", "same"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("name", FORMATS)
def test_a_program_over_a_format(name: str, tied: bool, table: str) -> None:
    keep = {"token": FORMATS[name], **({} if tied else {"head": FORMATS[name]})} if table == "same" else {}
    tolerance = 1e-3 if name == "int8" else 0.1  # activations in 16 bits, or in 8
    assert_near(built(Plan(FORMATS[name], keep), tied=tied), tolerance)


def test_formats_that_meet_in_one_layer() -> None:
    keep: dict[str, Format | None] = {
        "gate": Int4(),
        "value": Int8(group=32),
        "query": None,
        "down": GgufBlocks("Q8_0"),
    }
    assert_near(built(Plan(Int8(), keep)), 0.1)


def test_what_is_not_whole_blocks_is_refused() -> None:
    with pytest.raises(ConfigError, match="blocks of 32"):
        Program(built(Plan(None, {"down": Int8(group=16)}), d_ff=80), 1, 8)


def test_neighbours_change_no_bit() -> None:
    model = built(Plan(Int8(), {"gate": Int4(), "up": Int4()}))
    alone, together = Program(model, 1, 32), Program(model, 9, 32)
    expected, _ = alone.begin({0: [5, 7, 11]})
    found, _ = together.begin({n: [5, 7, 11] if n == 4 else [n, n + 1] for n in range(9)})
    assert torch.equal(found[4], expected[0])


def test_auto_counts_weights_in_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are buffers, and a model that is nearly all in a format would pass for a small one."""
    full = sum(parameter.numel() for parameter in built(None).parameters())
    monkeypatch.setattr(program_steps, "LARGE_ENOUGH", full // 2)
    first = Stepper(built(Plan(Int8(), {"token": Int8()})), [[1]], horizons=[2])
    with program_steps.steps_by("auto", first, 2) as chosen:
        assert isinstance(chosen, program_steps.ProgramSteps)
