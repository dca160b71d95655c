"""Layouts lose nothing, and put each number where its formula says."""

import pytest
import torch

from transpect.interop.layouts import Fused, Grouped, Layout, OneRow, Plain, Stacked, Transposed


@pytest.mark.parametrize(
    ("layout", "rows"),
    [
        (Plain(), (6,)),
        (Transposed(), (6,)),
        (OneRow(), (6,)),
        (Fused(), (6, 2, 2)),
        (Fused(Transposed()), (6, 4, 2)),
        (Grouped(1), (6, 2, 4)),
        (Grouped(2), (6, 2, 4)),
        (Grouped(6), (6, 6, 6)),
    ],
    ids=str,
)
@pytest.mark.parametrize("tail", [(5,), ()], ids=["matrix", "vector"])
def test_a_layout_is_reversible_and_knows_its_shapes(layout: Layout, rows: tuple[int, ...], tail: tuple[int]) -> None:
    shapes = [torch.Size((n, *tail)) for n in rows]
    ours = [torch.randn(shape) for shape in shapes]
    theirs = layout.pack(ours)
    assert [tensor.shape for tensor in theirs] == layout.shapes(shapes)
    back = layout.unpack(theirs, shapes)
    assert [tensor.shape for tensor in back] == shapes
    assert all(torch.equal(a, b) for a, b in zip(back, ours, strict=True))
    again = layout.pack(back)
    assert all(torch.equal(a, b) for a, b in zip(again, theirs, strict=True))


@pytest.mark.parametrize(("groups", "heads", "width"), [(3, 3, 2), (2, 6, 4), (1, 5, 2)])
def test_grouped_projections_stand_group_by_group(groups: int, heads: int, width: int) -> None:
    """Falcon's order: the queries of a key-value head, its key, its value; one query each is GPT-NeoX's."""
    query = torch.arange(heads * width)
    key, value = 100 + torch.arange(groups * width), 200 + torch.arange(groups * width)
    (whole,) = Grouped(groups).pack([query, key, value])
    each = heads // groups
    expected = []
    for g in range(groups):
        expected += range(g * each * width, (g + 1) * each * width)
        expected += [100 + g * width + i for i in range(width)] + [200 + g * width + i for i in range(width)]
    assert whole.tolist() == expected


@pytest.mark.parametrize(("experts", "rows"), [(1, (3,)), (4, (3,)), (3, (5, 5)), (2, (3, 5))])
def test_stacked_matrices_stand_expert_by_expert(experts: int, rows: tuple[int, ...]) -> None:
    ours = [torch.randn(n, 7) for _ in range(experts) for n in rows]
    shapes = [matrix.shape for matrix in ours]
    (whole,) = Stacked(experts).pack(ours)
    assert [whole.shape] == Stacked(experts).shapes(shapes) == [(experts, sum(rows), 7)]
    for index in range(experts):
        mine = ours[index * len(rows) : (index + 1) * len(rows)]
        assert torch.equal(whole[index], torch.cat(mine))
    back = Stacked(experts).unpack([whole], shapes)
    assert all(torch.equal(a, b) for a, b in zip(back, ours, strict=True))
