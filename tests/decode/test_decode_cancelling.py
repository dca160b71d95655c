"""Work that nobody waits for any more ends at once, and nobody else notices."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor

from transpect.decode import Event, GenerationParams, Stepper, generate, stream
from transpect.decode import engine as engine_module
from transpect.lm import LanguageModel
from transpect.text import train_tokenizer

STRATEGIES: Mapping[str, Mapping[str, Any]] = {
    "sample": {"temperature": 1.0},
    "greedy": {},
    "several": {"temperature": 1.0, "n": 2},
    "guided": {"guidance_scale": 2.0},
    "contrastive": {"penalty_alpha": 0.6, "top_k": 3, "temperature": 0.0},
    "best-of": {"best_of": 2, "temperature": 1.0},
    "beam": {"num_beams": 3},
    "look-up": {"prompt_lookup_num_tokens": 3},
    "early-exit": {"early_exit": 1, "num_assistant_tokens": 3, "temperature": 1.0},
    "diverse": {"num_beam_groups": 2, "num_beams": 2},
}


class Watched(Stepper):
    """Counts the rows of the model's batch at each step, and is remembered weakly."""

    steps: list[int]
    made: list[weakref.ref[Watched]]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.made.append(weakref.ref(self))

    def advance(self, token: Tensor) -> Tensor:
        self.steps.append(len(token))
        return super().advance(token)

    def extend(self, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        self.steps.append(len(tokens))
        return super().extend(tokens, real)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> type[Watched]:
    Watched.steps, Watched.made = [], []
    monkeypatch.setattr(engine_module, "Stepper", Watched)
    return Watched


def params_of(name: str, count: int, tokens: int = 9) -> list[GenerationParams]:
    return [GenerationParams(tokens, seed=i).override(STRATEGIES[name]) for i in range(count)]


@pytest.mark.parametrize("batch_size", [2, 32])
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_cancelled_request_has_no_more_events_and_the_others_theirs(name: str, batch_size: int, tools: Any) -> None:
    model = tools.model()
    requests = tools.requests(model, params_of(name, 5))
    undisturbed = list(stream(model, requests, batch_size=batch_size))
    for at in (0, len(undisturbed) // 2, len(undisturbed) - 1):
        seen: list[Event] = []
        with stream(model, requests, batch_size=batch_size) as events:
            for number, event in enumerate(events):
                seen.append(event)
                if number == at:
                    cancelled = {event.request, (event.request + 2) % 5}
                    for request in cancelled:
                        events.cancel(request)
                        events.cancel(request)
                assert number <= at or event.request not in cancelled
        for event in undisturbed:
            if event.request not in cancelled:
                output = (event.request, event.choice)
                assert tokens(seen, output) == tokens(undisturbed, output)


def tokens(events: list[Event], output: tuple[int, int]) -> list[tuple[int | None, str | None]]:
    return [(event.token, event.finish_reason) for event in events if (event.request, event.choice) == output]


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_cancelled_request_leaves_the_batch_before_the_next_token(
    name: str, tools: Any, watched: type[Watched]
) -> None:
    model = tools.model()
    short, long = params_of(name, 2)
    # the first ends early, so that every strategy has an event by which the second can be cancelled on its way
    requests = tools.requests(model, [replace(short, max_new_tokens=3), long])
    list(stream(model, requests))
    whole = list(watched.steps)
    watched.steps.clear()
    with stream(model, requests) as events:
        last = next(event for event in events if event.finish_reason is not None)
        before = len(watched.steps)
        events.cancel(1)
        list(events)
    assert last.request == 0
    assert len(watched.steps) == before < len(whole)


def test_what_is_cancelled_before_it_begins_is_never_read(tools: Any, watched: type[Watched]) -> None:
    model = tools.model()
    requests = tools.requests(model, params_of("greedy", 4))
    with stream(model, requests, batch_size=1) as events:
        first = next(events)
        for request in (1, 2, 17):
            events.cancel(request)
        seen = {event.request for event in (first, *events)}
    assert seen == {0, 3}
    assert len(watched.made) == 2


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("way", ["close", "with", "let go", "through the text"])
def test_the_cache_is_freed_at_once(name: str, way: str, tools: Any, watched: type[Watched]) -> None:
    tokenizer = train_tokenizer("char", ["The quick brown fox jumps over the dog"])
    lm = LanguageModel(tools.model(vocab_size=tokenizer.vocab_size), tokenizer)
    gc.disable()  # counting references must be enough
    try:
        if way == "through the text":
            texts: Any = lm.stream("The ", max_new_tokens=20, ignore_eos=True, **STRATEGIES[name])
            next(texts)
            texts.close()
        else:
            events = stream(lm.model, tools.requests(lm.model, params_of(name, 2)))
            next(events)
            if way == "close":
                events.close()
                assert list(events) == []
            elif way == "with":
                with events:
                    pass
            del events
        assert watched.made and all(steps() is None for steps in watched.made)
    finally:
        gc.enable()


def test_a_model_is_at_rest_after_it(tools: Any) -> None:
    """Left in the mode that it was in, and free for the next request."""
    model = tools.model().train()
    requests = tools.requests(model, params_of("sample", 3))
    expected = [result.ids for result in generate(model, requests)]
    events = stream(model, requests)
    next(events)
    events.close()
    assert model.training
    assert [result.ids for result in generate(model, requests)] == expected
