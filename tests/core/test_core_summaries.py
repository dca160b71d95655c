"""Keys that stand for blocks of tokens: what they are, that padding moves none of them, and where they can't be."""

from typing import Any

import pytest
import torch

from transpect.base.codec import from_data, to_data
from transpect.base.errors import ConfigError, MaskError
from transpect.cache import DenseCache
from transpect.core import (
    AttentionConfig,
    Causal,
    Full,
    GlobalTokens,
    ModelConfig,
    Naive,
    Pooled,
    RMSNorm,
    Sdpa,
    StackConfig,
    Summaries,
    Tags,
    Transformer,
    Window,
)
from transpect.core.positions import Alibi, NoPosition, Position, Rope, T5Buckets, TransformerXL
from transpect.core.summaries import block_of, n_blocks

SCHEMES: dict[str, Position] = {
    "none": NoPosition(),
    "rope": Rope(),
    "alibi": Alibi(),
    "t5": T5Buckets(buckets=8, max_distance=6),
    "t5-blocks": T5Buckets(buckets=8, max_distance=6, of_blocks=True),
    "transformer-xl": TransformerXL(),
}
SIZES = (1, 3, 4, 13, 50)
IDS = torch.randint(0, 19, (3, 13), generator=torch.Generator().manual_seed(0))
LENGTHS = (13, 9, 2)


def config(positions: Position, size: int | None, **changes: Any) -> ModelConfig:
    options: dict[str, Any] = {
        "attention": AttentionConfig(n_heads=3, head_dim=6, kernel=Naive()),
        "visibility": Window(2, both_ways=True) | GlobalTokens(),
        "summaries": None if size is None else Summaries(size),
    }
    stack = StackConfig(n_layers=2, positions=positions, **(options | changes))
    return ModelConfig(vocab_size=19, d_model=24, context_length=32, encoder=stack, head=Pooled())


def model(positions: Position, size: int | None, **changes: Any) -> Transformer:
    net = Transformer(config(positions, size, **changes))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(0.0, 0.4, generator=generator)
    return net.eval()


def padded(side: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The first tokens of each row, with padding on a side; and which tokens are real."""
    columns, lengths = torch.arange(16), torch.tensor(LENGTHS)[:, None]
    real = columns >= 16 - lengths if side == "left" else columns < lengths
    ids = torch.zeros(3, 16, dtype=torch.long)
    for row, length in enumerate(LENGTHS):
        ids[row, real[row]] = IDS[row, :length]
    return ids, real


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", SCHEMES)
@torch.no_grad()
def test_padding_and_neighbours_change_nothing(scheme: str, size: int, side: str) -> None:
    net, (ids, real) = model(SCHEMES[scheme], size), padded(side)
    together = net.hidden(ids, tags=Tags.padded(real))
    for row, length in enumerate(LENGTHS):
        alone = net.hidden(IDS[row : row + 1, :length])
        assert torch.allclose(together[row, real[row]], alone[0], atol=1e-5)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", SCHEMES)
@torch.no_grad()
def test_kernels_agree(scheme: str, size: int) -> None:
    ids, real = padded("left")
    fast = AttentionConfig(n_heads=3, head_dim=6, kernel=Sdpa())
    one, other = model(SCHEMES[scheme], size), model(SCHEMES[scheme], size, attention=fast)
    tags = Tags.padded(real)
    assert torch.allclose(one.hidden(ids, tags=tags)[real], other.hidden(ids, tags=tags)[real], atol=1e-5)
    assert torch.allclose(one.hidden(IDS), other.hidden(IDS), atol=1e-5)


@pytest.mark.parametrize("size", SIZES)
@torch.no_grad()
def test_a_layer_computes_its_formula(size: int) -> None:
    """Softmax over the tokens in sight and one key a block, by hand."""
    net = model(NoPosition(), size, visibility=Full())
    body = net.towers["encoder"].stack.layers[0].steps["self"].branches["self"].body
    seen: list[torch.Tensor] = []
    handle = body.register_forward_hook(lambda module, given, out: seen.extend([given[0], out]))
    net.hidden(IDS[:1])
    handle.remove()
    x, found = seen
    blocks = [x[0, start : start + size] for start in range(0, 13 - size + 1, size)]
    if blocks and 13 % size:
        blocks[-1] = x[0, (13 // size - 1) * size :]
    norm = body.summaries.norm
    keys = torch.cat([x[0], *(norm(block.sum(0))[None] for block in blocks)])
    assert len(keys) == 13 + 13 // size
    heads = []
    for head in range(3):
        part = slice(6 * head, 6 * head + 6)
        q, k, v = body.query(x[0])[:, part], body.key(keys)[:, part], body.value(keys)[:, part]
        heads.append((q @ k.T * 6**-0.5).softmax(-1) @ v)
    assert torch.allclose(body.out(torch.cat(heads, -1)), found[0], atol=1e-5)


@pytest.mark.parametrize("scheme", ["none", "rope", "t5"])
@torch.no_grad()
def test_a_sequence_shorter_than_a_block_has_none(scheme: str) -> None:
    with_sums, without = model(SCHEMES[scheme], 14), model(SCHEMES[scheme], None)
    without.load_state_dict({name: value for name, value in with_sums.state_dict().items() if "summaries" not in name})
    assert torch.allclose(with_sums.hidden(IDS), without.hidden(IDS), atol=1e-6)


@torch.no_grad()
def test_a_far_token_is_seen_through_its_block_alone() -> None:
    near, far = model(NoPosition(), None), model(NoPosition(), 4)
    changed = IDS.clone()
    changed[:, -1] = (IDS[:, -1] + 1) % 19
    assert torch.equal(near.hidden(IDS)[:, 0], near.hidden(changed)[:, 0])
    assert not torch.equal(far.hidden(IDS)[:, 0], far.hidden(changed)[:, 0])


def test_the_rest_belongs_to_the_last_whole_block() -> None:
    tags = Tags.padded(torch.tensor([[True] * 11, [False] * 4 + [True] * 7, [True] * 2 + [False] * 9]))
    assert n_blocks(tags, 3).tolist() == [3, 2, 0]
    assert block_of(tags, 3).tolist() == [
        [0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2],
        [-1] * 4 + [0, 0, 0, 1, 1, 1, 1],
        [-1] * 11,
    ]


def test_every_table_learns() -> None:
    net = model(SCHEMES["t5-blocks"], 4)
    net.hidden(IDS).square().sum().backward()
    silent = [
        name
        for name, p in net.named_parameters()
        if not name.startswith("head") and (p.grad is None or not p.grad.any())
    ]
    assert not silent


def test_where_they_cannot_be() -> None:
    with pytest.raises(ConfigError, match="sees no later one"):
        StackConfig(n_layers=1, attention=AttentionConfig(n_heads=2), visibility=Causal(), summaries=Summaries(4))
    with pytest.raises(ConfigError, match="of_blocks"):
        model(T5Buckets(of_blocks=True), None)
    with pytest.raises(ConfigError, match="of_blocks"):
        model(T5Buckets(of_blocks=True, per_layer=True), 4)
    with pytest.raises(ConfigError, match=r"Summaries\.size"):
        Summaries(0)
    net = model(NoPosition(), 4)
    with pytest.raises(ConfigError, match="no cache"):
        net.hidden(IDS, cache=DenseCache())
    segment = torch.tensor([[0] * 6 + [1] * 7] * 3)
    position = torch.cat([torch.arange(6), torch.arange(7)]).expand(3, 13)
    with pytest.raises(MaskError, match="one document"):
        net.hidden(IDS, tags=Tags.of(position, segment=segment))


def test_the_config_is_plain_data() -> None:
    built = config(SCHEMES["t5-blocks"], 4)
    assert built.encoder is not None
    assert built.encoder.summaries == Summaries(4, RMSNorm())
    assert from_data(ModelConfig, to_data(built)) == built
