"""The filters are those of `transformers`: one by one, and together in the order in which it puts them itself."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

from transpect.decode import GenerationParams, Sampler
from transpect.decode.trace import Trace

from .filter_cases import FILTERS, VOCAB, FilterCase, params_of, past, read, trace_of

NAMES = {
    "bad_words": "bad_words_ids",
    "banned": "suppress_tokens",
    "eos_ids": "eos_token_id",
}
"""Of parameters that have other names there."""

OURS = ("logit_bias", "frequency_penalty", "presence_penalty", "dry_multiplier")
"""Filters that are not there. A bias of single tokens is there a bias of sequences of one."""

THEIRS = [case for case in FILTERS if case.name not in OURS]
PARAMS = (
    *("min_length", "min_new_tokens", "encoder_repetition_penalty", "repetition_penalty", "no_repeat_ngram_size"),
    *("encoder_no_repeat_ngram_size", "bad_words", "banned", "begin_suppress_tokens", "forced_eos_token_id"),
    *("exponential_decay_length_penalty", "temperature", "top_k", "top_p", "min_p", "typical_p"),
    *("epsilon_cutoff", "eta_cutoff", "eos_ids"),
)


@pytest.fixture(scope="module")
def peer() -> Any:
    """Any model will do to make a list of processors."""
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_positions=8, n_embd=4, n_layer=1, n_head=1))


def settings(params: GenerationParams, trace: Trace) -> GenerationConfig:
    given = {NAMES.get(name, name): getattr(params, name) for name in PARAMS}
    given = {name: [*value] if isinstance(value, tuple) else value for name, value in given.items() if value != ()}
    if params.bad_words:
        given["bad_words_ids"] = [[*word] for word in params.bad_words]
    biases = [[[*ids], bias] for ids, bias in params.sequence_bias] + [[[i], b] for i, b in params.logit_bias]
    if biases:
        given["sequence_bias"] = biases
    if params.top_k == 0:
        given["top_k"] = 1  # there, 0 is off
    if params.greedy:
        del given["temperature"]
    return GenerationConfig(do_sample=not params.greedy, max_length=len(trace.prompt) + params.max_new_tokens, **given)


def expected(peer: Any, params: GenerationParams, trace: Trace, logits: Tensor) -> Tensor:
    config = settings(params, trace)
    config._eos_token_tensor = torch.tensor(params.eos_ids)
    source = torch.tensor([[*read(trace)]])
    processors = peer._get_logits_processor(
        generation_config=config, input_ids_seq_length=len(trace.prompt), encoder_input_ids=source
    )
    scores: Tensor = processors(torch.tensor([past(trace)]), logits[None].clone())[0]
    return scores


def agrees(peer: Any, rows: list[tuple[GenerationParams, Trace]], logits: Tensor) -> int:
    """How many rows have a token left there, and the same distribution here."""
    sampler = Sampler([params for params, _ in rows], [0] * len(rows), VOCAB, torch.device("cpu"))
    traces = [trace for _, trace in rows]
    found, held = sampler.filter(logits, traces), sampler.process(logits, traces)
    same = 0
    for i, (params, trace) in enumerate(rows):
        theirs = expected(peer, params, trace, logits[i])
        if not (theirs > -math.inf).any():
            continue  # there, nothing may be left
        mine = held[i] if params.greedy else found[i]
        assert torch.equal(mine > -math.inf, theirs > -math.inf), (params, trace)
        assert torch.allclose(mine.softmax(-1), theirs.softmax(-1), atol=1e-6), (params, trace)
        same += 1
    return same


def rows_of(random: Random, wanted: list[list[FilterCase]]) -> list[tuple[GenerationParams, Trace]]:
    """Without ties, of which there more are kept than asked for, and without what is refused there."""
    found = [params_of(random, cases) for cases in wanted]
    single = [
        replace(p, forced_eos_token_id=[i for i in p.forced_eos_token_id if i not in p.banned][:1]) for p in found
    ]
    return [(params, trace_of(random, longest=12)) for params in single]


def logits_of(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, VOCAB, generator=generator, dtype=torch.float64) * 3


@pytest.mark.parametrize("case", [case for case in FILTERS if case.name not in OURS[1:]], ids=lambda case: case.name)
def test_a_filter_is_theirs(case: FilterCase, peer: Any) -> None:
    random = Random(case.name)
    assert agrees(peer, rows_of(random, [[case]] * 60), logits_of(60, 1)) > 50


@pytest.mark.parametrize("share", [0.15, 0.3, 0.5, 0.8])
def test_they_are_theirs_together(share: float, peer: Any) -> None:
    random = Random(str(share))
    wanted = [[case for case in THEIRS if random.random() < share] for _ in range(150)]
    assert agrees(peer, rows_of(random, wanted), logits_of(150, 2)) > 100
