"""The probabilities that are reported are the model's own, by every strategy, and asking for them changes nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from transpect.base.errors import GenerationError
from transpect.decode import GenerationParams, Request, described, generate
from transpect.decode.alternatives import alternatives
from transpect.lm import LanguageModel
from transpect.text import Tokenizer

STRATEGIES: Mapping[str, Mapping[str, Any]] = {
    "greedy": {},
    "sample": {"temperature": 1.5, "top_k": 9, "top_p": 0.8, "repetition_penalty": 1.3, "n": 2},
    "contrastive": {"penalty_alpha": 0.6, "top_k": 3},
    "best-of": {"best_of": 2, "temperature": 1.0},
    "beam": {"num_beams": 3, "n": 2},
    "diverse": {"num_beam_groups": 2, "num_beams": 2},
    "look-up": {"prompt_lookup_num_tokens": 3, "temperature": 1.0},
    "early-exit": {"early_exit": 1, "num_assistant_tokens": 3, "temperature": 1.0},
    "filters": {"grammar": None, "banned": (3,), "min_new_tokens": 4},
}


@torch.no_grad()
def spelled_out(model: Any, request: Request, ids: tuple[int, ...]) -> list[list[tuple[int, float]]]:
    """All tokens in each place of an output with their log-probabilities, best first, by one full pass."""
    tokens = torch.tensor([[*request.prompt, *ids]])
    rows = model(tokens)[0, len(request.prompt) - 1 : -1].double().log_softmax(-1).tolist()
    return [sorted(enumerate(row), key=lambda pair: (-pair[1], pair[0])) for row in rows]


@pytest.mark.parametrize("name", STRATEGIES)
def test_alternatives_are_the_models_own_best(name: str, tools: Any) -> None:
    """Neighbours ask for other numbers of them, or none."""
    model, counts = tools.model(), [3, None, 0, 1, 500]
    params = [GenerationParams(6, seed=i, eos_ids=(7, 9)).override(STRATEGIES[name]) for i in range(len(counts))]
    requests = tools.requests(model, params)
    plain = generate(model, requests)
    asking = [replace(r, params=replace(r.params, logprobs=c)) for r, c in zip(requests, counts, strict=True)]
    results = generate(model, asking)
    outputs = params[0].n
    for place, (result, without) in enumerate(zip(results, plain, strict=True)):
        request, count = requests[place // outputs], counts[place // outputs]
        assert (result.ids, result.logprobs, result.text) == (without.ids, without.logprobs, without.text)
        assert without.top_logprobs == ()
        if not count:
            assert result.top_logprobs == ()
            continue
        ranked = spelled_out(model, request, result.ids)
        for token, own, top, expected in zip(result.ids, result.logprobs, result.top_logprobs, ranked, strict=True):
            assert [i for i, _ in top] == [i for i, _ in expected[:count]]
            assert [p for _, p in top] == pytest.approx([p for _, p in expected[:count]], abs=1e-9)
            assert own == pytest.approx(dict(expected)[token], abs=1e-9)
            assert dict(top).get(token, own) == own
            assert len(top) < model.config.vocab_size or math.fsum(math.exp(p) for _, p in top) == pytest.approx(1.0)


def test_of_equal_ones_the_lower_ids() -> None:
    logits = torch.tensor([[1.0, 2.0, 2.0, 2.0, -math.inf, 0.0], [0.0] * 6])
    params = [GenerationParams(logprobs=2), GenerationParams(logprobs=9)]
    first, second = alternatives(logits, params)
    assert [i for i, _ in first] == [1, 2]
    assert [i for i, _ in second] == [0, 1, 2, 3, 4, 5]
    (whole,) = alternatives(logits[:1], [GenerationParams(logprobs=6)])
    assert [i for i, _ in whole] == [1, 2, 3, 0, 5, 4]


@pytest.mark.parametrize("bad", [-1, 1.5, "2", True])
def test_a_number_of_them_is_a_whole_number(bad: Any) -> None:
    with pytest.raises(GenerationError, match="logprobs must be"):
        GenerationParams(logprobs=bad)


@pytest.mark.parametrize("kind", ["letters", "pieces", "words"])
def test_tokens_are_described_by_text_and_bytes(kind: str, tools: Any, request: pytest.FixtureRequest) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(kind)
    lm = LanguageModel(tools.model(vocab_size=tokenizer.vocab_size + 2), tokenizer)
    (result,) = lm.complete(["The fox"], max_new_tokens=12, logprobs=400, temperature=2.0, seed=1, ignore_eos=True)
    said = described(result, tokenizer)
    assert [one.id for one in said] == list(result.ids)
    assert [one.logprob for one in said] == list(result.logprobs)
    assert [[(other.id, other.logprob) for other in one.top] for one in said] == list(map(list, result.top_logprobs))
    assert {len(one.top) for one in said} == {min(400, tokenizer.vocab_size + 2)}
    everything = {other.id: other for other in said[0].top}
    for i, one in everything.items():
        if i in tokenizer.special_ids or i >= tokenizer.vocab_size:
            assert one.bytes is None
        elif "\\x" not in one.token and not one.token.startswith("<0x"):
            assert one.bytes == one.token.encode() or one.token == "\ufffd"
    if "\ufffd" not in result.text:  # bytes that are no text
        assert b"".join(one.bytes or b"" for one in said).decode() == result.text


def test_without_alternatives_only_the_chosen_are_described(tools: Any, letters: Tokenizer) -> None:
    lm = LanguageModel(tools.model(vocab_size=letters.vocab_size), letters)
    (result,) = lm.complete(["The"], max_new_tokens=3, logprobs=0)
    assert [(one.id, one.top) for one in described(result, letters)] == [(token, ()) for token in result.ids]
