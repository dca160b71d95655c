"""Several tokens at once and back again: `extend` is as many `advance`s, and what was forgotten was never read.

Each row is compared with itself read alone and anew, over position schemes × shapes of model × padding.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from transpect.base.errors import ConfigError
from transpect.core import Tags, Transformer
from transpect.core.kernels.linear import Linear
from transpect.decode import Stepper

POSITIONS = ("none", "sinusoidal", "learned", "rope", "rope-dynamic", "alibi", "t5", "transformer-xl")
SHAPES = ("mha", "gqa", "window", "packed", "prefix", "encoder-decoder")
PROMPTS = {"even": [[3, 4, 5], [6, 7, 8], [9, 1, 2]], "padded": [[3], [4, 5, 6, 7, 8], [9, 10, 2]]}
SOURCES = [[1, 2, 3, 4], [5], [6, 7]]
HORIZON = 40
TOLERANCE = 1e-10  # float64


def some(rows: int, k: int, seed: int) -> Tensor:
    return torch.randint(0, 31, (rows, k), generator=torch.Generator().manual_seed(seed))


def stepper(model: Transformer, prompts: list[list[int]], **options: Any) -> Stepper:
    sources = SOURCES[: len(prompts)] if model.config.encoder else None
    steps = Stepper(model, prompts, horizons=[HORIZON] * len(prompts), sources=sources, **options)
    steps.prefill()
    return steps


class Anew:
    """Rows of ids, each read alone, whole and without a cache."""

    def __init__(self, model: Transformer, prompts: list[list[int]]) -> None:
        self.model, self.prompts, self.rows = model, prompts, [list(prompt) for prompt in prompts]
        self.sources = SOURCES[: len(prompts)]

    @torch.no_grad()
    def read(self, tokens: Tensor, real: Tensor) -> list[tuple[Tensor, Tensor]]:
        """What the head reads and gives at the real tokens of each row."""
        found = []
        for row, prompt, source, new, there in zip(self.rows, self.prompts, self.sources, tokens, real, strict=True):
            ids = [*row, *new[there].tolist()]
            position = torch.arange(len(ids))[None]
            tags = Tags.of(position, prefix=position < len(prompt), horizon=torch.tensor([HORIZON]))
            given = {"source": self.model.encode(torch.tensor([source]))} if self.model.config.encoder else {}
            hidden = self.model.hidden(torch.tensor([ids]), tags=tags, **given)[0, len(row) :]
            found.append((hidden, self.model.head(hidden[None], tags, self.model.token.weight)[0]))
        return found

    def keep(self, tokens: Tensor, kept: Tensor) -> None:
        for row, new, there in zip(self.rows, tokens, kept, strict=True):
            row.extend(new[there].tolist())

    def select(self, rows: list[int]) -> None:
        self.rows = [list(self.rows[i]) for i in rows]
        self.prompts, self.sources = [self.prompts[i] for i in rows], [self.sources[i] for i in rows]


def agree(steps: Stepper, anew: Anew, tokens: Tensor, real: Tensor | None) -> None:
    """Read these, and find at every real token what a row alone has there."""
    logits = steps.extend(tokens, real)
    there = torch.ones_like(tokens, dtype=torch.bool) if real is None else real
    assert logits.isfinite().all()
    for i, (hidden, expected) in enumerate(anew.read(tokens, there)):
        assert float((logits[i, there[i]] - expected).abs().max()) <= TOLERANCE if len(expected) else True
        assert float((steps.hidden[i, there[i]] - hidden).abs().max()) <= TOLERANCE if len(hidden) else True


def holes(rows: int, k: int, seed: int) -> Tensor:
    return torch.rand(rows, k, generator=torch.Generator().manual_seed(seed)) < 0.6


def first(real: Tensor, counts: list[int]) -> Tensor:
    """The first so many real tokens of each row."""
    return real & (real.cumsum(1) <= torch.tensor(counts)[:, None])


@pytest.mark.parametrize(
    ("positions", "shape", "padding"),
    [*itertools.product(POSITIONS, SHAPES, ["padded"]), *itertools.product(POSITIONS, ["mha"], ["even"])],
)
def test_rows_read_and_forget_as_if_alone(positions: str, shape: str, padding: str, tools: Any) -> None:
    """All present or with holes; keeping all, nothing, or other numbers of tokens in each row; `select` between."""
    model, prompts = tools.model(tools.Case(positions, shape)), PROMPTS[padding]
    steps, anew = stepper(model, prompts), Anew(model, prompts)
    turns = [
        (3, False, [0, 1, 2]),
        (1, False, [1, 1, 1]),
        (4, True, [2, 0, 1]),
        (2, False, [0, 0, 0]),
        (4, True, [9, 1, 9]),
        (2, False, [1, 2]),
    ]
    for turn, (k, gaps, counts) in enumerate(turns):
        rows = len(anew.rows)
        tokens, real = some(rows, k, turn), holes(rows, k, turn) if gaps else None
        agree(steps, anew, tokens, real)
        present = torch.ones(rows, k, dtype=torch.bool) if real is None else real
        keep = first(present, counts[:rows])
        if not torch.equal(keep, present) or turn % 2:
            steps.forget(keep)
        anew.keep(tokens, keep)
        if turn == 3:
            steps.select([2, 0])
            anew.select([2, 0])


@pytest.mark.parametrize("shape", SHAPES)
def test_extend_is_as_many_advances(shape: str, tools: Any) -> None:
    model = tools.model(tools.Case("rope", shape))
    tokens = some(3, 5, 0)
    together = stepper(model, PROMPTS["padded"]).extend(tokens)
    one_by_one = stepper(model, PROMPTS["padded"])
    for column in range(5):
        assert float((one_by_one.advance(tokens[:, column]) - together[:, column]).abs().max()) <= TOLERANCE
        assert one_by_one.hidden.shape == (3, 1, 16)


def test_a_token_alone_can_be_taken_back(tools: Any) -> None:
    model = tools.model()
    steps, anew = stepper(model, PROMPTS["padded"]), Anew(model, PROMPTS["padded"])
    for seed in range(3):
        steps.advance(some(3, 1, seed)[:, 0])
        steps.forget(torch.tensor([[True], [False], [False]]))
        anew.keep(some(3, 1, seed), torch.tensor([[True], [False], [False]]))
    agree(steps, anew, some(3, 2, 9), None)


def test_rows_of_one_pace_stay_without_padding(tools: Any) -> None:
    """A crop, so that the next pass takes the path of plain rows."""
    steps = stepper(tools.model(), PROMPTS["even"])
    steps.extend(some(3, 4, 0))
    steps.forget(torch.tensor([[True, True, False, False]]).expand(3, -1))
    assert (steps._cache.length, steps._cache.next_position) == (5, 5)


def test_memory_follows_the_longest_row(tools: Any) -> None:
    """Rows take turns in keeping much: without moving them together there would be a column for every token kept."""
    model = tools.model(context_length=700)
    steps, anew = stepper(model, PROMPTS["padded"]), Anew(model, PROMPTS["padded"])
    for turn in range(64):
        tokens = some(3, 4, turn)
        steps.extend(tokens)
        keep = torch.arange(4) < torch.where(torch.arange(3) == turn % 3, 4, 1)[:, None]
        steps.forget(keep)
        anew.keep(tokens, keep)
    longest = max(map(len, anew.rows))
    assert steps._cache.length == longest < 140
    agree(steps, anew, some(3, 3, 99), None)


def shorter(model: Transformer) -> Transformer:
    """A model of the first layer alone, built as one."""
    config = replace(model.config, decoder=replace(model.config.last, n_layers=1))
    twin = Transformer(config).eval().double()
    twin.load_state_dict({name: value for name, value in model.state_dict().items() if name in twin.state_dict()})
    return twin


@pytest.mark.parametrize("positions", ["rope", "t5", "transformer-xl"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_first_layers_go_ahead_and_leave_nothing(shape: str, positions: str, tools: Any) -> None:
    """On what the whole model has read, as a model of these layers alone; several passes, rows with holes."""
    model, prompts = tools.model(tools.Case(positions, shape)), PROMPTS["padded"]
    steps, anew, first = stepper(model, prompts), Anew(model, prompts), Anew(shorter(model), prompts)
    for turn in range(2):
        with steps.ahead(1) as read:
            for step, gaps in enumerate((False, True)):
                tokens, real = some(3, 2, turn + step), holes(3, 2, turn + step) if gaps else None
                logits = read(tokens, real)
                there = torch.ones(3, 2, dtype=torch.bool) if real is None else real
                for i, (_, expected) in enumerate(first.read(tokens, there)):
                    assert torch.allclose(logits[i, there[i]], expected, atol=TOLERANCE)
                first.keep(tokens, there)
        tokens = some(3, 3, 40 + turn)
        agree(steps, anew, tokens, None)
        keep = torch.arange(3) < torch.tensor([[1], [3], [0]])
        steps.forget(keep)
        anew.keep(tokens, keep)
        first.rows = [list(row) for row in anew.rows]


def test_an_error_ahead_leaves_nothing_either(tools: Any) -> None:
    model = tools.model()
    steps, anew = stepper(model, PROMPTS["padded"]), Anew(model, PROMPTS["padded"])
    with pytest.raises(ValueError, match="one element"), steps.ahead(1) as read:
        float(read(some(3, 2, 0), None))  # no single number
    agree(steps, anew, some(3, 2, 1), None)


def linear(model: Transformer) -> Transformer:
    """A model of sums."""
    config = replace(model.config.last, attention=replace(model.config.last.attention, kernel=Linear(), dropout=0.0))
    twin = Transformer(replace(model.config, decoder=config)).eval().double()
    twin.load_state_dict(model.state_dict(), strict=False)
    return twin


def test_sums_go_back_and_read_again(tools: Any) -> None:
    model = linear(tools.model(tools.Case("none")))
    assert model.config.last.keeps_sums
    steps, anew = stepper(model, PROMPTS["padded"]), Anew(model, PROMPTS["padded"])
    for turn in range(4):
        tokens, real = some(3, 4, turn), holes(3, 4, turn)
        keep = first(real, [turn, 9, 1])
        agree(steps, anew, tokens, real)
        steps.forget(keep)
        anew.keep(tokens, real & keep)
        if turn == 1:
            steps.select([1, 2])
            anew.select([1, 2])
            break
    with steps.ahead(1) as read:
        read(some(2, 2, 8), None)
    agree(steps, anew, some(2, 3, 9), None)


def test_sums_of_several_passes_are_not_taken_back(tools: Any) -> None:
    steps = stepper(linear(tools.model(tools.Case("none"))), PROMPTS["padded"])
    steps.extend(some(3, 2, 0))
    steps.extend(some(3, 1, 1))
    with pytest.raises(ConfigError, match="last pass alone"):
        steps.forget(torch.ones(3, 3, dtype=torch.bool))


def test_a_memory_of_the_last_tokens_can_not_go_back(tools: Any) -> None:
    steps = stepper(tools.model(), PROMPTS["padded"], memory=4)
    steps.extend(some(3, 2, 0))
    with pytest.raises(ConfigError, match="memory of the last tokens"):
        steps.forget(torch.ones(3, 2, dtype=torch.bool))
    with pytest.raises(ConfigError, match="memory of the last tokens"), steps.ahead(1):
        pass
