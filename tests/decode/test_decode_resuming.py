"""A break: what had been written is taken up again, and the output is the one without a break."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from transpect.base.errors import GenerationError
from transpect.cache import Int8
from transpect.decode import GenerationParams, Request, Result, generate, stream
from transpect.text import Tokenizer

MODELS = [
    ("rope", "mha", torch.float32),
    ("rope-dynamic", "gqa", torch.float64),
    ("alibi", "window", torch.float64),
    ("learned", "packed", torch.float32),
    ("t5", "encoder-decoder", torch.float32),
    ("t5", "encoder-decoder", torch.float64),
    ("transformer-xl", "mha", torch.float64),
]
ASKED: Mapping[str, Mapping[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "drawn": {"temperature": 1.0, "top_p": 0.9},
    "filtered": {
        "temperature": 1.0,
        "repetition_penalty": 1.3,
        "presence_penalty": 0.7,
        "no_repeat_ngram_size": 2,
        "min_new_tokens": 6,
        "eos_ids": (3, 5, 8),
        "dry_multiplier": 0.5,
        "logprobs": 2,
    },
    "guided": {"temperature": 1.0, "guidance_scale": 1.6},
    "held": {"temperature": 1.0, "regex": "([a-e]{2,3}[!-/]?)+"},
    "stopped": {"temperature": 1.0, "stop": ["a"], "max_new_tokens": 20},
}


@pytest.mark.parametrize(("positions", "shape", "dtype"), MODELS)
def test_after_any_token_it_goes_on_as_without_a_break(
    positions: str, shape: str, dtype: torch.dtype, tools: Any, pieces: Tokenizer
) -> None:
    """Broken off in each place, all taken up again in one batch of unequal rows, in pieces of prefill."""
    model = tools.model(tools.Case(positions, shape), dtype, vocab_size=pieces.vocab_size)
    params = [GenerationParams(9, seed=seed).override(own) for seed, own in enumerate(ASKED.values())]
    requests = tools.requests(model, params)
    whole = [list(stream(model, [request], tokenizer=pieces)) for request in requests]
    broken, rests = list[Request](), []
    for request, events in zip(requests, whole, strict=True):
        ids = [event.token for event in events if event.token is not None]
        for at in range(1, len(ids)):
            broken.append(replace(request, written=ids[:at]))
            rests.append(events[at:])
    assert len(broken) > 20
    for found, rest in zip(generate(model, broken, tokenizer=pieces, prefill_chunk=2), rests, strict=True):
        assert found.ids == tuple(event.token for event in rest)
        assert found.text == "".join(event.text for event in rest)
        assert found.finish_reason == rest[-1].finish_reason
        assert found.logprobs == pytest.approx([event.logprob for event in rest], abs=1e-3)
        assert [[i for i, _ in top] for top in found.top_logprobs] == [[i for i, _ in e.top] for e in rest if e.top]


def test_broken_off_by_cancelling_and_taken_up_again(tools: Any) -> None:
    model = tools.model()
    requests = tools.requests(model, [GenerationParams(8, temperature=1.0, seed=i) for i in range(3)])
    expected: list[Result] = generate(model, requests)
    written: list[int] = []
    with stream(model, requests) as events:
        for event in events:
            if event.request == 1 and event.token is not None:
                written.append(event.token)
                if len(written) == 4:
                    events.cancel(1)
    (rest,) = generate(model, [replace(requests[1], written=written)])
    assert (*written, *rest.ids) == expected[1].ids


@pytest.mark.parametrize(
    ("asked", "written", "options", "said"),
    [
        ({"n": 2}, [1], {}, "n=1"),
        ({"num_beams": 2}, [1], {}, "token by token"),
        ({"early_exit": 1}, [1], {}, "token by token"),
        ({}, [1], {"memory": 5}, "keeps all as it is"),
        ({}, [1], {"cache": Int8(group=4)}, "keeps all as it is"),
        ({"overflow": "sinks"}, [1], {}, "keeps all as it is"),
        ({"overflow": "stop", "max_new_tokens": 99}, [1] * 63, {}, "max_new_tokens"),
        ({"eos_ids": 7}, [1, 7], {}, "no token has ended"),
        ({"max_new_tokens": 2}, [1, 2], {}, "max_new_tokens"),
        ({}, [99], {}, "written output"),
    ],
)
def test_what_cannot_go_on_is_refused(
    asked: Mapping[str, Any], written: list[int], options: Mapping[str, Any], said: str, tools: Any
) -> None:
    request = Request([1], GenerationParams(9).override(asked), written=written)
    with pytest.raises(GenerationError, match=said):
        generate(tools.model(), [request], **options)


def test_a_prefix_model_and_a_text_that_has_ended_are_refused(tools: Any, pieces: Tokenizer) -> None:
    with pytest.raises(GenerationError, match="without a prefix"):
        generate(tools.model(tools.Case("rope", "prefix")), [Request([1], written=[2])])
    model = tools.model(vocab_size=pieces.vocab_size)
    for asked, text in (({"stop": "ab"}, "xab"), ({"regex": "ab"}, "ab")):
        request = Request([5], GenerationParams(9).override(asked), written=pieces.encode(text))
        with pytest.raises(GenerationError, match="has not ended"):
            generate(model, [request], tokenizer=pieces)
    request = Request([5], GenerationParams(9).override({"regex": "ab"}), written=pieces.encode("b"))
    with pytest.raises(GenerationError, match="beginning of a text of its regex"):
        generate(model, [request], tokenizer=pieces)
