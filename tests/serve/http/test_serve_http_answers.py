"""What is answered is what the library writes, whole and in pieces, and its usage is true in every mode."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from transpect.lm import LanguageModel

PROMPT = "The quick brown"
CHAT = [{"role": "user", "content": "小猫爱吃"}]
OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 1.0, "seed": 5},
    "filtered": {"temperature": 0.8, "top_p": 0.9, "seed": 7, "presence_penalty": 0.5, "logit_bias": {"67": -100}},
    "two": {"temperature": 1.0, "seed": 5, "n": 2},
    "stopped": {"temperature": 1.0, "seed": 5, "stop": ["C", "*"]},
    "beams": {"num_beams": 3},
    "none": {"max_tokens": 0},
    "choices": {"choices": ["小猫", "小狗"]},
}


def expected(lm: LanguageModel, prompt: Any, options: dict[str, Any], length: int) -> Any:
    renamed = {"max_tokens": "max_new_tokens"}
    own = {renamed.get(name, name): value for name, value in options.items()}
    if "logit_bias" in own:
        own["logit_bias"] = {int(token): bias for token, bias in own["logit_bias"].items()}
    return lm.complete([prompt], **{"max_new_tokens": length, **own})


def joined(events: list[Any], part: str) -> tuple[dict[int, str], dict[int, list[Any]]]:
    """The texts of a stream, and all its finish reasons, by choice."""
    texts: dict[int, str] = {}
    reasons: dict[int, list[Any]] = {}
    for event in events:
        for choice in event["choices"]:
            piece = choice["text"] if part == "text" else choice["delta"].get("content", "")
            texts[choice["index"]] = texts.get(choice["index"], "") + piece
            reasons.setdefault(choice["index"], []).append(choice["finish_reason"])
    return texts, reasons


def check_stream(events: list[Any], whole: dict[str, Any], part: str) -> None:
    """A stream says what the whole answer says, ends each output once, and itself once."""
    assert events.count("[DONE]") == 1 and events[-1] == "[DONE]"
    *pieces, last = events[:-1]
    assert last["choices"] == [] and last["usage"] == whole["usage"]
    assert all(own["usage"] is None for own in pieces)
    assert len({own["id"] for own in [*pieces, last]}) == 1
    texts, reasons = joined(pieces, part)
    for choice in whole["choices"]:
        text = choice["text"] if part == "text" else choice["message"]["content"]
        assert texts[choice["index"]] == text
        *before, end = reasons[choice["index"]]
        assert set(before) <= {None} and end == choice["finish_reason"]
    assert set(texts) == {choice["index"] for choice in whole["choices"]}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_completions_are_those_of_the_library(
    options: dict[str, Any], api: Any, language_models: dict[str, LanguageModel]
) -> None:
    results = expected(language_models["writer"], PROMPT, options, 16)
    body = {"model": "writer", "prompt": PROMPT, **options}
    whole = api("/v1/completions", body).json
    assert whole["object"] == "text_completion" and whole["model"] == "writer"
    assert [own["text"] for own in whole["choices"]] == [own.text for own in results]
    reasons = {"eos": "stop", "stop": "stop", "length": "length"}
    assert [own["finish_reason"] for own in whole["choices"]] == [reasons[own.finish_reason] for own in results]
    assert [own["index"] for own in whole["choices"]] == list(range(len(results)))
    written = sum(len(own.ids) for own in results)
    read = len(language_models["writer"].requests([PROMPT])[0].prompt)
    usage = {name: value for name, value in whole["usage"].items() if name != "prompt_tokens_details"}
    assert usage == {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    stream = api("/v1/completions", {**body, "stream": True, "stream_options": {"include_usage": True}})
    assert stream.headers["content-type"].startswith("text/event-stream")
    check_stream(stream.events, whole, "text")


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_answers_of_a_conversation_are_those_of_the_library(
    options: dict[str, Any], api: Any, language_models: dict[str, LanguageModel]
) -> None:
    lm = language_models["writer"]
    results = expected(lm, lm.chat_prompt(CHAT), options, 12)
    body = {"model": "writer", "messages": CHAT, **options}
    whole = api("/v1/chat/completions", body).json
    assert whole["object"] == "chat.completion"
    assert [own["message"]["content"] for own in whole["choices"]] == [own.text for own in results]
    assert {own["message"]["role"] for own in whole["choices"]} == {"assistant"}
    assert whole["usage"]["completion_tokens"] == sum(len(own.ids) for own in results)
    stream = api("/v1/chat/completions", {**body, "stream": True, "stream_options": {"include_usage": True}}).events
    assert stream[0]["choices"][0]["delta"]["role"] == "assistant"
    assert {own["object"] for own in stream[:-1]} == {"chat.completion.chunk"}
    check_stream(stream, whole, "delta")


def test_several_prompts_are_answered_in_their_order(api: Any) -> None:
    prompts = ["The", "小猫", [5, 6, 7]]
    options = {"model": "writer", "temperature": 1, "seed": 3, "n": 2, "max_tokens": 6}
    for several in (prompts[:2], [prompts[2], [9]]):
        alone = [
            own for prompt in several for own in api("/v1/completions", {**options, "prompt": prompt}).json["choices"]
        ]
        together = api("/v1/completions", {**options, "prompt": several}).json["choices"]
        assert [own["text"] for own in together] == [own["text"] for own in alone]
        assert [own["index"] for own in together] == [0, 1, 2, 3]
        events = api("/v1/completions", {**options, "prompt": several, "stream": True}).events[:-1]
        assert joined(events, "text")[0] == {own["index"]: own["text"] for own in together}


def test_best_of_gives_the_best_and_counts_what_it_gives(api: Any, language_models: dict[str, LanguageModel]) -> None:
    options = {"best_of": 4, "n": 2, "temperature": 1.0, "seed": 11}
    results = expected(language_models["writer"], PROMPT, options, 8)
    answer = api("/v1/completions", {"model": "writer", "prompt": PROMPT, "max_tokens": 8, **options}).json
    assert [own["text"] for own in answer["choices"]] == [own.text for own in results]


@pytest.mark.parametrize(("echo", "tokens"), [*product((False, True), (0, 5))])
def test_an_echo_begins_the_text_whole_and_in_pieces(echo: bool, tokens: int, api: Any) -> None:
    decoded = api("/detokenize", {"model": "writer", "tokens": [37, 38]}).json["prompt"]
    for prompt, shown in (("小猫", "小猫"), ([37, 38], decoded)):
        body = {"model": "writer", "prompt": prompt, "max_tokens": tokens}
        expected_text = (shown if echo else "") + api("/v1/completions", body).json["choices"][0]["text"]
        assert api("/v1/completions", {**body, "echo": echo}).json["choices"][0]["text"] == expected_text
        events = api("/v1/completions", {**body, "echo": echo, "stream": True}).events[:-1]
        assert joined(events, "text")[0] == {0: expected_text}


def test_logprobs_are_those_of_the_model(api: Any, language_models: dict[str, LanguageModel]) -> None:
    lm = language_models["writer"]
    (result,) = lm.complete([PROMPT], max_new_tokens=6, temperature=1.0, seed=2, logprobs=3)
    body = {"model": "writer", "prompt": PROMPT, "max_tokens": 6, "temperature": 1, "seed": 2, "logprobs": 3}
    (choice,) = api("/v1/completions", body).json["choices"]
    assert choice["logprobs"]["token_logprobs"] == pytest.approx(result.logprobs, abs=1e-5)
    assert all(len(own) in (3, 4) for own in choice["logprobs"]["top_logprobs"])
    pieces = [own["choices"][0]["logprobs"] for own in api("/v1/completions", {**body, "stream": True}).events[:-1]]
    for name in choice["logprobs"]:
        assert [value for own in pieces for value in own[name]] == choice["logprobs"][name]

    (result,) = lm.complete([lm.chat_prompt(CHAT)], max_new_tokens=6, temperature=1.0, seed=2, logprobs=2)
    chat = {"model": "writer", "messages": CHAT, "max_tokens": 6, "temperature": 1, "seed": 2}
    chat |= {"logprobs": True, "top_logprobs": 2}
    (choice,) = api("/v1/chat/completions", chat).json["choices"]
    content = choice["logprobs"]["content"]
    assert [own["logprob"] for own in content] == pytest.approx(result.logprobs, abs=1e-5)
    assert [[other["logprob"] for other in own["top_logprobs"]] for own in content] == [
        pytest.approx([value for _, value in top], abs=1e-5) for top in result.top_logprobs
    ]
    raw = bytes(byte for own in content for byte in own["bytes"] or ())
    assert raw.decode(errors="ignore") == choice["message"]["content"].replace("\ufffd", "")


def test_an_output_is_held_to_a_schema(api: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    body = {
        "model": "writer",
        "messages": CHAT,
        "response_format": wanted,
        "max_tokens": 40,
        "temperature": 1,
        "seed": 1,
    }
    import json

    for _ in range(2):  # the second time it is known
        (choice,) = api("/v1/chat/completions", body).json["choices"]
        assert choice["finish_reason"] == "stop"
        assert set(json.loads(choice["message"]["content"])) == {"a"}


def test_translations_are_those_of_the_library(api: Any, language_models: dict[str, LanguageModel]) -> None:
    lm, texts = language_models["translator"], ["The quick fox", "小猫"]
    options: tuple[dict[str, Any], ...] = ({}, {"num_beams": 1}, {"num_beams": 2, "length_penalty": 0.5})
    options += ({"temperature": 1, "seed": 4}, {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 1.5})
    for own in options:
        answer = api("/v1/translate", {"model": "translator", "text": texts, "max_tokens": 4, **own})
        assert [one["text"] for one in answer.json["choices"]] == lm.translate(texts, max_new_tokens=4, **own)
    assert api("/v1/translate", {"model": "writer", "text": "a"}).error["param"] == "model"
    answer = api("/v1/translate", {"model": "translator", "text": "a", "target_language": "de"})
    assert (answer.status, answer.error["param"]) == (400, "target_language")


def test_vectors_and_classes_are_those_of_the_library(api: Any, language_models: dict[str, LanguageModel]) -> None:
    import base64

    import numpy as np

    texts = ["The quick fox", "小猫", "a"]
    vectors = language_models["vectors"].embed(texts).numpy()
    answer = api("/v1/embeddings", {"model": "vectors", "input": texts}).json
    assert [own["embedding"] for own in answer["data"]] == [pytest.approx(row, abs=1e-5) for row in vectors]
    coded = api("/v1/embeddings", {"model": "vectors", "input": texts, "encoding_format": "base64"}).json
    read = [np.frombuffer(base64.b64decode(own["embedding"]), dtype="<f4") for own in coded["data"]]
    assert [own.tolist() for own in read] == [pytest.approx(own["embedding"], abs=1e-6) for own in answer["data"]]
    assert answer["usage"]["prompt_tokens"] == sum(
        len(language_models["vectors"].tokenizer.encode(text, add_special_tokens=True)) for text in texts
    )
    for inputs, given in ((texts, texts), ([("a", "b")], [["a", "b"]])):
        found = language_models["classes"].classify(inputs)
        answer = api("/v1/classify", {"model": "classes", "input": given}).json
        assert [own["label"] for own in answer["data"]] == [own.label for own in found]
        assert [own["probs"] for own in answer["data"]] == [pytest.approx(own.probabilities, abs=1e-5) for own in found]
    text = "fox [MASK] dog [MASK]"
    filled = api("/v1/fill-mask", {"model": "masked", "input": [text, "[MASK]"], "top_k": 3}).json
    wanted = language_models["masked"].fill_mask(text, k=3)
    assert [[(one["token"], one["score"]) for one in own] for own in filled["data"][0]["masks"]] == wanted
    assert len(filled["data"][1]["masks"]) == 1 and filled["usage"]["prompt_tokens"] > 4
    refused = api("/v1/fill-mask", {"model": "masked", "input": [text, "none"]}).error
    assert (refused["param"], refused["code"]) == ("input[1]", "no_mask")
    for route, model in (
        ("/v1/embeddings", "writer"),
        ("/v1/classify", "vectors"),
        ("/v1/completions", "vectors"),
        ("/v1/fill-mask", "writer"),
    ):
        needed = {"prompt": "a"} if route == "/v1/completions" else {"input": "a"}
        assert api(route, {"model": model, **needed}).error["code"] == "model_not_capable"


def test_tokens_and_back(api: Any) -> None:
    ids = api("/tokenize", {"model": "writer", "prompt": "小猫 fox", "return_token_strs": True}).json
    assert ids["count"] == len(ids["tokens"]) == len(ids["token_strs"])
    bare = api("/tokenize", {"model": "writer", "prompt": "小猫 fox", "add_special_tokens": False}).json["tokens"]
    assert api("/detokenize", {"model": "writer", "tokens": bare}).json["prompt"] == "小猫 fox"
    chat = api("/tokenize", {"model": "writer", "messages": CHAT}).json
    usage = api("/v1/chat/completions", {"model": "writer", "messages": CHAT, "max_tokens": 0}).json["usage"]
    assert chat["count"] == usage["prompt_tokens"]
    assert api("/detokenize", {"model": "writer", "tokens": [300]}).error["param"] == "tokens"


def test_models_have_names_and_aliases(api: Any) -> None:
    names = {own["id"] for own in api("/v1/models").json["data"]}
    assert names >= {"writer", "writer-alias", "vectors"}
    for name in ("writer", "writer-alias"):
        assert api(f"/v1/models/{name}").json["root"] == "writer"
        assert api("/v1/completions", {"model": name, "prompt": "a", "max_tokens": 1}).json["model"] == "writer"
    assert api("/v1/models/nobody").status == 404
    assert api("/v1/completions", {"prompt": "a"}).error["param"] == "model", "there are several"


def test_what_is_not_there_is_an_error_object(api: Any) -> None:
    for path, method, status in (("/nope", "GET", 404), ("/v1/completions", "GET", 405), ("/v1/models", "POST", 405)):
        answer = api(path, method=method)
        assert (answer.status, answer.error["param"]) == (status, None)
