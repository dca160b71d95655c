"""What a format keeps of a matrix, over formats and shapes."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from torch import Tensor

from transpect.base.codec import from_data, to_data
from transpect.base.errors import ConfigError
from transpect.quant import Format, GgufBlocks, Int4, Int8, format_named
from transpect.quant.names import FORMATS
from transpect.quant.rounding import rounded

EVERY = [*FORMATS.values(), Int8(group=8), Int4(group=2), Int4(group=128, symmetric=False)]
BLOCKS = [format for format in EVERY if isinstance(format, GgufBlocks)]


def matrix(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 0.05


@pytest.fixture(params=EVERY, ids=str)
def format(request: pytest.FixtureRequest) -> Format:
    found: Format = request.param
    return found


def test_codes_come_back_exactly(format: Format) -> None:
    weight = matrix(5, 512)
    grid = format.fit(weight, None)
    codes = torch.randint(grid.low, grid.high + 1, weight.shape, generator=torch.Generator().manual_seed(1)).float()
    stored = format.pack(codes, grid)
    torch.testing.assert_close(format.unpack(stored), grid.values(codes), rtol=1e-6, atol=1e-8)
    like = format.empty(5, 512)
    assert {k: (v.shape, v.dtype) for k, v in stored.items()} == {k: (v.shape, v.dtype) for k, v in like.items()}


def test_bits_are_those_that_are_stored(format: Format) -> None:
    stored = rounded(matrix(8, 512), format)
    assert 8 * sum(buffer.nbytes for buffer in stored.values()) / (8 * 512) == format.bits(512)


def test_no_weight_is_far_off_and_the_search_beats_the_whole_range(format: Format) -> None:
    weight = matrix(16, 512)
    error = format.unpack(rounded(weight, format)) - weight
    grid = format.fit(weight, None)
    groups = weight.view(16, -1, format.group_of(512))
    reach = groups.abs().amax(-1, keepdim=True)
    assert (error.view(groups.shape).abs() <= 0.5 * reach).all()  # the farthest clip, with a step's half
    step = reach / ((grid.high - grid.low) // 2)
    plain = ((groups / step).round() * step - groups).square().mean()
    assert error.square().mean() <= plain * 1.02


def test_importance_moves_the_error_to_where_it_does_not_matter(format: Format) -> None:
    weight, importance = matrix(16, 512), torch.ones(512)
    importance[::4] = 100
    with_it, without = (format.unpack(rounded(weight, format, i)) for i in (importance, None))
    cost = [(importance * (found - weight).square()).sum() for found in (with_it, without)]
    assert cost[0] <= cost[1]


def test_zeros_and_one_value_are_exact_or_near(format: Format) -> None:
    assert not format.unpack(rounded(torch.zeros(2, 512), format)).any()
    for value in (0.5, -0.5):
        torch.testing.assert_close(
            format.unpack(rounded(torch.full((2, 512), value), format)), torch.full((2, 512), value), rtol=2e-3, atol=0
        )


@pytest.mark.parametrize("format", BLOCKS, ids=str)
def test_blocks_are_read_alike_by_the_package_gguf(format: GgufBlocks) -> None:
    stored = rounded(matrix(6, 768), format)["packed"]
    theirs = gguf.quants.dequantize(stored.numpy(), getattr(gguf.GGMLQuantizationType, format.block))
    np.testing.assert_array_equal(theirs, format.unpack({"packed": stored}).numpy())


@pytest.mark.parametrize("block", ["Q8_0", "Q4_0", "Q4_1"])
def test_what_the_package_gguf_writes_is_read_and_not_better(block: str) -> None:
    weight, format = matrix(6, 768), GgufBlocks(block)  # type: ignore[arg-type]
    theirs = format.unpack(
        {"packed": torch.from_numpy(gguf.quants.quantize(weight.numpy(), getattr(gguf.GGMLQuantizationType, block)))}
    )
    ours = format.unpack(rounded(weight, format))
    assert (theirs - weight).abs().max() < 0.03
    assert (ours - weight).square().sum() <= (theirs - weight).square().sum()


@pytest.mark.parametrize("block", ["Q4_K", "Q6_K"])
def test_any_bytes_are_read_as_the_package_gguf_reads_them(block: str) -> None:
    size = 144 if block == "Q4_K" else 210
    packed = torch.randint(0, 256, (40, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
    packed[:, 1 if block == "Q4_K" else 209] &= 0x3B  # a finite float16
    packed[:, 3] &= 0x3B
    theirs = gguf.quants.dequantize(packed.numpy(), getattr(gguf.GGMLQuantizationType, block))
    np.testing.assert_allclose(
        GgufBlocks(block).unpack({"packed": packed}).numpy(),  # type: ignore[arg-type]
        theirs,
        rtol=1e-6,
    )


def test_formats_have_names_and_survive_data(format: Format) -> None:
    assert from_data(Format, to_data(format)) == format
    for name, named in FORMATS.items():
        assert format_named(name.upper()) == named
    with pytest.raises(ConfigError, match="q8_0"):
        format_named("int3")


def test_bad_groups_are_refused() -> None:
    with pytest.raises(ConfigError, match="even"):
        Int4(group=3)
    with pytest.raises(ConfigError, match="at least"):
        Int8(group=0)
    with pytest.raises(ConfigError, match="blocks of 256"):
        GgufBlocks("Q4_K").check(576, "down")
