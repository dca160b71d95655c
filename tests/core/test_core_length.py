"""Who reads how long a sequence is says so: documents that share a row have one such tag together."""

from dataclasses import replace

import pytest
import torch

from transpect.core import (
    AttentionConfig,
    Blocks,
    Causal,
    EdgeBlocks,
    Full,
    GlobalTokens,
    ModelConfig,
    NormalInit,
    PrefixLM,
    RandomBlocks,
    SameSegment,
    StackConfig,
    Tags,
    Transformer,
    UpTo,
    Visibility,
    Window,
)
from transpect.core.positions import (
    Alibi,
    DynamicNTK,
    Learned,
    LinearScaling,
    LongRope,
    NoPosition,
    Position,
    RepeatedBlock,
    Rope,
    Sinusoidal,
    T5Buckets,
    TransformerXL,
    Yarn,
)

RULES: list[tuple[Visibility, bool]] = [
    (Full(), False),
    (Causal(), False),
    (Window(3, both_ways=True), False),
    (PrefixLM(), False),
    (SameSegment(), False),
    (GlobalTokens(), False),
    (Blocks(2), False),
    (UpTo(12), True),
    (EdgeBlocks(2), True),
    (RandomBlocks(2, 1, seed=0), True),
    (Causal() & (Blocks(2) | EdgeBlocks(2)), True),
]
POSITIONS: list[tuple[Position, bool]] = [
    (NoPosition(), False),
    (Learned(), False),
    (Sinusoidal(), False),
    (Alibi(), False),
    (T5Buckets(8, 20), False),
    (TransformerXL(), False),
    (Rope(), False),
    (Rope(scaling=LinearScaling(2.0)), False),
    (Rope(scaling=Yarn(2.0, 8)), False),
    (Rope(scaling=DynamicNTK(2.0, 8)), True),
    (Rope(scaling=LongRope((1.0,) * 4, (3.0,) * 4, 12, 2.0)), True),
    (RepeatedBlock(size=2, above=1), True),
]


@pytest.mark.parametrize(
    "stack",
    [{"visibility": rule, "expected": expected} for rule, expected in RULES]
    + [{"positions": scheme, "visibility": Full(), "expected": expected} for scheme, expected in POSITIONS],
    ids=str,
)
@torch.no_grad()
def test_only_those_that_say_so_feel_the_length(stack: dict[str, object]) -> None:
    expected = stack.pop("expected")
    config = StackConfig(n_layers=2, attention=AttentionConfig(n_heads=2), **stack)  # type: ignore[arg-type]
    assert config.reads_length == expected
    model = Transformer(ModelConfig(19, 16, 64, encoder=config, init=NormalInit(std=0.4))).eval()
    ids = torch.arange(10)[None]
    position = ids.clone()
    out = [model(ids, tags=Tags.of(position, horizon=torch.tensor([length]))) for length in (10, 20)]
    assert torch.equal(*out) != expected
    assert replace(config, visibility=Causal() & UpTo(3)).reads_length
