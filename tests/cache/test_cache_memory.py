"""Segment by segment with a memory equals one pass: over everything, or under the rule that a short memory is."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from transpect.base.errors import ConfigError, ContextLengthError, MaskError
from transpect.cache import SegmentMemory, SlidingCache, check_memory
from transpect.core import (
    AttentionConfig,
    Causal,
    CausalLM,
    Full,
    MaskedLM,
    ModelConfig,
    OtherLayers,
    Post,
    Pre,
    PrefixLM,
    SameSegment,
    StackConfig,
    Tags,
    Transformer,
    Visibility,
    Window,
)
from transpect.core.block_visibility import Blocks, EdgeBlocks
from transpect.core.positions import (
    Alibi,
    DynamicNTK,
    Learned,
    LinearScaling,
    Llama3Scaling,
    LongRope,
    NoPosition,
    Position,
    RepeatedBlock,
    Rope,
    Sinusoidal,
    T5Buckets,
    TransformerXL,
    Yarn,
)

TOLERANCE = 1e-12  # float64
LENGTH = 13
IDS = torch.randint(0, 19, (2, LENGTH), generator=torch.Generator().manual_seed(0))

FOLLOWS: dict[str, Position] = {
    "none": NoPosition(),
    "sinusoidal": Sinusoidal(),
    "sinusoidal-spread": Sinusoidal(halves=True, spread=True, offset=2),
    "rope": Rope(),
    "rope-interleaved": Rope(interleaved=True, fraction=0.5),
    "rope-linear": Rope(scaling=LinearScaling(factor=2.0)),
    "rope-yarn": Rope(scaling=Yarn(factor=4.0, original_length=8)),
    "rope-llama3": Rope(scaling=Llama3Scaling(original_length=16)),
    "alibi": Alibi(),
    "t5": T5Buckets(buckets=8, max_distance=6),
    "transformer-xl": TransformerXL(),
}
FAILS: dict[str, Position] = {
    "learned": Learned(),
    "rope-dynamic": Rope(scaling=DynamicNTK(factor=2.0, original_length=6)),
    "rope-longrope": Rope(scaling=LongRope(short=(1.0, 1.5), long=(1.0, 9.0), original_length=6, factor=2.0)),
    "repeated-block": RepeatedBlock(size=2, times=3, above=4, inner=NoPosition()),
}
RULES: dict[str, Visibility] = {"causal": Causal(), "window": Window(4), "packed": Causal() & SameSegment()}
PIECES = [(4, 4, 4, 1), (5, 8), (1, 3, 9), (1,) * LENGTH, (LENGTH,)]


def config_of(
    positions: Position, rule: Visibility | None = None, *, context: int = 64, layers: int = 3
) -> ModelConfig:
    stack = StackConfig(
        n_layers=layers,
        attention=AttentionConfig(n_heads=4, n_kv_heads=2),
        positions=positions,
        visibility=rule or Causal(),
        placement=Post() if isinstance(positions, TransformerXL) else Pre(),
    )
    return ModelConfig(vocab_size=19, d_model=16, context_length=context, decoder=stack, head=CausalLM())


def build(config: ModelConfig, kernel: str = "sdpa") -> Transformer:
    chosen = config if kernel == "sdpa" else config.with_kernel(kernel)  # a rule of a test has no name to be read by
    model = Transformer(chosen).eval().double()
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.4)
    return model


def tags_of(rule: str, position: Tensor) -> Tags:
    """Two documents a row under `SameSegment`, one otherwise."""
    return Tags.of(position, segment=(position >= 6).long() if rule == "packed" else None)


def in_segments(model: Transformer, pieces: tuple[int, ...], limit: int, tags: Tags | None = None) -> Tensor:
    memory, done, outs = SegmentMemory(limit), 0, []
    for size in pieces:
        part = slice(done, done + size)
        outs.append(model(IDS[:, part], tags=None if tags is None else tags.columns(part), memory=memory))
        done += size
    return torch.cat(outs, 1)


def gap(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    return float((a - b).abs().max())


@pytest.mark.parametrize("kernel", ["naive", "sdpa", "flash", "block_sparse"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("positions", FOLLOWS)
@torch.no_grad()
def test_a_memory_as_long_as_the_past_is_one_pass(positions: str, rule: str, kernel: str) -> None:
    config = config_of(FOLLOWS[positions], RULES[rule])
    check_memory(config)
    model = build(config, kernel)
    tags = tags_of(rule, torch.arange(LENGTH).expand(2, LENGTH))
    whole = model(IDS, tags=tags)
    assert float(whole.abs().max()) > 0.1, "this comparison would not see anything"
    for pieces in PIECES if kernel == "sdpa" else PIECES[:2]:
        assert gap(in_segments(model, pieces, LENGTH, tags), whole) <= TOLERANCE
        if rule != "packed" and kernel == "sdpa":  # tags that nobody states go on where the memory ends
            assert gap(in_segments(model, pieces, LENGTH), whole) <= TOLERANCE


@pytest.mark.parametrize("positions", FOLLOWS)
@torch.no_grad()
def test_and_so_in_float32(positions: str) -> None:
    model = build(config_of(FOLLOWS[positions])).float()
    whole = model(IDS)
    assert all(gap(in_segments(model, pieces, LENGTH), whole) <= 1e-5 for pieces in PIECES)


@pytest.mark.parametrize("positions", FAILS)
@torch.no_grad()
def test_what_is_refused_would_not_be_one_pass(positions: str) -> None:
    """Either the model itself refuses to go on, or the first segment was read as if it were all."""
    config = config_of(FAILS[positions], context=LENGTH - 1 if positions == "learned" else 64)
    with pytest.raises(ConfigError, match="with a memory"):
        check_memory(config)
    model = build(config)
    if positions == "repeated-block":
        assert gap(in_segments(model, (5, 8), LENGTH), model(IDS)) > 1e-3
    else:
        with pytest.raises((ContextLengthError, ConfigError)):
            in_segments(model, (5, 8), LENGTH)


@dataclass(frozen=True)
class Recurrence(Visibility):
    """⌊i/T⌋·T − M ≤ j ≤ i."""

    segment: int
    memory: int

    def sees(self, query: Tags, key: Tags) -> Tensor:
        first = query.position.div(self.segment, rounding_mode="floor") * self.segment - self.memory
        return (key.position <= query.position) & (key.position >= first)


@pytest.mark.parametrize("positions", ["transformer-xl", "rope", "none"])
@pytest.mark.parametrize("limit", [0, 1, 3, 4, 8])
@pytest.mark.parametrize("segment", [1, 3, 4])
@torch.no_grad()
def test_a_short_memory_is_one_pass_under_a_rule_in_every_layer(positions: str, limit: int, segment: int) -> None:
    pieces = tuple(min(segment, LENGTH - start) for start in range(0, LENGTH, segment))
    rules: list[Visibility] = [Recurrence(segment, limit)]
    rules += [Causal() & Blocks(segment, limit // segment)] if limit % segment == 0 else []
    rules += [Window(limit + 1)] if segment == 1 else []
    causal = build(config_of(FOLLOWS[positions]))
    for rule in rules:
        ruled = build(config_of(FOLLOWS[positions], rule))
        assert gap(in_segments(causal, pieces, limit), ruled(IDS)) <= TOLERANCE
    assert gap(in_segments(causal, pieces, limit), causal(IDS)) > 1e-3


@pytest.mark.parametrize("positions", FOLLOWS)
@torch.no_grad()
def test_kept_keys_and_values_are_those_that_a_memory_computes(positions: str) -> None:
    """Also for padded rows, and after rows were chosen."""
    model = build(config_of(FOLLOWS[positions]))
    real = torch.ones(2, LENGTH, dtype=torch.bool)
    real[1, :4] = False
    for limit, tags in itertools.product((0, 3, 64), (None, Tags.padded(real))):
        for pieces in PIECES[:3]:
            memory, cache, done = SegmentMemory(limit), SlidingCache(limit), 0
            for number, size in enumerate(pieces):
                part = slice(done, done + size)
                own = None if tags is None else tags.columns(part)
                expected = model(IDS[:, part], tags=own, memory=memory)
                assert gap(model(IDS[:, part], tags=own, cache=cache), expected) <= TOLERANCE
                done += size
                assert cache.length == memory.length == min(limit, done)
                assert torch.equal(torch.as_tensor(cache.next_position), torch.as_tensor(memory.next_position))
                if tags is None and number == 0:
                    cache.select(torch.tensor([1, 0]))
                    cache.select(torch.tensor([1, 0]))
                cache.compact()


class Detaching:
    """One pass in which the layers' inputs of the first tokens have no gradient."""

    length, next_position = 0, 0

    def __init__(self, past: int) -> None:
        self.past = past

    def admit(self, tags: Tags) -> Tags:
        return tags

    def extend(self, layer: int, hidden: Tensor) -> Tensor:
        return torch.cat([hidden[:, : self.past].detach(), hidden[:, self.past :]], 1)


def gradients(model: Transformer, logits: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    direction = torch.randn(logits.shape, generator=torch.Generator().manual_seed(2), dtype=logits.dtype)
    (logits * direction).sum().backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("past", [1, 5, 12])
@pytest.mark.parametrize("positions", ["transformer-xl", "rope", "sinusoidal", "t5"])
def test_gradients_stay_within_the_segment(positions: str, past: int) -> None:
    model = build(config_of(FOLLOWS[positions]))
    memory = SegmentMemory(LENGTH)
    model(IDS[:, :past], memory=memory)
    found = gradients(model, model(IDS[:, past:], memory=memory))
    expected = gradients(model, model(IDS, memory=Detaching(past))[:, past:])
    assert found.keys() == expected.keys()
    assert max(gap(found[name], expected[name]) for name in found) <= 1e-10
    through = gradients(model, model(IDS)[:, past:])
    assert max(gap(found[name], through[name]) for name in found) > 1e-3


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("limit", [0, 3, 64])
@torch.no_grad()
def test_what_is_kept_as_tensors_goes_on_bit_for_bit(limit: int, padded: bool) -> None:
    model = build(config_of(TransformerXL()))
    real = torch.ones(2, 6, dtype=torch.bool)
    real[0, 3:] = not padded
    memory = SegmentMemory(limit)
    again = SegmentMemory.of(memory.tensors(), "cpu")
    assert again.length == 0 and again.next_position == 0
    for held in (memory, again):
        model(IDS[:, :6], tags=Tags.padded(real) if padded else None, memory=held)
    kept = memory.tensors()
    pointers = [tensor.untyped_storage().data_ptr() for tensor in kept.values() if tensor.numel()]
    assert len(set(pointers)) == len(pointers), "safetensors refuses what shares storage"
    again = SegmentMemory.of(kept, "cpu")
    assert (again.limit, again.length) == (limit, min(limit, 6))
    for part in (slice(6, 8), slice(8, 13)):
        assert torch.equal(model(IDS[:, part], memory=memory), model(IDS[:, part], memory=again))
    assert torch.equal(torch.as_tensor(memory.next_position), torch.as_tensor(again.next_position))


@torch.no_grad()
def test_packed_rows_go_on_only_with_stated_tags() -> None:
    model = build(config_of(Rope(), RULES["packed"]))
    tags = tags_of("packed", torch.arange(LENGTH).expand(2, LENGTH))
    memory = SegmentMemory(8)
    model(IDS[:, :8], tags=tags.columns(slice(0, 8)), memory=memory)
    for held in (memory, SegmentMemory.of(memory.tensors(), "cpu")):
        with pytest.raises(MaskError, match=r"several packed documents.*State the tags"):
            model(IDS[:, 8:], memory=held)
    model(IDS[:, 8:], tags=tags.columns(slice(8, None)), memory=memory)


def encoder_decoder() -> ModelConfig:
    config = config_of(Rope())
    stack = config.last
    return replace(config, encoder=replace(stack, visibility=Full()), decoder=stack)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (
            replace(config_of(Rope()), encoder=config_of(Rope(), Full()).last, decoder=None, head=MaskedLM()),
            "decoder alone",
        ),
        (encoder_decoder(), "decoder alone"),
        (config_of(Rope(), Full()), "no token may see a later one"),
        (config_of(Rope(), Window(3, both_ways=True)), "no token may see a later one"),
        (config_of(Rope(), Causal() & EdgeBlocks(4)), "how long the whole will be"),
        (config_of(Learned(offset=2)), "positions end"),
        (config_of(RepeatedBlock()), "positions end"),
        (
            replace(
                config_of(Rope()),
                decoder=replace(config_of(Rope()).last, others=(OtherLayers(at=(1,), visibility=Full()),)),
            ),
            "no token may see a later one",
        ),
    ],
    ids=["encoder", "encoder-decoder", "full", "both ways", "edges", "learned", "repeated", "one layer"],
)
def test_refuses_what_can_t_go_on(config: ModelConfig, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as error:
        check_memory(config)
    assert error.value.remedy


def test_a_prefix_rule_is_causal_where_nobody_marks_a_prefix() -> None:
    check_memory(config_of(Rope(), PrefixLM()))
