"""Log-probabilities of tokens: of which ones, how these are spelled, and where they begin; and what is counted."""

from __future__ import annotations

import random
from typing import Any

import pytest

from transpect.decode import Event
from transpect.lm import LanguageModel
from transpect.serve.http.logprobs import Place, Spelling
from transpect.text import train_tokenizer

PROMPT = "The quick brown"


@pytest.mark.parametrize("tokens", [0, 2])
def test_an_echo_tells_how_probable_the_prompt_is(
    tokens: int, api: Any, language_models: dict[str, LanguageModel]
) -> None:
    (score,) = language_models["writer"].score(PROMPT)
    body = {"model": "writer", "prompt": PROMPT, "max_tokens": tokens, "logprobs": 1, "echo": True}
    (choice,) = api("/v1/completions", body).json["choices"]
    first, *rest = choice["logprobs"]["token_logprobs"]
    assert first is None and rest[: len(score.logprobs)] == pytest.approx(score.logprobs, abs=1e-4)
    assert len(rest) == len(score.logprobs) + tokens
    for name, at in zip(choice["logprobs"]["tokens"][1:], choice["logprobs"]["text_offset"][1:], strict=True):
        assert name.startswith("bytes:") or choice["text"][at:].startswith(name)
    pieces = [own["choices"][0]["logprobs"] for own in api("/v1/completions", {**body, "stream": True}).events[:-1]]
    for name in choice["logprobs"]:
        assert [value for own in pieces for value in own[name]] == choice["logprobs"][name]


def test_tokens_begin_where_the_text_has_them() -> None:
    """Whatever bytes they are: of those that share a character where that begins, and after what is none."""
    chance = random.Random(1)
    whole = [b"a", "小b".encode(), "\ufffd".encode()]
    parts = [*whole, b"\xe5", b"\xb0", b"\x8f", b"\xb0\x8f", b"\xf0\x9f", b"\x98\x80", b"\xff"]
    for _ in range(300):
        place, before = Place(), b""
        for raw in chance.choices(parts, k=8):
            begins, text = place.take(raw), before + raw
            # the character that holds the token's first byte is the last one of the text until after it
            assert begins == len((before + raw[:1]).decode(errors="replace")) - 1, text
            before = text


@pytest.mark.parametrize("kind", ["char", "bpe", "byte-bpe", "wordpiece", "unigram"])
@pytest.mark.parametrize("of", ["an echo", "an output after text", "an output after a mark"])
def test_spelled_tokens_are_the_text(kind: str, of: str) -> None:
    tokenizer = train_tokenizer(kind, ["the quick fox 小猫 jumps over dogs", "the fox the dogs 小猫"] * 5, 300)
    spelling = Spelling(tokenizer)
    before = tokenizer.encode("the fox") if of == "an output after text" else [*tokenizer.special_ids][:1]
    ids = tokenizer.encode("quick fox 小猫 the dogs jumps")
    text = tokenizer.decode([*before, *ids], skip_special_tokens=True)
    text = text.removeprefix(tokenizer.decode(before, skip_special_tokens=True))
    events = [Event(0, token, "", -1.0, None, top=((token, -1.0),)) for token in ids]
    told = spelling.completion(events, spelling.place(before, echoed=of == "an echo"))
    assert "".join(told["tokens"]) == text or any(own.startswith("bytes:") for own in told["tokens"])
    for name, at, top in zip(told["tokens"], told["text_offset"], told["top_logprobs"], strict=True):
        assert name.startswith("bytes:") or text[at:].startswith(name)
        assert top == {name: -1.0}
    chat = spelling.chat(events, spelling.place(before, echoed=of == "an echo"))["content"]
    assert bytes(byte for own in chat for byte in own["bytes"] or own["token"].encode()).decode() == text


def test_a_source_has_no_log_probabilities(api: Any) -> None:
    body = {"model": "translator", "prompt": "fox", "echo": True, "max_tokens": 2}
    assert api("/v1/completions", body).json["choices"][0]["text"].startswith("fox")
    answer = api("/v1/completions", {**body, "logprobs": 0})
    assert (answer.status, answer.error["param"]) == (400, "echo")


@pytest.mark.parametrize(("path", "model"), [("/v1/embeddings", "vectors"), ("/v1/classify", "classes")])
def test_of_a_text_that_is_cut_what_is_read_counts(path: str, model: str, api: Any) -> None:
    body = {"model": model, "input": ["fox " * 600, "fox"]}
    assert api(path, body).error["code"] == "context_length_exceeded"
    cut = api(path, {**body, "truncate": True}).json["usage"]
    short = api(path, {**body, "input": "fox"}).json["usage"]["prompt_tokens"]
    assert cut["prompt_tokens"] == cut["total_tokens"] == 512 + short


@pytest.mark.parametrize("how", [{}, {"num_beams": 3}, {"best_of": 3, "temperature": 1}], ids=str)
def test_an_echo_of_each_output_without_tokens(how: dict[str, Any], api: Any) -> None:
    body = {"model": "writer", "prompt": ["fox", "小猫"], "max_tokens": 0, "n": 2, "echo": True, **how}
    for logprobs in ({}, {"logprobs": 1}):
        answer = api("/v1/completions", {**body, **logprobs}).json
        assert [(own["index"], own["text"]) for own in answer["choices"]] == [
            *enumerate(["fox", "fox", "小猫", "小猫"])
        ]
        assert all((own["logprobs"] is not None) == bool(logprobs) for own in answer["choices"])
