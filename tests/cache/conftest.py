"""A batch in a cache, and the same tokens as plain lists of rows: what is done to the one is done to the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from transpect.core import (
    NO_CACHE,
    AttentionConfig,
    CausalLM,
    ModelConfig,
    Post,
    Pre,
    StackConfig,
    Tags,
    Transformer,
    Visibility,
)
from transpect.core.kernels import Linear
from transpect.core.positions import (
    Alibi,
    Kerple,
    Learned,
    NoPosition,
    Position,
    Rope,
    Sinusoidal,
    T5Buckets,
    TransformerXL,
    Yarn,
)
from transpect.core.visibility import Causal

VOCAB = 19
POSITIONS: dict[str, Position] = {
    "none": NoPosition(),
    "sinusoidal": Sinusoidal(),
    "learned": Learned(),
    "rope": Rope(),
    "rope-partial": Rope(interleaved=True, fraction=0.5),
    "rope-yarn": Rope(scaling=Yarn(factor=4.0, original_length=8)),
    "alibi": Alibi(),
    "kerple": Kerple(),
    "t5": T5Buckets(buckets=8, max_distance=6),
    "t5-per-layer": T5Buckets(buckets=8, max_distance=6, per_layer=True),
    "transformer-xl": TransformerXL(),
}


def build(
    positions: str = "rope",
    *,
    rule: Visibility | None = None,
    sums: bool = False,
    layers: int = 2,
    others: tuple[Any, ...] = (),
    context: int = 64,
) -> Transformer:
    scheme = POSITIONS[positions]
    attention = AttentionConfig(n_heads=4, n_kv_heads=2)
    stack = StackConfig(
        n_layers=layers,
        attention=replace(attention, kernel=Linear()) if sums else attention,
        positions=scheme,
        visibility=rule or Causal(),
        placement=Post() if isinstance(scheme, TransformerXL) else Pre(),
        others=others,
    )
    config = ModelConfig(vocab_size=VOCAB, d_model=16, context_length=context, decoder=stack, head=CausalLM(tied=False))
    model = Transformer(config).eval().double()
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator, dtype=torch.float64) * 0.4)
    return model


def tokens(rows: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(0, VOCAB, (rows, length), generator=torch.Generator().manual_seed(seed))


def left(lengths: list[int], width: int) -> Tags:
    """Of rows that are padded on the left."""
    return Tags.padded(torch.arange(width) >= width - torch.tensor(lengths)[:, None])


@dataclass
class Batch:
    """``cache`` and what it should hold: of each row the ids and their positions."""

    model: Transformer
    cache: Any
    passed: Callable[[Tensor, Tags, Any], Tensor]
    fresh: Callable[[], Any]
    columns: list[list[tuple[int, int] | None]] = field(default_factory=list)

    def feed(self, ids: Tensor, real: Tensor | None = None) -> Tensor:
        """Read [B, T]; logits [B, T, V]."""
        real = torch.ones_like(ids, dtype=torch.bool) if real is None else real
        self.columns = self.columns or [[] for _ in ids]
        positions = []
        for row, own, is_real in zip(self.columns, ids.tolist(), real.tolist(), strict=True):
            after = max((token[1] for token in row if token is not None), default=-1) + 1
            new = [None if not there else (id, 0) for id, there in zip(own, is_real, strict=True)]
            for place, token in enumerate(new):
                if token is not None:
                    new[place], after = (token[0], after), after + 1
            row.extend(new)
            positions.append([-1 if token is None else token[1] for token in new])
        return self.passed(ids, Tags.of(torch.tensor(positions)), self.cache)

    def expected(self) -> Tensor:
        """The last logits of each row [B, V], of one pass over what should be left, alone."""
        out = []
        for row in self.columns:
            ids, positions = zip(*(token for token in row if token is not None), strict=True)
            alone = self.passed(torch.tensor([ids]), Tags.of(torch.tensor([positions])), self.fresh())
            out.append(alone[0, -1])
        return torch.stack(out)

    def goes_on(self, tolerance: float, steps: int = 2, seed: int = 50) -> None:
        """Feed a token a row, some times; each must give what one pass gives, and stand where the cache says."""
        for step in range(steps):
            after = [max((token[1] for token in row if token is not None), default=-1) + 1 for row in self.columns]
            said = torch.as_tensor(self.cache.next_position).expand(len(after), 1)
            assert said.flatten().tolist() == after
            out = self.feed(tokens(len(self.columns), 1, seed + step))[:, -1]
            expected = self.expected()
            assert out.shape == expected.shape
            assert float((out - expected).abs().max()) <= tolerance

    def keep_rows(self, rows: Sequence[int]) -> None:
        self.cache.select(torch.tensor(rows))
        self.columns = [list(self.columns[row]) for row in rows]

    def crop(self, length: int) -> None:
        self.cache.crop(length)
        self.columns = [row[:length] for row in self.columns]

    def compact(self) -> None:
        """Which columns a row's padding is in is no longer known."""
        self.cache.compact()
        self.columns = [[token for token in row if token is not None] for row in self.columns]

    def forget(self, keep: Tensor) -> None:
        self.cache.forget(keep)
        self.columns = [
            [token if kept else None for token, kept in zip(row, own, strict=True)]
            for row, own in zip(self.columns, keep.tolist(), strict=True)
        ]
        while self.columns[0] and all(row[-1] is None for row in self.columns):
            self.columns = [row[:-1] for row in self.columns]

    def fork(self) -> Batch:
        return replace(self, cache=self.cache.fork(), columns=[list(row) for row in self.columns])


def as_cache(model: Transformer) -> Callable[[Tensor, Tags, Any], Tensor]:
    return lambda ids, tags, cache: model(ids, tags=tags, cache=NO_CACHE if cache is None else cache)


@pytest.fixture(scope="session")
def tools() -> SimpleNamespace:
    """For the files of this folder; `built` makes each model once."""
    return SimpleNamespace(
        build=build,
        built=cache(build),
        tokens=tokens,
        left=left,
        of=Tags.of,
        Batch=Batch,
        as_cache=as_cache,
        POSITIONS=POSITIONS,
    )
