"""Sinks and window: equal to a slow reference that gives every key its place in the cache anew in each step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from transpect.base.errors import ConfigError
from transpect.cache import Sinks, SinksCache
from transpect.core import OtherLayers, PrefixLM, SameSegment, Tags, Transformer, Window
from transpect.core.block_visibility import Blocks
from transpect.core.context import NO_CARRY
from transpect.core.positions import Alibi, DynamicNTK, Learned, LongRope, Rope, Sinusoidal
from transpect.core.positions.rope import RotaryGeometry
from transpect.core.visibility import Causal

TOLERANCE = 1e-10  # float64
RELATIVE = ("none", "rope", "rope-partial", "rope-yarn", "alibi", "kerple", "t5", "t5-per-layer", "transformer-xl")


class Renumbered:
    """Keys that positions have not turned, of the first n tokens and the last M; turned by their places each time."""

    def __init__(self, n_sinks: int, limit: int, rotate: Callable[[int, Tensor], Tensor]) -> None:
        self.n_sinks, self.limit, self.rotate = n_sinks, limit, rotate
        self.held: dict[tuple[int, str], list[Tensor]] = {}
        self.length = 0

    @property
    def next_position(self) -> int:
        return min(self.length, self.n_sinks + self.limit)

    def admit(self, tags: Tags) -> Tags:
        self.length += 1
        return Tags.of(torch.arange(min(self.length, self.n_sinks + self.limit + 1))[None])

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return self.rotate(layer, self._all(layer, "key", key)), self._all(layer, "value", value)

    def carry(self, layer: int, key: Tensor, value: Tensor) -> Any:
        return *self.extend(layer, key, value), NO_CARRY

    def _all(self, layer: int, what: str, new: Tensor) -> Tensor:
        held = self.held.setdefault((layer, what), [])
        held.append(new)
        if len(held) > self.n_sinks + self.limit + 1:
            del held[self.n_sinks]
        return torch.cat(held, 2)


def reference(model: Transformer, ids: Tensor, n_sinks: int, limit: int, patch: pytest.MonkeyPatch) -> Tensor:
    """Logits [T, V] of one row, token by token."""
    turn, stack = RotaryGeometry.rotate_key, model.towers["decoder"].stack
    schemes = [stack.positions, *stack.other_positions]

    def rotate(layer: int, keys: Tensor) -> Tensor:
        places = Tags.of(torch.arange(keys.shape[2])[None])
        geometry = schemes[stack.scheme_of[stack.kind_of[layer]]].geometry(places, places, places, keys.dtype)
        return turn(geometry, keys) if isinstance(geometry, RotaryGeometry) else keys

    with patch.context() as context:
        context.setattr(RotaryGeometry, "rotate_key", lambda self, key: key)
        cache = Renumbered(n_sinks, limit, rotate)
        return torch.cat([model(ids[None, i : i + 1], cache=cache)[0] for i in range(len(ids))])


def stepped(model: Transformer, cache: SinksCache, rows: list[Tensor], piece: int) -> list[Tensor]:
    """Logits of the real tokens of each row, padded on the left: a piece, then token by token."""
    width = max(map(len, rows))
    ids = torch.stack([torch.cat([row.new_zeros(width - len(row)), row]) for row in rows])
    tags = Tags.padded(torch.stack([torch.arange(width) >= width - len(row) for row in rows]))
    if all(len(row) == width for row in rows):
        tags = Tags.dense(len(rows), width)
    parts = [slice(0, piece), *(slice(i, i + 1) for i in range(piece, width))]
    out = torch.cat([model(ids[:, part], tags=tags.columns(part), cache=cache) for part in parts], 1)
    return [out[i, width - len(row) :] for i, row in enumerate(rows)]


def gap(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    return float((a - b).abs().max())


SIZES = [(2, 3, 4), (0, 4, 1), (3, 0, 2), (1, 6, 8), (4, 50, 20)]


@pytest.mark.parametrize(
    ("positions", "n_sinks", "limit", "piece"),
    [*(("rope", *sizes) for sizes in SIZES), *((other, 2, 3, 4) for other in RELATIVE if other != "rope")],
)
@torch.no_grad()
def test_each_row_is_the_reference_alone(
    positions: str, n_sinks: int, limit: int, piece: int, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that overflow at different times, one of them shorter than the sinks; and rows that are alike."""
    model = tools.build(positions)
    kind = Sinks(n_sinks, limit)
    kind.check(model.config)
    for lengths in ([16, 11, 2, 16], [16, 16]):
        rows = [tools.tokens(1, length, seed=i)[0] for i, length in enumerate(lengths)]
        cache = kind.build(model.config)
        assert isinstance(cache, SinksCache)
        for row, out in zip(rows, stepped(model, cache, rows, min(piece, n_sinks + limit + 1)), strict=True):
            assert gap(out, reference(model, row, n_sinks, limit, monkeypatch)) <= TOLERANCE
        assert cache.length <= max(n_sinks + limit + 1, 0 if limit < 20 else 16)


@pytest.mark.parametrize("positions", RELATIVE)
@torch.no_grad()
def test_in_one_layer_it_is_a_pass_over_what_is_kept(positions: str, tools: Any) -> None:
    model, ids = tools.build(positions, layers=1), tools.tokens(2, 30)
    cache = Sinks(3, 5).build(model.config)
    for i in range(30):
        out = model(ids[:, i : i + 1], cache=cache)[:, -1]
        kept = ids[:, : i + 1] if i < 9 else torch.cat([ids[:, :3], ids[:, i - 5 : i + 1]], 1)
        assert gap(out, model(kept)[:, -1]) <= TOLERANCE


@torch.no_grad()
def test_layers_of_several_schemes(tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A base of their own, another window, biases instead of turns."""
    others = (
        OtherLayers(at=(1,), positions=Rope(theta=50.0, fraction=0.5), visibility=Window(4)),
        OtherLayers(at=(2,), positions=Alibi()),
    )
    model, row = tools.build(layers=3, others=others), tools.tokens(1, 18)[0]
    (out,) = stepped(model, Sinks(2, 5).build(model.config), [row], 3)
    assert gap(out, reference(model, row, 2, 5, monkeypatch)) <= TOLERANCE


@torch.no_grad()
def test_rows_that_leave_and_forks(tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tools.build()
    rows = [tools.tokens(1, length, seed=i)[0] for i, length in enumerate((12, 7, 5))]
    cache: Any = Sinks(2, 4).build(model.config)
    stepped(model, cache, rows, 2)
    for kept in ([2, 0, 1], [1, 0, 0], [0], [0, 0]):
        cache.select(torch.tensor(kept))
        cache.compact()
        rows = [rows[i] for i in kept]
        forked, more = cache.fork(), tools.tokens(len(rows), 4, seed=len(kept))
        for held in (cache, forked):
            own = more if held is cache else more.flip(1)
            for step in range(4):
                out = model(own[:, step : step + 1], cache=held)[:, -1]
            for row, new, logits in zip(rows, own, out, strict=True):
                expected = reference(model, torch.cat([row, new]), 2, 4, monkeypatch)[-1]
                assert gap(logits, expected) <= TOLERANCE
        rows = [torch.cat([row, new]) for row, new in zip(rows, more, strict=True)]
    assert isinstance(cache.next_position, int), "rows that are alike again are known to be"


@pytest.mark.parametrize("ragged", [False, True])
@torch.no_grad()
def test_memory_is_bounded(ragged: bool, tools: Any) -> None:
    model, cache = tools.build(context=16), Sinks().build(tools.build(context=16).config)
    ids = tools.tokens(2, 200)
    tags = Tags.padded(torch.tensor([[True] * 6, [not ragged] * 3 + [True] * 3]))
    model(ids[:, :6], tags=tags, cache=cache)
    sizes = set()
    for step in range(6, 60):
        model(ids[:, step : step + 1], cache=cache)
        if step > 20:
            sizes.add((cache.length, cache.nbytes))
    assert sizes == {(16, 2 * 2 * 2 * 2 * 16 * 4 * 8)}  # layers, keys and values, B, K, S, E, bytes


@torch.no_grad()
def test_long_after_in_float32_nothing_has_added_up(tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tools.build(layers=1).float()
    ids, cache = tools.tokens(1, 400)[0], Sinks(4, 11).build(model.config)
    for i in range(400):
        out = model(ids[None, i : i + 1], cache=cache)[0, -1]
    assert gap(out, model(torch.cat([ids[:4], ids[-12:]])[None])[0, -1]) <= 1e-5


@torch.no_grad()
def test_what_it_can_not_do_once_tokens_are_gone(tools: Any) -> None:
    model, cache = tools.build(), SinksCache(2, 3, [lambda key, by: key] * 2)
    model(tools.tokens(1, 6), cache=cache)
    with pytest.raises(ConfigError, match=r"one at a time.*2 tokens, up to position 7.*prefill_chunk"):
        model(tools.tokens(1, 2), cache=cache)
    assert cache.length == 6
    model(tools.tokens(1, 1), cache=cache)
    keep = torch.ones(1, cache.length, dtype=torch.bool)
    cache.forget(keep)
    keep[0, -1] = False
    for act in (lambda: cache.crop(3), lambda: cache.forget(keep)):
        with pytest.raises(ConfigError, match=r"can't take tokens back.*fork"):
            act()
    cache.crop(0)
    assert (cache.length, cache.next_position) == (0, 0)


DYNAMIC = DynamicNTK(factor=2.0, original_length=6)
LONG = LongRope(short=(1.0, 1.5), long=(1.0, 9.0), original_length=6, factor=2.0)


@pytest.mark.parametrize(
    ("positions", "rule", "says"),
    [
        (Learned(), Causal(), "positions learned"),
        (Sinusoidal(), Causal(), "positions sinusoidal"),
        (Rope(scaling=DYNAMIC), Causal(), "positions rope"),
        (Rope(scaling=LONG), Causal(), "positions rope"),
        (Rope(), Causal() & Blocks(4), "visibility all"),
        (Rope(), PrefixLM(), "visibility prefix_lm"),
    ],
)
def test_refuses_what_can_t_move(positions: Any, rule: Any, says: str, tools: Any) -> None:
    config = tools.build().config
    refused = replace(config, decoder=replace(config.decoder, positions=positions, visibility=rule))
    configs = [refused]
    if not positions.embeds:
        others = (OtherLayers(at=(1,), positions=positions, visibility=rule),)
        configs.append(replace(config, decoder=replace(config.decoder, others=others)))
    for config in configs:
        with pytest.raises(ConfigError, match=rf"sinks follow the window.*{says}.*overflow=stop"):
            Sinks(2, 3).check(config)


def test_takes_packed_documents_and_refuses_what_exceeds_the_context(tools: Any) -> None:
    config = tools.build(rule=Causal() & SameSegment(), context=16).config
    Sinks().check(config)
    Sinks(4, 11).check(config)
    for kind in (Sinks(4, 12), Sinks(16), Sinks(17)):
        with pytest.raises(ConfigError, match="must fit the model's context of 16"):
            kind.check(config)
    for wrong in ({"n_sinks": -1}, {"memory": -1}):
        with pytest.raises(ConfigError, match="at least 0"):
            Sinks(**wrong)
