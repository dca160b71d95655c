"""Tiny models with every parameter drawn at random, and decoding spelled out without cache, batch or tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import pytest
import torch

from transpect.core import (
    NO_SOURCE,
    AttentionConfig,
    Causal,
    CausalLM,
    Full,
    ModelConfig,
    PrefixLM,
    SameSegment,
    Source,
    StackConfig,
    Tags,
    Transformer,
    Window,
)
from transpect.core.positions import (
    Alibi,
    DynamicNTK,
    Learned,
    NoPosition,
    Position,
    Rope,
    Sinusoidal,
    T5Buckets,
    TransformerXL,
)
from transpect.decode import GenerationParams, Request, Trace, uniform
from transpect.text import Tokenizer, train_tokenizer

VOCAB = 31
POSITIONS: dict[str, Position] = {
    "none": NoPosition(),
    "sinusoidal": Sinusoidal(),
    "learned": Learned(),
    "rope": Rope(),
    "rope-dynamic": Rope(scaling=DynamicNTK(factor=2.0, original_length=6)),
    "alibi": Alibi(),
    "t5": T5Buckets(buckets=8, max_distance=6),
    "transformer-xl": TransformerXL(),
}
SHAPES = ("mha", "gqa", "window", "packed", "prefix", "encoder-decoder")
VISIBILITY = {"window": Window(4), "packed": Causal() & SameSegment(), "prefix": PrefixLM()}


@dataclass(frozen=True)
class Case:
    """A position scheme and a shape of model."""

    positions: str = "rope"
    shape: str = "mha"

    def __str__(self) -> str:
        return f"{self.positions}_{self.shape}"


def tiny_config(case: Case, *, context_length: int = 64, vocab_size: int = VOCAB) -> ModelConfig:
    stack = StackConfig(
        n_layers=2,
        attention=AttentionConfig(n_heads=4, n_kv_heads=2 if case.shape == "gqa" else None, dropout=0.4),
        positions=POSITIONS[case.positions],
        visibility=VISIBILITY.get(case.shape, Causal()),
        dropout=0.4,
    )
    config = ModelConfig(
        vocab_size=vocab_size, d_model=16, context_length=context_length, decoder=stack, head=CausalLM(tied=False)
    )
    if case.shape != "encoder-decoder":
        return config
    return replace(
        config,
        encoder=replace(stack, visibility=Full()),
        decoder=replace(stack, steps=(("self",), ("cross",), ("ffn",))),
    )


def tiny_model(case: Case = Case(), dtype: torch.dtype = torch.float64, **sizes: int) -> Transformer:
    """Parameters are drawn wide enough that greedy decoding wanders, in float64 so that no two tokens ever tie."""
    model = Transformer(tiny_config(case, **sizes)).eval().to(dtype)
    generator = torch.Generator().manual_seed(len(str(case)))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(parameter + 0.1 * noise if noise.ndim == 1 else noise * (2.0 if "token" in name else 0.5))
    return model


def after(step: int, rows: int) -> list[Trace]:
    """The pasts of rows that have written so many tokens."""
    return [Trace(written=(0,) * step)] * rows


def prompt_of(length: int, seed: int) -> list[int]:
    return torch.randint(0, VOCAB, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def requests_for(model: Transformer, params: Sequence[GenerationParams]) -> list[Request]:
    """Requests of different lengths, one for each of ``params``."""
    lengths = [1, 9, 4, 4, 12, 2, 7, 3]
    sources = [5, 2, 8, 5, 1, 11, 3, 3]
    return [
        Request(prompt_of(lengths[i % 8], i), p, prompt_of(sources[i % 8], 50 + i) if model.config.encoder else None)
        for i, p in enumerate(params)
    ]


@torch.no_grad()
def spelled_out(model: Transformer, request: Request) -> tuple[list[int], list[float]]:
    """What a request should give, and the model's log-probability of each token: full passes over lists of Python."""
    params, ids = request.params, list(request.prompt)
    source = NO_SOURCE if request.source is None else model.encode(torch.tensor([list(request.source)]))
    horizon = torch.tensor([len(ids) + params.max_new_tokens])
    new: list[int] = []
    logprobs: list[float] = []
    for step in range(params.max_new_tokens):
        position = torch.arange(len(ids))[None]
        tags = Tags.of(position, prefix=position < len(request.prompt), horizon=horizon)
        logits = model(torch.tensor([ids]), tags=tags, source=source)[0, -1].double()
        row = logits.tolist()
        if step < params.min_new_tokens:
            row = [-math.inf if i in params.eos_ids else x for i, x in enumerate(row)]
        token = choose(row, params, step)
        logprobs.append(float(logits.log_softmax(-1)[token]))
        new.append(token)
        ids.append(token)
        if token in params.eos_ids and not params.ignore_eos:
            break
    return new, logprobs


def choose(logits: list[float], params: GenerationParams, step: int) -> int:
    ranked = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if params.temperature == 0:
        return ranked[0]
    kept = ranked if params.top_k is None else ranked[: max(1, params.top_k)]
    weight = {i: math.exp((logits[i] - logits[ranked[0]]) / params.temperature) for i in kept}
    total = math.fsum(weight.values())
    nucleus: list[int] = []
    for i in kept:
        if nucleus and params.top_p < 1 and math.fsum(weight[j] for j in nucleus) / total >= params.top_p - 1e-6:
            break
        nucleus.append(i)
    assert params.seed is not None
    level, reached = uniform(params.seed, step) * math.fsum(weight[i] for i in nucleus), 0.0
    for i in sorted(nucleus):
        reached += weight[i]
        if reached > level:
            return i
    return max(nucleus)


class Anew:
    """`Steps` without a cache or a batch: every row is read alone and whole, each time."""

    device = torch.device("cpu")
    spare = 1

    def __init__(self, model: Transformer, requests: Sequence[Request]) -> None:
        self.model, self.vocab_size = model, model.config.vocab_size
        self._rows = [(request, self._encoded(request), tuple(request.prompt)) for request in requests]
        self._last: list[torch.Tensor] = []

    def prefill(self, *, every: bool = False) -> torch.Tensor:
        logits = self._read()
        if not every:
            self._last = [own[-1:] for own in self._last]
        return logits

    def advance(self, token: torch.Tensor) -> torch.Tensor:
        self._rows = [
            (request, source, (*ids, one))
            for (request, source, ids), one in zip(self._rows, token.tolist(), strict=True)
        ]
        logits = self._read()
        self._last = [own[-1:] for own in self._last]
        return logits

    def select(self, rows: Sequence[int]) -> None:
        self._rows, self._last = [self._rows[i] for i in rows], [self._last[i] for i in rows]

    @property
    def hidden(self) -> torch.Tensor:
        longest = max(map(len, self._last))
        return torch.stack([torch.cat([own.new_zeros(longest - len(own), own.shape[1]), own]) for own in self._last])

    @torch.no_grad()
    def _encoded(self, request: Request) -> Source:
        return NO_SOURCE if request.source is None else self.model.encode(torch.tensor([list(request.source)]))

    @torch.no_grad()
    def _read(self) -> torch.Tensor:
        logits, self._last = [], []
        for request, source, ids in self._rows:
            position = torch.arange(len(ids))[None]
            horizon = torch.tensor([len(request.prompt) + request.params.max_new_tokens])
            tags = Tags.of(position, prefix=position < len(request.prompt), horizon=horizon)
            hidden = self.model.hidden(torch.tensor([ids]), tags=tags, source=source)[0]
            self._last.append(hidden)
            logits.append(self.model.head(hidden[None, -1:], tags, self.model.token.weight)[0, 0])
        return torch.stack(logits)


class TableSteps:
    """`Steps` over tables: the logits after the tokens that a row has written, whatever its prompt.

    Args:
        tables: one for each row: tokens written to logits [V].
    """

    device = torch.device("cpu")
    spare = 1

    def __init__(self, *tables: Callable[[tuple[int, ...]], Sequence[float]]) -> None:
        self._rows = [(table, ()) for table in tables]
        self.vocab_size = len(tables[0](()))

    def prefill(self, *, every: bool = False) -> torch.Tensor:
        assert not every, "a table has no hidden vectors"
        return self._logits()

    def advance(self, token: torch.Tensor) -> torch.Tensor:
        self._rows = [
            (table, (*written, one)) for (table, written), one in zip(self._rows, token.tolist(), strict=True)
        ]
        return self._logits()

    def select(self, rows: Sequence[int]) -> None:
        self._rows = [self._rows[i] for i in rows]

    def _logits(self) -> torch.Tensor:
        return torch.tensor([list(table(written)) for table, written in self._rows], dtype=torch.float64)


def random_table(vocab_size: int, seed: int, spread: float = 2.0) -> Callable[[tuple[int, ...]], Sequence[float]]:
    """Logits that depend on all that was written, normally distributed."""

    @cache
    def table(written: tuple[int, ...]) -> Sequence[float]:
        place = hash((seed, *written)) % 2**63  # hashes of whole numbers are the same in every run
        return (torch.randn(vocab_size, generator=torch.Generator().manual_seed(place)).double() * spread).tolist()

    return table


@pytest.fixture(scope="session")
def letters() -> Tokenizer:
    """A token a character."""
    return train_tokenizer("char", ["The quick brown fox jumps over the lazy dog. 小猫爱吃鱼。"])


@pytest.fixture(scope="session")
def pieces() -> Tokenizer:
    """Byte-level tokens, so that most characters of the emoji below are several tokens."""
    return train_tokenizer("byte-bpe", ["The quick brown fox jumps over the lazy dog. " * 3], 300)


@pytest.fixture(scope="session")
def words() -> Tokenizer:
    """Pieces that carry the space before them, with byte fallback."""
    return train_tokenizer(
        "unigram", ["The quick brown fox jumps over the lazy dog. 小猫爱吃鱼。" * 3], 360, byte_fallback=True
    )


class Tools:
    """What the tests of this folder share, since test files don't import each other."""

    Case = Case
    model = staticmethod(tiny_model)
    config = staticmethod(tiny_config)
    requests = staticmethod(requests_for)
    spelled_out = staticmethod(spelled_out)
    after = staticmethod(after)
    anew = Anew
    table_steps = TableSteps
    random_table = staticmethod(random_table)


@pytest.fixture(scope="session")
def tools() -> type[Tools]:
    return Tools
