"""What heads say of whole texts is the same whoever reads them, and texts get the same whatever is read beside them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from transpect.base.errors import ConfigError
from transpect.core import Head, MaskedLM, Pooled, SequenceClass, TokenClass, Transformer, override
from transpect.core.heads import Transform
from transpect.decode import encoder, program_steps, whole_texts
from transpect.interop.families import bert, longformer

HEADS: dict[str, Head] = {
    "mean": Pooled(normalize=True),
    "first": Pooled("first", Transform()),
    "class": SequenceClass(3),
    "class of the last": SequenceClass(3, pool="last", transform=None),
    "token class": TokenClass(4, Transform("gelu")),
    "masks": MaskedLM(),
}
ROWS = [[4, 9, 11], [2], [7, 3, 9, 9, 20, 1, 5, 40, 31], [12, 9]]
SIZES = {"vocab_size": 53, "d_model": 32, "context_length": 40, "n_layers": 2, "n_heads": 4, "d_ff": 48}


def built(head: Head) -> Transformer:
    model = Transformer(replace(override(bert.TEMPLATE, SIZES.items()), head=head), seed=5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))
    return model


def said(model: Transformer, rows: list[list[int]], runtime: str, batch_size: int = 3) -> list[torch.Tensor]:
    match model.config.head:
        case Pooled():
            return list(encoder.pooled(model, rows, batch_size=batch_size, runtime=runtime))
        case SequenceClass():
            texts = [(row, [n % 2 for n in row]) for row in rows]
            return list(encoder.classes(model, texts, batch_size=batch_size, runtime=runtime))
        case TokenClass():
            return encoder.token_classes(model, rows, batch_size=batch_size, runtime=runtime)
    return [encoder.at_masks(model, row, 9, runtime=runtime) for row in rows if 9 in row]


@pytest.mark.parametrize("head", HEADS)
def test_heads_say_the_same_whoever_reads(head: str) -> None:
    model = built(HEADS[head])
    by_program, by_modules = said(model, ROWS, "program"), said(model, ROWS, "torch")
    for own, other in zip(by_program, by_modules, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-5)
    one_by_one = said(model, ROWS, "program", 1)
    assert all(map(torch.equal, one_by_one, by_program)) or "class" in head or "first" in head
    for own, other in zip(one_by_one, by_program, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-6, atol=1e-6)
    assert model.training, "as it was"


def test_who_reads_is_chosen_when_texts_come(monkeypatch: pytest.MonkeyPatch) -> None:
    model = built(HEADS["mean"])
    with whole_texts.reader_of(model, "auto", 3) as reader:
        assert type(reader) is whole_texts._Modules, "a small model is quick by any way"
    monkeypatch.setattr(whole_texts, "LARGE_ENOUGH", 1000)
    with whole_texts.reader_of(model, "auto", 3) as reader:
        assert type(reader) is whole_texts._ByProgram
    other = Transformer(replace(override(longformer.FAMILY.template, SIZES.items()), head=Pooled()))
    with whole_texts.reader_of(other, "auto", 3) as reader:
        assert type(reader) is whole_texts._Modules, "there is no program of it"
    with pytest.raises(ConfigError, match="GlobalSelfAttention"), whole_texts.reader_of(other, "program", 3):
        pass
    with pytest.raises(ConfigError, match="runtime must be"), whole_texts.reader_of(model, "jit", 3):
        pass
    assert program_steps.LARGE_ENOUGH == 1_000_000
