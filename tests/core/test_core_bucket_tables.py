"""T5's buckets with a table in each layer: what a shared table computes where all are equal, and no more than it."""

from dataclasses import replace

import pytest
import torch

from transpect.cache import DenseCache
from transpect.core import (
    AttentionConfig,
    Full,
    ModelConfig,
    Naive,
    Sdpa,
    StackConfig,
    Tags,
    Transformer,
    Visibility,
    Window,
)
from transpect.core.kernels import Kernel
from transpect.core.positions import T5Buckets

IDS = torch.randint(0, 19, (2, 13), generator=torch.Generator().manual_seed(0))


def model(visibility: Visibility, *, per_layer: bool = True, kernel: Kernel | None = None) -> Transformer:
    stack = StackConfig(
        n_layers=3,
        attention=AttentionConfig(n_heads=6, n_kv_heads=2, head_dim=5, kernel=kernel or Naive()),
        positions=T5Buckets(buckets=8, max_distance=6, per_layer=per_layer),
        visibility=visibility,
    )
    sizes = {"vocab_size": 19, "d_model": 24, "context_length": 32}
    ahead = visibility.looks_ahead(prefix=False)
    net = Transformer(ModelConfig(**sizes, encoder=stack) if ahead else ModelConfig(**sizes, decoder=stack))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(0.0, 0.3, generator=generator)
    return net.eval()


def causal(width: int = 100) -> Visibility:
    return Window(width)


RULES = [causal(), causal(4), Full(), Window(3, both_ways=True)]


@pytest.mark.parametrize("rule", RULES, ids=str)
@torch.no_grad()
def test_equal_tables_are_one_table(rule: Visibility) -> None:
    own, shared = model(rule), model(rule, per_layer=False)
    state = own.state_dict()
    tower = next(iter(own.towers))
    tables = {name: value for name, value in state.items() if name.endswith("relation.table.weight")}
    assert len(tables) == 3
    one = next(iter(tables.values()))
    for table in tables.values():
        table.copy_(one)
    rest = {name: value for name, value in state.items() if name not in tables}
    shared.load_state_dict(rest | {f"towers.{tower}.stack.positions.table.weight": one})
    assert torch.allclose(own(IDS), shared(IDS), atol=1e-6)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_each_table_matters_in_its_own_layer(rule: Visibility) -> None:
    net = model(rule)
    net(IDS).square().sum().backward()
    tables = [value for name, value in net.named_parameters() if name.endswith("relation.table.weight")]
    assert len(tables) == 3
    assert all(table.grad is not None and bool(table.grad.any()) for table in tables)


@pytest.mark.parametrize("rule", RULES, ids=str)
@torch.no_grad()
def test_kernels_agree(rule: Visibility) -> None:
    naive, fast = model(rule), model(rule, kernel=Sdpa())
    real = torch.ones_like(IDS, dtype=torch.bool)
    real[0, :4] = False
    tags = Tags.padded(real)
    assert torch.allclose(naive(IDS, tags=tags)[real], fast(IDS, tags=tags)[real], atol=1e-5)


@pytest.mark.parametrize("rule", RULES[:2], ids=str)
@pytest.mark.parametrize("pieces", [(13,), (1,) * 13, (5, 1, 7)], ids=str)
@torch.no_grad()
def test_cached_equals_uncached(rule: Visibility, pieces: tuple[int, ...]) -> None:
    net, cache = model(rule), DenseCache()
    parts = [net(part, cache=cache) for part in IDS.split(list(pieces), 1)]
    assert torch.allclose(torch.cat(parts, 1), net(IDS), atol=1e-5)


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
@torch.no_grad()
def test_padding_and_neighbours_change_nothing(rule: Visibility, left: bool) -> None:
    net, padded = model(rule), torch.zeros(2, 18, dtype=torch.long)
    place = slice(5, 18) if left else slice(0, 13)
    padded[:, place] = IDS
    real = torch.zeros(2, 18, dtype=torch.bool)
    real[:, place] = True
    together = net(padded, tags=Tags.padded(real))[:, place]
    alone = torch.cat([net(IDS[i : i + 1]) for i in range(2)])
    assert torch.allclose(together, alone, atol=1e-5)


def test_it_is_an_option_of_the_config() -> None:
    config = model(Full()).config
    assert config.encoder is not None
    other = replace(config, encoder=replace(config.encoder, positions=T5Buckets(buckets=8, max_distance=6)))
    names = set(Transformer(config, seed=None).state_dict()) ^ set(Transformer(other, seed=None).state_dict())
    assert len(names) == 4
