"""Which weights decay; float32 weights take small updates and others are refused; memory that returns bit for bit."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from transpect.base.codec import from_data
from transpect.base.errors import ConfigError
from transpect.core import ModelConfig, Transformer, override, preset
from transpect.core.positions import TransformerXL
from transpect.train import Adafactor, AdamW, Lion, Muon, Optimizer, Sgd
from transpect.train.optimizers import (
    decay_groups,
    decaying,
    load_optimizer_tensors,
    optimizer_tensors,
    set_rate,
)
from transpect.train.precision import Precision, arithmetic

SMALL = [("vocab_size", 11), ("d_model", 16), ("n_layers", 2), ("n_heads", 2), ("d_ff", 24), ("context_length", 16)]
OPTIMIZERS = [
    AdamW(),
    AdamW(betas=(0.8, 0.9), weight_decay=0.0),
    Sgd(),
    Sgd(momentum=0.9, weight_decay=0.1),
    Sgd(momentum=0.9, nesterov=True),
    Lion(),
    Adafactor(),
    Adafactor(beta1=0.9, scale_by_weight=False, weight_decay=0.1),
    Muon(),
]
KINDS = [kind() for kind in Optimizer.kinds().values()]


def configs() -> dict[str, ModelConfig]:
    names = ("transformer-base", "gpt1", "gpt2", "bert-base", "t5-small", "bart-base", "llama", "prefix-lm")
    found = {name: override(preset(name), SMALL) for name in names}
    found["transformer-xl"] = found["llama"].map_stacks(positions=TransformerXL())
    found["segments"] = override(found["bert-base"], [("embedding.token_types", 3)])
    return found


CONFIGS = configs()


@pytest.mark.parametrize("name", CONFIGS)
def test_matrices_decay_and_nothing_else(name: str) -> None:
    """Told by module, where `decaying` goes by name and shape."""
    model = Transformer(CONFIGS[name])
    matrices = {f"{at}.weight" for at, module in model.named_modules() if isinstance(module, nn.Linear)}
    if getattr(model.config.head, "tied", True) is False:
        matrices.add("head.project.weight")
    assert decaying(model) == matrices
    groups = decay_groups(model, 0.1)
    names = {id(weight): name for name, weight in model.named_parameters()}
    assert {group["weight_decay"]: {names[id(w)] for w in group["params"]} for group in groups} == {
        0.1: matrices,
        0.0: set(names.values()) - matrices,
    }
    assert sum(len(group["params"]) for group in groups) == len(names)


def test_frozen_weights_are_left_alone_and_all_frozen_is_refused() -> None:
    model = Transformer(CONFIGS["gpt2"])
    model.token.weight.requires_grad_(False)
    assert all(w is not model.token.weight for group in decay_groups(model, 0.1) for w in group["params"])
    model.requires_grad_(False)
    with pytest.raises(ConfigError, match="at least one weight"):
        decay_groups(model, 0.1)


def test_decay_pulls_matrices_and_lets_tables_and_biases_be() -> None:
    model = Transformer(CONFIGS["gpt2"])
    optimizer = AdamW(weight_decay=0.5).build(model)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    set_rate(optimizer, 0.1)
    optimizer.step()
    for name, weight in model.named_parameters():
        factor = 0.95 if name in decaying(model) else 1.0
        assert torch.allclose(weight, before[name] * factor, rtol=1e-6, atol=0.0), name


class OneWeight(nn.Module):
    """y = w · x."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 1, bias=False, dtype=dtype)
        with torch.no_grad():
            self.linear.weight.fill_(1.0)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x)
        return out


def displacement(spec: Optimizer, precision: Precision) -> float:
    """Case 20: w = 1, rate 6e-4, 100 equal gradients; a bfloat16 weight would not move at all."""
    model = OneWeight(torch.float32)
    optimizer = spec.build(model)
    for _ in range(100):
        set_rate(optimizer, 6e-4)
        with arithmetic(precision, torch.device("cpu")):
            y = model(torch.ones(1, 1))
        torch.autograd.backward(y.float().sum())
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    assert model.linear.weight.dtype == torch.float32
    return 1.0 - model.linear.weight.item()


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("spec", [*KINDS, Sgd(momentum=0.9), AdamW(weight_decay=0.0)], ids=repr)
def test_small_updates_of_a_weight_near_one_arrive(spec: Optimizer, precision: Precision) -> None:
    exact = displacement(spec, "fp32")
    assert displacement(spec, precision) == pytest.approx(exact, rel=1e-3)
    if isinstance(spec, AdamW | Sgd) and not (spec.weight_decay or getattr(spec, "momentum", 0)):
        assert exact == pytest.approx(0.06, rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("spec", KINDS, ids=lambda spec: spec.kind)
def test_weights_that_would_swallow_updates_are_refused(spec: Optimizer, dtype: torch.dtype) -> None:
    with pytest.raises(ConfigError, match=r"must be float32.*linear\.weight.*model\.float\(\)"):
        spec.build(OneWeight(dtype))
    frozen = OneWeight(dtype)
    frozen.requires_grad_(False)
    frozen.extra = nn.Linear(2, 2)
    spec.build(frozen)


@pytest.mark.parametrize("spec", OPTIMIZERS, ids=repr)
def test_memory_returns_bit_for_bit(spec: Optimizer) -> None:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for weight in model.parameters():
            weight.grad = torch.randn(weight.shape, generator=generator)
        set_rate(optimizer, 1e-2 / seed)
        optimizer.step()

    straight, resumed = Transformer(CONFIGS["gpt2"]), Transformer(CONFIGS["gpt2"], seed=1)
    first = spec.build(straight)
    for seed in (1, 2, 3):
        step(straight, first, seed)
    memory = {name: tensor.clone() for name, tensor in optimizer_tensors(first, straight.named_parameters()).items()}
    resumed.load_state_dict(straight.state_dict())
    second = spec.build(resumed)
    load_optimizer_tensors(second, resumed.named_parameters(), memory)
    for seed in (4, 5):
        step(straight, first, seed)
        step(resumed, second, seed)
    for (name, a), b in zip(straight.named_parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b), name
    again = optimizer_tensors(second, resumed.named_parameters())
    assert all(
        torch.equal(value, again[name]) for name, value in optimizer_tensors(first, straight.named_parameters()).items()
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"kind": "adamw", "lr": -1.0}, "lr"),
        ({"kind": "adamw", "betas": [0.9, 1.0]}, "betas"),
        ({"kind": "adamw", "eps": 0.0}, "eps"),
        ({"kind": "adamw", "weight_decay": -0.1}, "weight_decay"),
        ({"kind": "sgd", "momentum": 1.0}, "momentum"),
        ({"kind": "sgd", "nesterov": True}, "nesterov looks ahead"),
        ({"kind": "lion", "betas": [1.0, 0.9]}, "betas"),
        ({"kind": "adafactor", "beta1": 1.0}, "beta1"),
        ({"kind": "adafactor", "decay": 0.0}, "decay"),
        ({"kind": "adafactor", "clip": 0.0}, "clip"),
        ({"kind": "muon", "steps": 0}, "steps"),
        ({"kind": "muon", "momentum": 1.0}, "momentum"),
        ({"kind": "adam"}, "Did you mean 'adamw'"),
        ({"kind": "adamw", "weightdecay": 0.1}, "Did you mean 'weight_decay'"),
    ],
)
def test_refuses_what_means_nothing(data: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_data(Optimizer, data)


def test_a_rate_is_given_by_copy() -> None:
    for spec in OPTIMIZERS:
        assert spec.at(0.5) == replace(spec, lr=0.5)  # type: ignore[type-var]


@pytest.mark.parametrize("optimizer", [*KINDS, Sgd(momentum=0.9)], ids=repr)
@pytest.mark.parametrize("stored", ["transposed", "part", "part of transposed"])
def test_however_a_matrix_lies_in_memory_it_is_trained_like_any_other(optimizer: Optimizer, stored: str) -> None:
    """torch's fused AdamW goes by memory, whatever the strides; GPT-2 is loaded as transposed parts of one QKV."""
    values = torch.linspace(-1.0, 1.0, 25, dtype=torch.float64).view(5, 5).sin()
    laid = {
        "transposed": values.t().contiguous().t(),
        "part": torch.cat([values, values], 1)[:, :5],
        "part of transposed": torch.cat([values, values]).t().contiguous().t()[:5],
    }[stored]
    assert torch.equal(laid, values) and laid.stride() != values.stride()
    updated = []
    for weight in (values.clone(), laid):
        layer = torch.nn.Linear(5, 5, dtype=torch.float64)
        layer.weight.data = weight
        layer.bias.data.zero_()
        made = optimizer.build(layer)
        set_rate(made, 0.1)
        for step in range(3):
            layer.zero_grad()
            layer(torch.arange(5.0, dtype=torch.float64) - step).cos().sum().backward()
            made.step()
        updated.append(layer.weight.detach().clone())
    torch.testing.assert_close(*updated, rtol=0, atol=1e-12)
