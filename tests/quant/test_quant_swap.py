"""A model whose weights are in formats, over architectures."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from transpect.base.errors import ConfigError
from transpect.core import ModelConfig, Moe, Transformer
from transpect.core.attention import AttentionConfig
from transpect.core.presets import PRESETS
from transpect.quant import (
    Format,
    Int4,
    Int4Linear,
    Int8,
    Int8Linear,
    Plan,
    QuantEmbedding,
    QuantLinear,
    QuantProjection,
    plan_named,
    quantise_model,
)
from transpect.quant.swap import targets


def small(name: str) -> ModelConfig:
    config = PRESETS[name].build()
    towers = {
        tower: replace(
            stack,
            n_layers=2,
            attention=replace(stack.attention, n_heads=4, n_kv_heads=None, head_dim=8),
            ffn=replace(stack.ffn, d_ff=64),  # type: ignore[type-var]
            dropout=0.0,
        )
        for tower, stack in config.towers.items()
    }
    return replace(config, vocab_size=50, d_model=32, context_length=32, **towers)


def run(model: Transformer) -> torch.Tensor:
    ids = torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(3))
    model.eval()
    more = {"source": model.encode(ids.flip(1))} if len(model.towers) > 1 else {}
    out: torch.Tensor = model(ids, **more)
    return out


@pytest.mark.parametrize("name", PRESETS)
@torch.no_grad()
def test_every_architecture_gives_nearly_what_it_gave(name: str) -> None:
    full = Transformer(small(name))
    for format, far in ((Int8(), 0.02), (Int8(group=16), 0.02), (Int4(), 0.35)):
        model = quantise_model(Transformer(small(name)), Plan(format, {"head": format, "token": format}))
        left = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
        assert all("router" in name or "positions" in name for name in left)
        a, b = run(full), run(model)
        assert (a - b).norm() <= far * a.norm()
        assert not torch.equal(a, b)


@torch.no_grad()
def test_a_tied_head_reads_the_quantised_table() -> None:
    model = quantise_model(Transformer(small("llama")), Plan(None, {"head": Int8()}))
    untied = replace(model.config.head, tied=False)
    full = Transformer(replace(model.config, head=untied))
    quantise_model(full, Plan(None, {"head.project": Int8()}))
    assert isinstance(full.head.project, QuantProjection) and isinstance(full.token, nn.Embedding)
    tied = Transformer(replace(small("llama"), head=replace(untied, tied=True)))
    quantise_model(tied, Plan(None, {"head": Int8()}))
    assert isinstance(tied.token, QuantEmbedding)
    x = torch.randn(1, 3, 32)
    table = tied.token.dequantised()
    torch.testing.assert_close(tied.head.project(x, tied.token.weight), functional.linear(x, table))
    torch.testing.assert_close(tied.token(torch.tensor([[4, 7]])), table[[4, 7]][None])


@pytest.mark.parametrize("format", [Int8(), Int8(group=16), Int4(), Int4(16, symmetric=False)], ids=str)
def test_a_layer_is_its_restored_weights(format: Int8 | Int4) -> None:
    model = quantise_model(Transformer(small("gpt2")), Plan(format))
    layer = next(module for module in model.modules() if isinstance(module, QuantLinear))
    assert isinstance(layer, Int8Linear | Int4Linear) and layer.format == format
    x = torch.randn(3, 32)
    torch.testing.assert_close(layer(x), x @ layer.dequantised().T + layer.bias)


def test_names_choose_formats_and_the_first_pattern_counts() -> None:
    plan = Plan(Int4(), {"layers.0.*": Int8(), "down": None, "out": Int8(group=16)})
    model = quantise_model(Transformer(small("gpt2")), plan)
    for name, module in model.named_modules():
        if name.endswith("body.out"):
            assert module.format == (Int8() if ".0." in name.split("steps")[0] else Int8(group=16))
        if name.endswith("body.down"):
            assert isinstance(module, nn.Linear) == ("layers.1" in name)
    assert isinstance(model.token, nn.Embedding)


@torch.no_grad()
def test_routers_stay_and_clips_hold() -> None:
    config = small("llama")
    tower = replace(
        config.decoder, ffn=Moe(experts=4, active=2, ffn=config.decoder.ffn), attention=AttentionConfig(4, clip=0.1)
    )
    full = Transformer(replace(config, decoder=tower))
    model = quantise_model(Transformer(replace(config, decoder=tower)), Plan(Int8()))
    assert sum(isinstance(module, nn.Linear) for module in model.modules()) == 2
    assert [m.clip for n, m in model.named_modules() if n.endswith(".query")] == [0.1, 0.1]
    a, b = run(full), run(model)
    assert (a - b).norm() <= 0.05 * a.norm()


def test_scales_keep_their_dtype_and_results_take_the_models() -> None:
    model = quantise_model(Transformer(small("llama")), Plan(Int8(), {"token": Int4()}))
    before = {name: buffer.clone() for name, buffer in model.named_buffers() if not name.endswith("like")}
    model.to(torch.bfloat16)
    after = dict(model.named_buffers())
    assert all(
        torch.equal(after[name], buffer) and after[name].dtype == buffer.dtype for name, buffer in before.items()
    )
    assert model.token.weight.dtype == torch.bfloat16 and run(model).dtype == torch.bfloat16


def test_what_is_wrong_is_said() -> None:
    config = small("gpt2")
    with pytest.raises(ConfigError, match="fits the pattern"):
        quantise_model(Transformer(config), Plan(Int8(), {"nothing": Int4()}))
    with pytest.raises(ConfigError, match="must divide the width"):
        quantise_model(Transformer(config), Plan(Int8(group=24)))
    model = quantise_model(Transformer(config), Plan(Int8()))
    with pytest.raises(ConfigError, match="twice"):
        quantise_model(model, Plan(Int8()))
    with pytest.raises(ConfigError, match=r"`packed` of `linear` must be"):
        Int8Linear(Int8(), 4, 3, stored={"packed": torch.zeros(3, 4), "scale": torch.zeros(3, 1)})


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_names_stand_for_plans_and_what_is_kept_comes_first(tied: bool) -> None:
    config = small("llama")
    model = Transformer(replace(config, head=replace(config.head, tied=tied)))

    def formats(name: str, **keep: Format | None) -> dict[str, Format]:
        plan = plan_named(name, model, keep)
        return {target.name.rsplit(".", 1)[-1]: target.format for target in targets(model, plan)}

    found = formats("int4-mixed")
    assert found.pop("value") == found.pop("down") == found.pop("token") == Int8()
    assert tied or found.pop("project") == Int8()
    assert set(found.values()) == {Int4()}
    assert formats("int8", down=Int4(), token=None, head=None).keys() == formats("int8").keys() - {"token", "project"}
    assert formats("int4-zero-mixed", down=Int4())["down"] == Int4()
    assert formats("int8", head=Int4())["token" if tied else "project"] == Int4()
    assert ("token" in formats("int8", head=None)) != tied
    with pytest.raises(ConfigError, match="int4-zero-mixed"):
        formats("int5")
