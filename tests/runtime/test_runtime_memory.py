"""Keys in blocks and rings: a program gives the same whatever they lie in, and holds no more than it should."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from transpect.base.errors import ConfigError
from transpect.cache import CacheKind, Dense, Paged, Sliding, SlidingCache, Static
from transpect.core import (
    AttentionConfig,
    Causal,
    ModelConfig,
    OtherLayers,
    StackConfig,
    Tags,
    Transformer,
    Visibility,
    Window,
)
from transpect.core.positions import Alibi, Position, Rope, T5Buckets
from transpect.runtime import Layout, Program
from transpect.runtime.memory import MOST_ROWS, Memory

VOCAB = 37
POSITIONS: dict[str, Position] = {"rope": Rope(), "alibi": Alibi(), "t5": T5Buckets(buckets=8, max_distance=6)}


def built(positions: str, rule: Visibility | None = None, others: tuple[OtherLayers, ...] = ()) -> Transformer:
    attention = AttentionConfig(n_heads=4, n_kv_heads=2)
    stack = StackConfig(2, attention=attention, positions=POSITIONS[positions], visibility=rule or Causal())
    model = Transformer(ModelConfig(VOCAB, 16, 64, decoder=replace(stack, others=others))).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


def drawn(draw: torch.Generator, low: int, high: int) -> int:
    return int(torch.randint(low, high + 1, (), generator=draw))


@pytest.mark.parametrize("block", [1, 3, 16])
@pytest.mark.parametrize("positions", POSITIONS)
def test_blocks_change_no_bit(positions: str, block: int) -> None:
    """Whatever becomes of the sequences: several tokens a call, taken back, chosen twice, more of them than before."""
    model, draw = built(positions, others=(OtherLayers(at=(1,), visibility=Causal() & Window(5)),)), torch.Generator()
    draw.manual_seed(block)
    plain, paged = Program(model, 3, 60), Program(model, 3, 60, layout=Layout(block))
    for _ in range(30):
        rows, act = len(plain.lengths), drawn(draw, 0, 3)
        longest = int(plain.lengths.max())
        if act == 0 and longest:
            counts = [drawn(draw, 0, min(4, length)) for length in plain.lengths.tolist()]
            for program in (plain, paged):
                program.forget(counts)
        elif act == 1:
            index = torch.randint(0, rows, (drawn(draw, 1, 5),), generator=draw).tolist()
            for program in (plain, paged):
                program.select(index)
        elif longest < 40:
            n = drawn(draw, 1, 12)
            tokens = torch.randint(0, VOCAB, (n,), generator=draw)
            sequence = torch.randint(0, rows, (n,), generator=draw).tolist()
            for own, other in zip(plain.read(tokens, sequence), paged.read(tokens, sequence), strict=True):
                assert torch.equal(own, other)
        assert plain.lengths.tolist() == paged.lengths.tolist()


def sliding_steps(model: Transformer, limit: int, tokens: Tensor, pieces: list[int]) -> Tensor:
    """Logits [T, V] of one sequence in pieces, by the model and its cache."""
    cache, out, start = SlidingCache(limit), [], 0
    with torch.no_grad():
        for size in pieces:
            tags = Tags.dense(1, size, start=start)
            out.append(model(tokens[None, start : start + size], tags=tags, cache=cache)[0])
            start += size
    return torch.cat(out)


@pytest.mark.parametrize("block", [None, 1, 4])
@pytest.mark.parametrize("limit", [0, 1, 5, 31, 200])
@pytest.mark.parametrize("positions", POSITIONS)
def test_a_ring_is_a_window(positions: str, limit: int, block: int | None) -> None:
    """Token by token it is one pass under `Window` (M + 1), far beyond what is held, and after being chosen twice."""
    length = 90
    tokens = torch.randint(0, VOCAB, (2, length), generator=torch.Generator().manual_seed(limit))
    with torch.no_grad():
        expected = built(positions, Causal() & Window(limit + 1))(tokens)
    program = Program(built(positions), 2, length, layout=Layout(block, limit))
    for step in range(length):
        if step % 25 == 24:
            program.select([1, 0, 0])
            program.select([1, 0])
        found, _ = program.read(tokens[:, step], [0, 1])
        assert torch.allclose(found, expected[:, step], atol=1e-5, rtol=1e-5)
    held = Memory(Layout(block, limit), 2, length)
    assert program._memory.used <= held.size - 1 <= 2 * (min(length, limit + MOST_ROWS) // held.block + 2)


@pytest.mark.parametrize("pieces", [[7, 1, 1, 32, 5, 1], [1, 32, 32, 2], [32, 1, 30]], ids=str)
@pytest.mark.parametrize("limit", [0, 3, 40])
def test_several_tokens_a_call_are_a_piece(limit: int, pieces: list[int]) -> None:
    """All of them see the M tokens before the first, as in `SlidingCache`; also where a call takes several passes."""
    model, total = built("rope"), sum(pieces)
    tokens = torch.randint(0, VOCAB, (2, total), generator=torch.Generator().manual_seed(1))
    program, out, start = Program(model, 2, total, layout=Layout(memory=limit)), [], 0
    for size in pieces:
        part = tokens[:, start : start + size]
        logits, _ = program.read(part.flatten(), [0] * size + [1] * size)
        out.append(logits.view(2, size, -1))
        start += size
    for row, found in zip(tokens, torch.cat(out, 1), strict=True):
        assert torch.allclose(found, sliding_steps(model, limit, row, pieces), atol=1e-5, rtol=1e-5)


KINDS: list[CacheKind] = [Dense(), Static(30), Paged(4), Sliding(0), Sliding(3), Sliding(20)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_a_cache_of_each_kind_holds_is_taken_over(kind: CacheKind, dtype: torch.dtype) -> None:
    """Rows that are padded on the left; each then goes on as the cache does by itself."""
    model, width, lengths = built("rope").to(dtype), 9, torch.tensor([[9], [1], [5]])
    ids = torch.randint(0, VOCAB, (3, width), generator=torch.Generator().manual_seed(2))
    cache = kind.build(model.config)
    layout = Layout(kind.block if isinstance(kind, Paged) else None, getattr(kind, "memory", None))
    program = Program(model, 3, 30, layout=layout)
    with torch.inference_mode():
        model(ids, tags=Tags.padded(torch.arange(width) >= width - lengths), cache=cache)
        program.fill(cache.fork())
        assert program.lengths.tolist() == lengths.flatten().tolist()
        for step in range(4):
            token = torch.tensor([step, 30 - step, 12])
            found, _ = program.read(token, [0, 1, 2])
            after = torch.as_tensor(cache.next_position).expand(3, 1)
            expected = model(token[:, None], tags=Tags.of(after), cache=cache)[:, 0].float()
            assert torch.allclose(found, expected, atol=1e-5 if dtype == torch.float32 else 0.15)


def test_sequences_share_how_they_begin() -> None:
    model = built("rope")
    program = Program(model, 1, 40, layout=Layout(4))
    program.begin({0: list(range(18))})
    assert program._memory.used == 5
    program.select([0] * 6)
    assert program._memory.used == 5
    program.read(torch.arange(6), list(range(6)))
    assert program._memory.used == 4 + 6
    program.select([3])
    assert program._memory.used == 5


def test_sizes_are_checked() -> None:
    for options in ({"block": 0}, {"memory": -1}):
        with pytest.raises(ConfigError, match="must be at least"):
            Layout(**options)
