"""Steps of a program whose blocks another hands out: a row gets the same, bit for bit, whatever the others are."""

from __future__ import annotations

from random import Random

import pytest
import torch

from transpect.cache.block_pool import BlockPool, Table
from transpect.core import AttentionConfig, CausalLM, Glu, ModelConfig, StackConfig, Transformer
from transpect.quant import Format, GgufBlocks, Int4, Int8, Plan, quantise_model
from transpect.runtime import Layout, Program

FORMATS: dict[str, Format | None] = {
    "full": None,
    "int8": Int8(),
    "int8 groups": Int8(group=32),
    "int4": Int4(),
    "int4 zero": Int4(symmetric=False),
    "Q4_0": GgufBlocks("Q4_0"),
}
ROWS, LENGTH, BLOCK = 10, 21, 4


def built(form: Format | None, d_model: int = 64) -> Transformer:
    attention = AttentionConfig(n_heads=4, n_kv_heads=2)
    stack = StackConfig(n_layers=2, attention=attention, ffn=Glu(d_ff=128))
    model = Transformer(ModelConfig(40, d_model, 64, decoder=stack, head=CausalLM(tied=False))).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model if form is None else quantise_model(model, Plan(form, {"token": form, "head": form}))


@pytest.mark.parametrize(("form", "d_model"), [*((form, 64) for form in FORMATS), ("full", 24), ("full", 40)])
def test_a_row_depends_on_no_other(form: str, d_model: int) -> None:
    model = built(FORMATS[form], d_model)
    tokens = torch.randint(0, 40, (ROWS, LENGTH), generator=torch.Generator().manual_seed(2)).tolist()
    alone = []
    for own in tokens:
        program = Program(model, 1, 64)
        alone.append(torch.stack([program.read(torch.tensor([token]), [0])[0][0] for token in own]))
    pool = BlockPool(BLOCK, ROWS * 6)
    program, random = Program(model, ROWS, 64, layout=Layout(BLOCK), blocks=ROWS * 6), Random(3)
    for held in (*program._built.keys, *program._built.values):
        held[:] = float("nan")  # what lies in blocks that nobody has written is never read
    tables, found = [Table() for _ in tokens], [dict[int, torch.Tensor]() for _ in tokens]
    while any(table.length < LENGTH for table in tables):
        rows: list[tuple[int, int]] = []
        for own in random.sample(range(ROWS), random.randint(1, ROWS)):
            begin = tables[own].length
            pool.extend([tables[own]], [min(random.choice([0, 1, 1, 3, 9]), LENGTH - begin)])
            program.lend(own, tables[own], own)
            rows += [(own, place) for place in range(begin, tables[own].length)]
        if not rows:
            continue
        wanted = sorted(random.sample(range(len(rows)), random.choice([len(rows), random.randint(0, len(rows))])))
        owners, places = [own for own, _ in rows], [place for _, place in rows]
        logits, hidden = program.step([tokens[own][place] for own, place in rows], owners, places, wanted)
        assert len(hidden) == len(wanted)
        for row, one in zip(wanted, logits, strict=True):
            found[owners[row]][places[row]] = one
    assert sum(map(len, found)) > ROWS * LENGTH // 3
    for own, logits in zip(found, alone, strict=True):
        for place, one in own.items():
            assert torch.equal(one, logits[place])
