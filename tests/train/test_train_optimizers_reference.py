"""Each optimizer against its formula or against another implementation, in float64; rates and decays by weight."""

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transpect.base.errors import ConfigError
from transpect.core import Transformer, override, preset
from transpect.train import Adafactor, AdamW, Grouping, GroupRule, Lion, Muon, Optimizer, Recipe, Sgd, train
from transpect.train.optimizers import decay_groups, decaying, set_rate
from transpect.train.optimizers.muon import hidden_matrices

SMALL = [("vocab_size", 11), ("d_model", 16), ("n_layers", 3), ("n_heads", 2), ("d_ff", 24), ("context_length", 16)]
RATES = (1e-2, 3e-2, 5e-3, 2e-2)


def model_of(name: str = "llama") -> Transformer:
    return Transformer(override(preset(name), SMALL)).double()


def gradients(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """A few random ones, of unequal sizes."""
    for step in range(len(RATES)):
        generator = torch.Generator().manual_seed(step)
        yield {
            name: torch.randn(weight.shape, generator=generator, dtype=torch.float64) * 4.0 ** (step - 1)
            for name, weight in model.named_parameters()
        }


def trained(spec: Optimizer, model: nn.Module, grouping: Grouping | None = None) -> dict[str, Tensor]:
    optimizer = spec.build(model, grouping or Grouping())
    for rate, drawn in zip(RATES, gradients(model), strict=True):
        step(model, optimizer, drawn, rate)
    return {name: weight.detach() for name, weight in model.named_parameters()}


def step(model: nn.Module, optimizer: torch.optim.Optimizer, drawn: dict[str, Tensor], rate: float) -> None:
    for name, weight in model.named_parameters():
        weight.grad = drawn[name].clone()
    set_rate(optimizer, rate)
    optimizer.step()


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 1e-12) -> None:
    for name, weight in expected.items():
        assert float((found[name] - weight.detach()).abs().max()) <= tolerance, name


def by_formula(formula: Callable[[Tensor, Tensor, dict[str, Any], float, float], Tensor], decay: float) -> Any:
    """Weights after the same steps of w ← formula(w, g, memory, rate, decay)."""
    model = model_of()
    weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    memory: dict[str, dict[str, Any]] = {name: {} for name in weights}
    matrices = decaying(model)
    for rate, drawn in zip(RATES, gradients(model), strict=True):
        for name, w in weights.items():
            weights[name] = formula(w, drawn[name], memory[name], rate, decay if name in matrices else 0.0)
    return weights


@pytest.mark.parametrize("betas", [(0.9, 0.99), (0.5, 0.8)])
@pytest.mark.parametrize("decay", [0.0, 1.0])
def test_lion_is_its_algorithm(betas: tuple[float, float], decay: float) -> None:
    def lion(w: Tensor, g: Tensor, memory: dict[str, Any], rate: float, decay: float) -> Tensor:
        m = memory.get("m", torch.zeros_like(w))
        memory["m"] = betas[1] * m + (1 - betas[1]) * g
        return w - rate * ((betas[0] * m + (1 - betas[0]) * g).sign() + decay * w)

    assert_equal(trained(Lion(betas=betas, weight_decay=decay), model_of()), by_formula(lion, decay))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_is_its_formula(momentum: float, nesterov: bool) -> None:
    if nesterov and not momentum:
        return

    def sgd(w: Tensor, g: Tensor, memory: dict[str, Any], rate: float, decay: float) -> Tensor:
        g = g + decay * w
        memory["b"] = momentum * memory.get("b", torch.zeros_like(w)) + g
        return w - rate * (g + momentum * memory["b"] if nesterov else memory["b"])

    spec = Sgd(momentum=momentum, nesterov=nesterov, weight_decay=0.1)
    assert_equal(trained(spec, model_of()), by_formula(sgd, 0.1))


ADAFACTORS = [Adafactor(), Adafactor(beta1=0.9, scale_by_weight=False, weight_decay=0.1, clip=2.0)]


@pytest.mark.parametrize("spec", ADAFACTORS, ids=["relative", "absolute"])
def test_adafactor_is_its_algorithm(spec: Adafactor) -> None:
    def adafactor(w: Tensor, g: Tensor, memory: dict[str, Any], rate: float, decay: float) -> Tensor:
        memory["t"] = memory.get("t", 0) + 1
        beta, square = 1 - memory["t"] ** -spec.decay, g**2 + spec.eps[0]

        def mean(name: str, new: Tensor) -> Tensor:
            memory[name] = beta * memory.get(name, 0.0) + (1 - beta) * new
            return torch.as_tensor(memory[name])

        if w.ndim == 2:
            row, column = mean("r", square.mean(1)), mean("c", square.mean(0))
            v = torch.outer(row, column) / row.mean()
        else:
            v = mean("v", square)
        u = g / v.sqrt()
        u = u / max(1.0, float(u.square().mean().sqrt()) / spec.clip)
        size = max(spec.eps[1], float(w.square().mean().sqrt())) if spec.scale_by_weight else 1.0
        u = rate * size * u
        if spec.beta1 is not None:
            u = memory["m"] = spec.beta1 * memory.get("m", 0.0) + (1 - spec.beta1) * u
        return w - rate * size * decay * w - u

    assert_equal(trained(spec, model_of()), by_formula(adafactor, spec.weight_decay))


@pytest.mark.slow  # importing it takes ten seconds
@pytest.mark.parametrize("spec", ADAFACTORS, ids=["relative", "absolute"])
def test_adafactor_is_that_of_transformers(spec: Adafactor) -> None:
    from transformers.optimization import Adafactor as Theirs

    ours, theirs = model_of(), model_of()
    reference = Theirs(
        decay_groups(theirs, spec.weight_decay),
        lr=1.0,
        eps=spec.eps,
        clip_threshold=spec.clip,
        decay_rate=-spec.decay,
        beta1=spec.beta1,
        scale_parameter=spec.scale_by_weight,
        relative_step=False,
    )
    for rate, drawn in zip(RATES, gradients(theirs), strict=True):
        step(theirs, reference, drawn, rate)
    assert_equal(trained(spec, ours), dict(theirs.named_parameters()))


def test_adafactor_keeps_rows_and_columns() -> None:
    model = model_of()
    optimizer = Adafactor().build(model)
    step(model, optimizer, next(gradients(model)), 0.1)
    for weight in model.parameters():
        kept = {key: tensor.numel() for key, tensor in optimizer.state[weight].items() if key != "step"}
        assert sum(kept.values()) == (sum(weight.shape) if weight.ndim > 1 else weight.numel())


@pytest.mark.parametrize("nesterov", [False, True])
def test_muon_is_torchs_for_hidden_matrices_and_adamw_for_the_rest(nesterov: bool) -> None:
    ours, theirs = model_of().float(), model_of().float()
    hidden = hidden_matrices(theirs)
    parts = ("query", "key", "value", "out", "gate", "up", "down")
    layers = {name for name, _ in theirs.named_parameters() if ".layers." in name}
    assert hidden == {name for name in layers if name.split(".")[-2] in parts}
    groups: list[list[nn.Parameter]] = [[], [], []]
    for name, weight in theirs.named_parameters():
        groups[0 if name in hidden else 1 if name in decaying(theirs) else 2].append(weight)
    muon = torch.optim.Muon(
        groups[0], weight_decay=0.1, nesterov=nesterov, momentum=0.9, adjust_lr_fn="match_rms_adamw"
    )
    adamw = torch.optim.AdamW(
        [{"params": groups[1], "weight_decay": 0.1}, {"params": groups[2], "weight_decay": 0.0}],
        betas=(0.8, 0.9),
        fused=True,
    )
    for rate, drawn in zip(RATES, gradients(theirs), strict=True):
        floats = {name: gradient.float() for name, gradient in drawn.items()}
        step(theirs, muon, floats, rate)
        set_rate(adamw, rate)
        adamw.step()
    optimizer = Muon(nesterov=nesterov, momentum=0.9, betas=(0.8, 0.9)).build(ours)
    for rate, drawn in zip(RATES, gradients(ours), strict=True):
        step(ours, optimizer, {name: gradient.float() for name, gradient in drawn.items()}, rate)
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("shape", [(16, 16), (8, 32), (48, 16)])
def test_muon_moves_a_matrix_by_an_orthogonal_one_of_the_size_of_adamws_steps(shape: tuple[int, int]) -> None:
    layer = nn.Linear(shape[1], shape[0], bias=False)
    before = layer.weight.detach().clone()
    layer.weight.grad = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    optimizer = Muon(weight_decay=0.0).build(layer)
    set_rate(optimizer, 1e-2)
    optimizer.step()
    moved = (before - layer.weight.detach()) / 1e-2 / (0.2 * math.sqrt(max(shape)))
    values = torch.linalg.svdvals(moved)
    assert float(values.min()) >= 0.6 and float(values.max()) <= 1.25
    u, _, v = torch.linalg.svd(layer.weight.grad, full_matrices=False)
    assert float(nn.functional.cosine_similarity(moved.flatten(), (u @ v).flatten(), 0)) > 0.95


def test_muon_serves_a_model_without_hidden_matrices_or_without_others() -> None:
    table, matrix = nn.Embedding(3, 4), nn.Linear(4, 4, bias=False)
    for module in (table, matrix):
        before = module.weight.detach().clone()
        module.weight.grad = torch.ones_like(module.weight)
        optimizer = Muon().build(module)
        set_rate(optimizer, 0.1)
        optimizer.step()
        assert not torch.equal(module.weight, before)


def test_several_optimizers_as_one_survive_torchs_own_state_dict() -> None:
    models = [model_of().float() for _ in range(2)]
    optimizers = [Muon().build(model) for model in models]
    drawn = [{name: g.float() for name, g in each.items()} for each in gradients(models[0])]
    step(models[0], optimizers[0], drawn[0], 1e-2)
    models[1].load_state_dict(models[0].state_dict())
    optimizers[1].load_state_dict(deepcopy(optimizers[0].state_dict()))
    for model, optimizer in zip(models, optimizers, strict=True):
        step(model, optimizer, drawn[1], 1e-2)
    for a, b in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(a, b)


# rates and decays by weight


def moves(name: str, grouping: Grouping, spec: Optimizer | None = None) -> dict[str, float]:
    """How far each weight went at rate 1 under a gradient of 1 everywhere."""
    model = model_of(name)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer = (spec or Sgd()).build(model, grouping)
    step(model, optimizer, {name: torch.ones_like(weight) for name, weight in before.items()}, 1.0)
    return {name: float((before[name] - weight.detach()).mean()) for name, weight in model.named_parameters()}


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert-base", "transformer-base", "t5-small"])
def test_the_rate_of_a_layer_is_a_share_of_that_of_the_layer_above(name: str) -> None:
    found = moves(name, Grouping(layer_decay=0.5))
    for weight, moved in found.items():
        if ".layers." in weight:
            expected = 0.5 ** (3 - int(weight.split(".layers.")[1].split(".")[0]))
        elif weight.startswith("head.") or "final_norm" in weight:
            expected = 1.0
        else:
            expected = 0.5**4
        assert moved == pytest.approx(expected, rel=1e-12), weight
    assert list(moves(name, Grouping()).values()) == pytest.approx([1.0] * len(found))


def test_the_last_rule_that_matches_counts_on_top_of_the_layers() -> None:
    rules = (
        GroupRule("*", rate=2.0),
        GroupRule("*.layers.1.*", rate=3.0),
        GroupRule("*.layers.1.*.before.*", rate=0.1),
    )
    for weight, moved in moves("llama", Grouping(0.5, rules)).items():
        share = moves("llama", Grouping(0.5))[weight] if ".layers.2." in weight else None
        if share is not None:
            assert moved == pytest.approx(2.0 * share)
        elif ".layers.1." in weight:
            assert moved == pytest.approx((0.1 if ".before." in weight else 3.0) * 0.25), weight


def test_a_rule_sets_the_decay_of_what_it_matches() -> None:
    model = model_of()
    grouping = Grouping(rules=(GroupRule("token.*", weight_decay=0.3), GroupRule("head.*", weight_decay=0.0)))
    names = {id(weight): name for name, weight in model.named_parameters()}
    for group in AdamW(weight_decay=0.1).build(model, grouping).param_groups:
        for weight in group["params"]:
            name = names[id(weight)]
            special = {"token.weight": 0.3, "head.project.weight": 0.0}
            assert group["weight_decay"] == special.get(name, 0.1 if name in decaying(model) else 0.0), name


@pytest.mark.parametrize("spec", [kind() for kind in Optimizer.kinds().values()], ids=lambda spec: spec.kind)
def test_every_optimizer_takes_rules(spec: Optimizer) -> None:
    still, moved = (model_of().float() for _ in range(2))
    drawn = {name: g.float() for name, g in next(gradients(still)).items()}
    step(still, spec.build(still), drawn, 1e-2)
    step(moved, spec.build(moved, Grouping(rules=(GroupRule("*.layers.0.*", rate=0.5),))), drawn, 1e-2)
    for (name, a), b in zip(still.named_parameters(), moved.parameters(), strict=True):
        assert torch.equal(a, b) == (".layers.0." not in name), name


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"train.layer_decay": 0.0}, "layer_decay must be above 0"),
        ({"train.layer_decay": 1.5}, "layer_decay must be above 0"),
        ({"train.groups": [{"match": "*.bias", "rate": 0.0}]}, "rate must be above 0"),
        ({"train.groups": [{"match": "*.bias", "weight_decay": -1.0}]}, "weight_decay must be a number from 0 up"),
        ({"train.groups": [{"match": "*.biases"}]}, r"must match the name.*\*\.biases.*Names are like token\.weight"),
    ],
)
def test_rules_that_mean_nothing_are_refused(
    changes: dict[str, Any], says: str, recipe_of: Callable[..., Recipe], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        train(recipe_of("causal", changes), tmp_path)


@pytest.mark.parametrize("kind", Optimizer.kinds())
def test_a_run_goes_on_bit_for_bit_with_every_optimizer(
    kind: str, recipe_of: Callable[..., Recipe], tmp_path: Path, assert_same: Any, stop_at: Any
) -> None:
    changes: dict[str, Any] = {
        "train.optimizer": {"kind": kind, **({"momentum": 0.9, "nesterov": True} if kind == "sgd" else {})},
        "train.layer_decay": 0.8,
        "train.groups": [{"match": "*.bias", "rate": 0.5}],
        "train.max_steps": 5,
        "train.save_every": 5,
    }
    recipe = recipe_of("masked", changes)
    train(recipe, tmp_path / "straight")
    stop_at(recipe, tmp_path / "run", 3)
    torch.manual_seed(999)
    train(recipe, tmp_path / "run", resume="auto")
    assert_same(tmp_path / "run", tmp_path / "straight")
