"""An encoder program gives what the model gives, and a text the same whatever is read beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from transpect.base.errors import ConfigError
from transpect.core import (
    AttentionConfig,
    EmbeddingConfig,
    Full,
    Glu,
    Mlp,
    ModelConfig,
    Pooled,
    RMSNorm,
    StackConfig,
    Transformer,
    Window,
    override,
)
from transpect.core.attention import QkNorm
from transpect.core.embeddings import Factor
from transpect.core.kernels import Naive
from transpect.core.norms import BranchEnd, Sandwich
from transpect.core.positions import Alibi, Learned, Rope, Sinusoidal, T5Buckets, TransformerXL
from transpect.core.stack_config import OtherLayers
from transpect.interop.families import bert, distilbert, electra, longformer, modernbert, roberta
from transpect.quant import Int4, Int8, Plan, quantise_model
from transpect.runtime.encoder import POOLS, EncoderLoan, EncoderProgram, Text, passes
from transpect.runtime.numeric import activate_all

VOCAB, CONTEXT = 53, 600
SIZES = {"vocab_size": VOCAB, "d_model": 32, "context_length": CONTEXT, "n_layers": 2, "n_heads": 4, "d_ff": 50}


def small(template: ModelConfig, **changes: object) -> ModelConfig:
    return override(template, [*SIZES.items(), *changes.items()])


def with_tower(config: ModelConfig, **changes: Any) -> ModelConfig:
    return config.map_stacks(**changes)


def stack(**options: object) -> ModelConfig:
    tower = StackConfig(**{"n_layers": 2, "attention": AttentionConfig(4), "visibility": Full(), **options})  # type: ignore[arg-type]
    return ModelConfig(VOCAB, 32, CONTEXT, encoder=tower, head=Pooled())


FAMILIES = {
    "bert": small(bert.TEMPLATE),
    "roberta": small(roberta.FAMILIES[0].template),
    "distilbert": small(distilbert.FAMILY.template),
    "electra": replace(
        small(electra.FAMILY.template), embedding=EmbeddingConfig(token_types=2, norm=bert.NORM, factor=Factor(12))
    ),
    "albert": replace(
        small(bert.TEMPLATE, n_unique=1), embedding=EmbeddingConfig(token_types=2, norm=bert.NORM, factor=Factor(20))
    ),
    "modernbert": with_tower(
        small(modernbert.FAMILY.template),
        others=(OtherLayers((1,), visibility=Window(5, both_ways=True), positions=Rope(theta=100.0)),),
    ),
    "t5": stack(
        attention=AttentionConfig(4, head_dim=6, qkv_bias=False, out_bias=False, scale=1.0),
        ffn=Mlp(44, act="relu", bias=False),
        norm=RMSNorm(),
        positions=T5Buckets(),
    ),
    "mt5": stack(ffn=Glu(70, act="gelu_tanh"), norm=RMSNorm(), positions=T5Buckets(per_layer=True)),
    "bart": with_tower(
        replace(small(bert.TEMPLATE), embedding=EmbeddingConfig(scaled=True, norm=bert.NORM)),
        positions=Learned(offset=2),
    ),
    "marian": stack(positions=Sinusoidal(), ffn=Mlp(40, act="silu")),
    "grouped queries": stack(attention=AttentionConfig(6, 2, head_dim=10), positions=Rope(interleaved=True)),
    "parallel": stack(steps=(("self", "ffn"),), shared_norm=True, positions=Rope(), ffn=Mlp(act="relu2")),
    "sandwich": stack(placement=Sandwich(), norm=RMSNorm(unit_offset=True), ffn=Mlp(act="tanh")),
    "norms of heads": stack(
        placement=BranchEnd(), attention=AttentionConfig(4, qk_norm=QkNorm(RMSNorm()), clip=0.7), positions=Alibi()
    ),
    "norm of all heads, soft cap": stack(
        attention=AttentionConfig(4, qk_norm=QkNorm(RMSNorm(), "all_heads"), soft_cap=0.6, kernel=Naive())
    ),
}
BATCHES = ((1,), (16,), (5, 1, 40, 16, 3), (33, 290, 2))


def built(config: ModelConfig) -> Transformer:
    """With weights of which none is without effect, whose attention is the definition."""
    model = Transformer(replace(config, head=Pooled()).computed_by("naive")).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model


def texts_of(lengths: tuple[int, ...], model: Transformer) -> list[Text]:
    generator = torch.Generator().manual_seed(len(lengths))
    types = model.config.embedding.token_types
    return [
        Text(
            torch.randint(VOCAB, (n,), generator=generator).tolist(),
            torch.randint(types, (n,), generator=generator).tolist() if types and n % 2 else (),
        )
        for n in lengths
    ]


@torch.inference_mode()
def expected(model: Transformer, text: Text) -> torch.Tensor:
    types = torch.tensor([text.types]) if text.types else None
    return model.hidden(torch.tensor([text.ids]), token_types=types)[0].float()


def check(model: Transformer, lengths: tuple[int, ...], tolerance: float = 2e-5) -> None:
    texts = texts_of(lengths, model)
    found = EncoderProgram(model, max(lengths)).tokens_of(texts).split_with_sizes(list(lengths))
    for own, text in zip(found, texts, strict=True):
        torch.testing.assert_close(own, expected(model, text), rtol=tolerance, atol=tolerance)


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_read_as_the_model_reads_it(family: str) -> None:
    check(built(FAMILIES[family]), BATCHES[2])


@pytest.mark.slow
@pytest.mark.parametrize("lengths", BATCHES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_with_every_length(family: str, lengths: tuple[int, ...]) -> None:
    check(built(FAMILIES[family]), lengths)


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_a_text_gets_the_same_whatever_is_read_beside_it(family: str, threads: int) -> None:
    """Bit for bit, in every place of a panel, also beside what is no number."""
    model = built(FAMILIES[family])
    with torch.no_grad():
        model.token.weight[7] = float("nan")
    program = EncoderProgram(model, 40)
    own = Text([2, 9, 4, 1, 30, 8] * 3)
    alone = program.tokens_of([own])
    assert alone.isfinite().all()
    for before in range(1, 34, 3):
        ahead = Text([7, *[3] * (before - 1)])
        both = program.tokens_of([ahead, own, Text([7, 7, 5])])
        assert both[:before].isnan().all()
        assert torch.equal(both[before : before + 18], alone)


@pytest.mark.parametrize("pool", POOLS)
def test_pools_are_those_of_the_head(pool: str, threads: int) -> None:
    model = built(replace(FAMILIES["bert"], head=Pooled()))
    model.head.pool = pool  # type: ignore[assignment]
    texts = texts_of((3, 1, 30, 17), model)
    found = EncoderProgram(model, 30).vectors(texts, pool)  # type: ignore[arg-type]
    for own, text in zip(found, texts, strict=True):
        types = torch.tensor([text.types]) if text.types else None
        with torch.inference_mode():
            torch.testing.assert_close(own, model(torch.tensor([text.ids]), token_types=types)[0], rtol=2e-5, atol=2e-5)


def test_more_texts_than_a_pass_reads() -> None:
    assert list(passes([3, 4, 2, 9, 1], 8)) == [slice(0, 2), slice(2, 3), slice(3, 4), slice(4, 5)]
    assert list(passes([8, 8], 8)) == [slice(0, 1), slice(1, 2)]
    check(built(FAMILIES["bert"]), (200, 300, 100, 500))


@pytest.mark.slow
@pytest.mark.parametrize("format", [Int8(), Int4(group=32), Int4(group=32, symmetric=False), torch.bfloat16], ids=str)
def test_weights_in_every_format(format: Int8 | Int4 | torch.dtype) -> None:
    """They are what their numbers say, and what is computed from them is not rounded."""
    model = built(small(bert.TEMPLATE, d_ff=64))
    if isinstance(format, torch.dtype):
        model = model.to(format)
        wide = built(small(bert.TEMPLATE, d_ff=64))
        wide.load_state_dict(model.state_dict())
    else:
        quantise_model(model, Plan(format))
        wide = model
    text = Text(list(range(30)))
    found = EncoderProgram(model, 30).tokens_of([text])
    torch.testing.assert_close(found, expected(wide, text), rtol=5e-5, atol=5e-5)


def test_what_there_is_no_kernel_for_is_refused_by_name() -> None:
    for config, name in (
        (small(longformer.FAMILY.template), "GlobalSelfAttention"),
        (stack(visibility=Window(4, both_ways=True, dilation=2)), "visibility window"),
        (stack(visibility=Window(4)), "visibility window"),
        (stack(positions=TransformerXL()), "TransformerXL"),
    ):
        with pytest.raises(ConfigError, match=name):
            EncoderProgram(Transformer(replace(config, head=Pooled())), 10)
    decoder = Transformer(ModelConfig(VOCAB, 32, CONTEXT, decoder=StackConfig(2, AttentionConfig(4))))
    with pytest.raises(ConfigError, match="encoder alone"):
        EncoderProgram(decoder, 10)
    hooked = built(FAMILIES["bert"])
    hooked.towers["encoder"].stack.layers[0].register_forward_hook(lambda *_: None)  # type: ignore[union-attr, index]
    with pytest.raises(ConfigError, match="hook"):
        EncoderProgram(hooked, 10)


def test_a_kept_program_sees_what_has_changed() -> None:
    model = built(FAMILIES["bert"])
    first = EncoderLoan(model, 10)
    program = first.program
    first.give_back()
    second = EncoderLoan(model, 12)
    assert second.program is program
    assert EncoderLoan(model, 12).program is not program, "two at once have one each"
    second.give_back()
    with torch.no_grad():
        model.token.weight.mul_(2.0)
    third = EncoderLoan(model, 12).program
    assert third is not program
    text = Text([5, 6, 7])
    torch.testing.assert_close(third.tokens_of([text]), expected(model, text), rtol=2e-5, atol=2e-5)


def test_gelu_is_exact_to_single_precision() -> None:
    numbers = torch.linspace(-12, 12, 40001)
    found = numbers.numpy().copy()
    activate_all(1, found)
    exact = torch.nn.functional.gelu(numbers.double())
    torch.testing.assert_close(torch.from_numpy(found).double(), exact, rtol=4e-7, atol=4e-7)
