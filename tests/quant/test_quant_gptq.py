"""GPTQ of a matrix and of a model, and how a model in few bits is compared."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from transpect.base.errors import ConfigError, DataError
from transpect.core import ModelConfig, Moe, Transformer
from transpect.core.presets import PRESETS
from transpect.quant import (
    Format,
    Gptq,
    Int4,
    Int8,
    Plan,
    agreement,
    bits_per_weight,
    calibrated_model,
    format_named,
    quantise_model,
    windows_of,
)
from transpect.quant.names import FORMATS
from transpect.quant.rounding import rounded
from transpect.quant.swap import targets


def correlated(M: int, D: int, seed: int) -> Tensor:
    """Inputs [M, D] of which few directions are strong, as those of a layer are."""
    draw = torch.Generator().manual_seed(seed)
    mixed = torch.randn(M, D, generator=draw, dtype=torch.float64) * torch.logspace(0, -2, D, dtype=torch.float64)
    return mixed @ torch.randn(D, D, generator=draw, dtype=torch.float64) / D**0.5


def weight_like(N: int, D: int, seed: int) -> Tensor:
    return torch.randn(N, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def restored(format: Format, stored: dict[str, Tensor]) -> Tensor:
    return format.unpack(stored).double()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("ordered", [True, False])
def test_the_outputs_are_nearer_than_by_rounding(name: str, ordered: bool) -> None:
    format, D = format_named(name), 256
    X, W = correlated(512, D, 1), weight_like(12, D, 2)
    found = restored(format, Gptq(ordered=ordered).stored(W, X.T @ X, format))
    plain = restored(format, rounded(W, format))
    assert ((found - W) @ X.T).square().sum() < 0.5 * ((plain - W) @ X.T).square().sum()


@pytest.mark.parametrize("name", FORMATS)
def test_inputs_without_correlation_leave_nothing_to_make_up_for(name: str) -> None:
    format, W = format_named(name), weight_like(5, 256, 3)
    found = Gptq().stored(W, 7 * torch.eye(256, dtype=torch.float64), format)
    for key, value in rounded(W, format).items():
        assert torch.equal(found[key], value)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("block", [1, 7, 64, 500])
def test_codes_are_those_of_elimination_one_by_one(block: int, ordered: bool) -> None:
    """Optimal Brain Surgeon as written: after each column H⁻¹ loses its row and column (Frantar et al., eq. 2, 3)."""
    D, damping, format = 64, 0.02, Int4(group=16)
    X, W = correlated(200, D, 4), weight_like(6, D, 5)
    H = X.T @ X
    found = Gptq(damping, ordered=ordered, block=block).stored(W, H, format)
    H = H + damping * H.diagonal().mean() * torch.eye(D, dtype=torch.float64)
    grid = format.fit(W, H.diagonal())
    rest, inverse, codes = W.clone(), torch.linalg.inv(H), torch.empty_like(W)
    columns = sorted(range(D), key=lambda d: -float(H[d, d])) if ordered else range(D)
    for d in columns:
        codes[:, d] = grid.codes(rest)[:, d]
        error = (rest - grid.values(grid.codes(rest)))[:, d]
        rest = rest - torch.outer(error, inverse[d]) / inverse[d, d]
        inverse = inverse - torch.outer(inverse[:, d], inverse[d]) / inverse[d, d]
    for key, value in format.pack(codes, grid).items():
        assert torch.equal(found[key], value)


def test_columns_that_no_input_reaches_are_rounded() -> None:
    X, W = correlated(100, 32, 6), weight_like(4, 32, 7)
    X[:, 8:16] = 0
    format = Int4(group=8)
    found, plain = (restored(format, s) for s in (Gptq().stored(W, X.T @ X, format), rounded(W, format)))
    assert torch.equal(found[:, 8:16], plain[:, 8:16])
    assert not torch.equal(found[:, 16:], plain[:, 16:])
    assert all(torch.isfinite(v).all() for v in Gptq().stored(W, torch.zeros(32, 32).double(), format).values())


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


def texts(n_windows: int, length: int, seed: int = 8) -> list[Tensor]:
    """Ids [1, T] in which a few are frequent."""
    draw = torch.Generator().manual_seed(seed)
    ids = (torch.rand(n_windows * length, generator=draw) ** 3 * 50).long()
    return windows_of(ids.tolist(), length)


def made(name: str) -> Transformer:
    """Weights as wide as those of a trained model, so that attention and errors are not next to nothing."""
    model = Transformer(small(name))
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.weight.mul_(4)
    return model.eval()


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert-base"])
@torch.no_grad()
def test_a_model_is_nearer_on_its_calibration_text_than_by_rounding(name: str) -> None:
    full, windows = made(name), texts(24, 16)
    plan = Plan(Int4(group=16), {"down": Int8()})
    by_gptq, by_rounding = (
        f(deepcopy(full)) for f in (lambda m: calibrated_model(m, plan, windows), lambda m: quantise_model(m, plan))
    )
    far = [sum((m.hidden(w) - full.hidden(w)).square().sum() for w in windows) for m in (by_gptq, by_rounding)]
    assert far[0] < 0.85 * far[1]
    formats = [[t for t, m in model.named_modules() if hasattr(m, "format")] for model in (by_gptq, by_rounding)]
    assert formats[0] == formats[1]
    with pytest.raises(ConfigError, match="twice"):
        calibrated_model(by_gptq, plan, windows)


@torch.no_grad()
def test_each_layer_is_fitted_to_what_the_layers_before_it_give_now() -> None:
    """The sums that the last projection was solved with are those of the inputs that it has in the finished model."""
    windows, seen = texts(5, 16), {}
    model = made("llama")

    class Watching(Gptq):
        def stored(self, weight: Tensor, hessian: Tensor, format: Format) -> dict[str, Tensor]:
            seen[weight.data_ptr()] = hessian
            return super().stored(weight, hessian, format)

    names = {t.module.weight.data_ptr(): t.name for t in targets(model, Plan(Int4(group=16)))}  # type: ignore[union-attr]
    held = list(model.parameters())  # so that no address is given out again
    calibrated_model(model, Plan(Int4(group=16)), windows, method=Watching())
    assert len(seen) == len(names) and held
    for address, hessian in seen.items():
        module, total = model.get_submodule(names[address]), torch.zeros_like(hessian)

        def add(module: nn.Module, args: tuple[Tensor], total: Tensor = total) -> None:
            x = args[0].flatten(0, -2).double()
            total += x.T @ x

        handle = module.register_forward_pre_hook(add)
        for ids in windows:
            model(ids)
        handle.remove()
        assert torch.allclose(hessian, total, rtol=1e-4, atol=1e-4 * float(total.abs().max()))


@torch.no_grad()
def test_experts_that_nothing_reaches_are_rounded_and_a_head_of_its_own_is_solved() -> None:
    config = small("llama")
    stack = next(iter(config.towers.values()))
    config = replace(config, decoder=replace(stack, ffn=Moe(experts=8, active=1, ffn=stack.ffn)))
    full, format = Transformer(config).eval(), Int4(group=16)
    plan = Plan(format, {"head": format})
    model = calibrated_model(deepcopy(full), plan, texts(1, 8))
    plain = quantise_model(deepcopy(full), plan)
    same = {
        name: torch.equal(module.packed, model.get_submodule(name).packed)  # type: ignore[arg-type]
        for name, module in plain.named_modules()
        if hasattr(module, "packed")
    }
    experts = [equal for name, equal in same.items() if "experts" in name]
    assert any(experts) and not all(experts)
    assert not any(equal for name, equal in same.items() if name.startswith("head"))


def test_what_it_refuses() -> None:
    config = small("gpt2")
    shared = replace(config, decoder=replace(config.towers["decoder"], n_unique=1))
    with pytest.raises(ConfigError, match="calibrate"):
        calibrated_model(made("gpt2"), Plan(Int8()), [])
    with pytest.raises(ConfigError, match="one tower"):
        calibrated_model(Transformer(small("t5-small")), Plan(Int8()), texts(1, 8))
    with pytest.raises(ConfigError, match="of their own"):
        calibrated_model(Transformer(shared), Plan(Int8()), texts(1, 8))
    with pytest.raises(ConfigError):
        Gptq(damping=0)
    with pytest.raises(DataError):
        windows_of([1, 2, 3], 4)


@torch.no_grad()
def test_agreement_is_what_its_words_say() -> None:
    full, windows = made("gpt2").double(), texts(3, 12)
    same = agreement(full, full, windows)
    assert same.kl == 0 and same.top1 == 1 and same.perplexity == same.perplexity_before and same.n_tokens == 33
    model = quantise_model(deepcopy(full), Plan(Int4(group=16)))
    found = agreement(full, model, windows)
    ids = torch.cat(windows)
    a, b = full(ids)[:, :-1].flatten(0, 1), model(ids)[:, :-1].flatten(0, 1)
    target = ids[:, 1:].flatten()
    expected = [
        math.exp(functional.cross_entropy(a, target)),
        math.exp(functional.cross_entropy(b, target)),
        float(functional.kl_div(b.log_softmax(-1), a.log_softmax(-1), log_target=True, reduction="batchmean")),
        float((a.argmax(-1) == b.argmax(-1)).double().mean()),
    ]
    measured = [found.perplexity_before, found.perplexity, found.kl, found.top1]
    assert measured == pytest.approx(expected, rel=1e-4)
    assert found.kl > 0 and found.top1 < 1


def test_bits_a_weight_count_everything_that_is_stored() -> None:
    full = made("llama")
    assert bits_per_weight(full, full) == 32
    keep = {"head": Int8(), "token": Int8()}
    model = quantise_model(deepcopy(full), Plan(Int8(), keep))
    norms = sum(p.numel() for p in model.parameters())
    n = sum(p.numel() for p in full.parameters())
    rows = sum(m.packed.shape[0] for m in model.modules() if hasattr(m, "packed"))
    assert bits_per_weight(model, full) == pytest.approx((8 * (n - norms) + 32 * (norms + rows)) / n)


@pytest.mark.parametrize("format", [Int8(), Int4(group=16)], ids=str)
@pytest.mark.parametrize("name", ["gpt2", "bert-base"])
@torch.no_grad()
def test_a_table_that_the_head_is_tied_to_goes_by_what_the_head_reads(name: str, format: Format) -> None:
    config = small(name)
    full, windows = Transformer(replace(config, head=replace(config.head, tied=True))).eval(), texts(24, 16)
    full.token.weight.normal_(generator=torch.Generator().manual_seed(3))
    read = list[Tensor]()
    with_tables = [deepcopy(full) for _ in range(2)]
    plan = Plan(None, {"token": format})
    calibrated_model(with_tables[0], plan, windows)
    quantise_model(with_tables[1], plan)
    handle = full.head.project.register_forward_pre_hook(lambda _, given: read.append(given[0]))
    for window in windows:
        full(window)
    handle.remove()
    X = torch.cat([own.flatten(0, -2) for own in read])
    tables = [model.token(torch.arange(config.vocab_size)) - full.token.weight for model in with_tables]
    far = [float((table @ X.T).square().sum()) for table in tables]
    assert far[0] < 0.7 * far[1]
