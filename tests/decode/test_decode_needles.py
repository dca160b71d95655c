"""Needles: what a request gets depends on its own prompt, parameters and seed, and on nothing around it.

Each needle is decoded alone once, and then among random neighbours, in other places, batches and pieces. Its tokens are
the same each time. No run is repeated and nothing is tuned; only logits that agree to within the rounding of a matrix
product could tell one arrangement from another.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from transpect.core import Transformer
from transpect.decode import GenerationParams, Request, Result, generate
from transpect.lm import LanguageModel
from transpect.text import Tokenizer

MODELS = [
    ("rope", "mha"),
    ("rope-dynamic", "gqa"),
    ("alibi", "window"),
    ("learned", "mha"),
    ("sinusoidal", "packed"),
    ("t5", "encoder-decoder"),
    ("transformer-xl", "mha"),
    ("none", "prefix"),
]
STRATEGIES: Mapping[str, Mapping[str, Any]] = {
    "sample": {},
    "look-up": {"prompt_lookup_num_tokens": 3},
    "early-exit": {"early_exit": 1, "num_assistant_tokens": 3},
    "guided": {"guidance_scale": 1.7},
    "beam": {"num_beams": 3},
    "diverse": {"num_beam_groups": 2, "num_beams": 4, "temperature": 0.0},
    "contrastive": {"penalty_alpha": 0.6, "top_k": 3, "temperature": 0.0},
    "best-of": {"best_of": 2, "temperature": 1.0},
}


@cache
def model_of(tools: Any, positions: str, shape: str, dtype: torch.dtype) -> Transformer:
    model: Transformer = tools.model(tools.Case(positions, shape), dtype)
    return model


def drawn(rng: random.Random, model: Transformer, params: GenerationParams) -> Request:
    """A request with random ids."""

    def ids(most: int) -> list[int]:
        return [rng.randrange(31) for _ in range(rng.randint(1, most))]

    return Request(ids(12), params, ids(9) if model.config.encoder else None)


def needles(rng: random.Random, model: Transformer, options: Mapping[str, Any]) -> list[Request]:
    """At temperature 0 and 1, with the filters that look at the past and at the distribution, and without."""
    filters: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 1.0},
        {"temperature": 0.0, "repetition_penalty": 1.4, "no_repeat_ngram_size": 2, "eos_ids": (3, 5)},
        {"temperature": 1.0, "top_p": 0.9, "presence_penalty": 0.5, "min_new_tokens": 3, "eos_ids": (4, 9)},
    ]
    return [
        drawn(rng, model, GenerationParams(7, seed=seed).override({**own, **options}))
        for seed, own in enumerate(filters)
    ]


def around(rng: random.Random, model: Transformer, options: Mapping[str, Any]) -> Request:
    """A neighbour."""
    params = GenerationParams(rng.randint(1, 10), temperature=rng.choice([0.0, 0.7, 2.0]), seed=rng.randrange(99))
    return drawn(rng, model, params.override(options))


def tokens(results: Sequence[Result]) -> list[tuple[tuple[int, ...], str]]:
    return [(result.ids, result.finish_reason) for result in results]


def check_needles(
    model: Transformer, options: Mapping[str, Any], seed: str, tokenizer: Tokenizer | None = None
) -> None:
    rng = random.Random(seed)
    wanted = needles(rng, model, options)
    alone = tokens([generate(model, [needle], tokenizer=tokenizer)[0] for needle in wanted])
    assert len({ids for ids, _ in alone}) > 1
    for batch_size, chunk, neighbours in [(3, 2, 2), (32, None, 5)]:
        mixed = [(number, needle) for number, needle in enumerate(wanted)]
        mixed += [(-1, around(rng, model, rng.choice([options, options, {}]))) for _ in range(neighbours)]
        rng.shuffle(mixed)
        results = generate(
            model,
            [request for _, request in mixed],
            tokenizer=tokenizer,
            batch_size=batch_size,
            prefill_chunk=chunk,
        )
        for (number, _), found in zip(mixed, tokens(results), strict=True):
            assert number < 0 or found == alone[number]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("positions", "shape"), MODELS)
def test_a_needle_is_the_same_in_every_model(positions: str, shape: str, dtype: torch.dtype, tools: Any) -> None:
    check_needles(model_of(tools, positions, shape, dtype), {}, f"{positions} {shape}")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_needle_is_the_same_by_every_strategy(name: str, dtype: torch.dtype, tools: Any) -> None:
    positions, shape = ("rope", "mha") if dtype == torch.float32 else ("t5", "encoder-decoder")
    check_needles(model_of(tools, positions, shape, dtype), STRATEGIES[name], name)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_needle_that_is_held_to_a_language_is_the_same(dtype: torch.dtype, tools: Any, pieces: Tokenizer) -> None:
    model = tools.model(dtype=dtype, vocab_size=pieces.vocab_size)
    for options in ({"regex": "([a-e]{2,3} ?)+"}, {"choices": ["The fox", "the dog", "Then"], "num_beams": 2}):
        check_needles(model, options, "held", pieces)


def test_a_text_is_the_same_through_the_facade(tools: Any, letters: Tokenizer) -> None:
    """Alone, among others, as a stream, and asked for again."""
    lm = LanguageModel(tools.model(vocab_size=letters.vocab_size), letters)
    prompts = ["The quick", "小猫", "", "dog"]
    for temperature in (0.0, 1.0):
        asked = {"temperature": temperature, "seed": 7, "max_new_tokens": 12}
        alone = [lm.generate(prompt, **asked) for prompt in prompts]
        assert lm.generate(prompts, **asked) == alone
        assert lm.generate(prompts[::-1], batch_size=2, **asked) == alone[::-1]
        assert ["".join(lm.stream(prompt, **asked)) for prompt in prompts] == alone


def test_the_seed_is_the_only_noise(tools: Any) -> None:
    """Neither the state of torch's generators nor a request before it matters, and none of them is moved."""
    model = tools.model()
    (request,) = tools.requests(model, [GenerationParams(10, temperature=1.0, seed=3)])
    first = generate(model, [request])[0].ids
    torch.manual_seed(5)
    state = torch.get_rng_state()
    assert generate(model, [replace(request, params=replace(request.params, seed=4))])[0].ids != first
    assert generate(model, [request])[0].ids == first
    assert torch.equal(torch.get_rng_state(), state)
