"""Whole outputs of models that are held to a language: whatever the model, they are texts of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from transpect.base.errors import GenerationError
from transpect.decode import GenerationParams, Request, generate
from transpect.decode.constraints import Grammar, JsonSchema, Regex
from transpect.lm import LanguageModel
from transpect.text import Tokenizer, train_tokenizer

CORPUS = ['The quick brown fox {"name": [1, 2.5, true]} 小猫 👩‍👩‍👧 e\u0301'] * 3
KINDS: Mapping[str, tuple[str, int | None, dict[str, Any]]] = {
    "byte-bpe": ("byte-bpe", 300, {}),
    "unigram": ("unigram", 330, {"byte_fallback": True}),
    "char": ("char", None, {"byte_fallback": True}),
    "wordpiece": ("wordpiece", 120, {"lowercase": False}),
}


@cache
def tokenizer_of(kind: str) -> Tokenizer:
    tag, size, options = KINDS[kind]
    return train_tokenizer(tag, CORPUS, size, **options)


def model_of(tools: Any, kind: str, shape: str = "mha") -> LanguageModel:
    tokenizer = tokenizer_of(kind)
    model = tools.model(tools.Case("rope", shape), vocab_size=tokenizer.vocab_size + 1, context_length=200)
    return LanguageModel(model, tokenizer, {"eos_token_id": max(tokenizer.special_ids), "decoder_start_token_id": 0})


PATTERNS = [
    r"[a-f]{2,5}(fox|[xyz])*",
    r"\d+(\.\d{1,2})?",
    r"(?i)the( quick| brown)+ ?",
    r"[^a]{1,3}",
    "小*猫",
    r" *[A-Z][a-z]+",
    "",
    r"(?s).{1,2}",
]
PROMPTS = ["The quick", "小", ""]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", ["mha", "encoder-decoder"])
def test_outputs_match_their_pattern(kind: str, shape: str, tools: Any) -> None:
    """All patterns and temperatures in one batch, among neighbours that are held to nothing; each as it is alone."""
    lm = model_of(tools, kind, shape)
    requests: list[Request] = []
    for number, pattern in enumerate(PATTERNS):
        for temperature in (0.0, 1.0, 3.0):
            (one,) = lm.requests([PROMPTS[number % 3]], temperature=temperature, seed=number, max_new_tokens=25)
            requests.append(replace(one, params=replace(one.params, constraint=Regex(pattern))))
    (free,) = lm.requests(["The"], temperature=1.0, seed=3, max_new_tokens=9)
    spellable: list[Request] = [free]
    for request in requests:
        try:
            generate(
                lm.model, [replace(request, params=replace(request.params, max_new_tokens=1))], tokenizer=lm.tokenizer
            )
            spellable.append(request)
        except GenerationError:
            assert kind == "wordpiece"
    assert len(spellable) > len(requests) // 2
    results = generate(lm.model, spellable, tokenizer=lm.tokenizer)
    ended = 0
    for request, result in zip(spellable[1:], results[1:], strict=True):
        language = request.params.constraint
        assert isinstance(language, Regex)
        if result.finish_reason == "eos":
            ended += 1
            assert re.fullmatch(language.pattern, result.text)
        else:
            assert (result.finish_reason, len(result.ids)) == ("length", 25)
    assert ended > len(spellable) // 3
    for place in (0, len(spellable) // 2, -1):
        assert generate(lm.model, [spellable[place]], tokenizer=lm.tokenizer)[0].ids == results[place].ids


def test_without_an_end_the_output_stops_where_its_text_is_whole(tools: Any) -> None:
    lm = model_of(tools, "byte-bpe")
    for temperature in (0.0, 2.0):
        asked = {"regex": "ab{3}c", "temperature": temperature, "seed": 1, "max_new_tokens": 30}
        with_end, without = lm.complete(["x", "y"], **asked), lm.complete(["x", "y"], ignore_eos=True, **asked)
        assert [result.text for result in with_end + without] == ["abbbc"] * 4
        assert [result.finish_reason for result in with_end + without] == ["eos"] * 2 + ["stop"] * 2
        assert [result.ids[:-1] for result in with_end] == [result.ids for result in without]
        assert "".join(lm.stream("x", ignore_eos=True, **asked)) == "abbbc"


def test_min_new_tokens_waits_while_it_can(tools: Any) -> None:
    """Where there is a way to go on it is taken; a whole text that nothing follows ends all the same."""
    lm = model_of(tools, "byte-bpe")
    for temperature in (0.0, 1.0, 3.0):
        asked = {"temperature": temperature, "seed": 5, "min_new_tokens": 12, "max_new_tokens": 40}
        (longer,), (short,) = lm.complete(["x"], regex="[ab]*", **asked), lm.complete(["x"], regex="[ab]{2}", **asked)
        assert len(longer.ids) > 12 and re.fullmatch("[ab]*", longer.text)
        assert short.finish_reason == "eos" and re.fullmatch("[ab]{2}", short.text)


def test_an_output_that_is_cut_says_so(tools: Any) -> None:
    lm = model_of(tools, "byte-bpe")
    (result,) = lm.complete(["x"], regex="a{50}", max_new_tokens=7)
    assert (result.finish_reason, set(result.text)) == ("length", {"a"})


def test_a_stop_string_cuts_it_too(tools: Any) -> None:
    lm = model_of(tools, "byte-bpe")
    (result,) = lm.complete(["x"], regex="aaab+c", stop="ab", max_new_tokens=30)
    assert (result.text, result.finish_reason) == ("aa", "stop")
    (result,) = lm.complete(["x"], regex="aab", stop="b!", max_new_tokens=30, ignore_eos=True)
    assert (result.text, result.finish_reason) == ("aab", "stop")  # what was held for a stop string comes at the end


SCHEMAS: Sequence[Mapping[str, Any]] = [
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 4},
            "tags": {"type": "array", "items": {"enum": ["x", "猫", None]}, "minItems": 1, "maxItems": 3},
            "n": {"type": "integer", "minimum": -3, "maximum": 120},
        },
        "required": ["name", "n"],
        "additionalProperties": False,
    },
    {"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "null"}, "maxItems": 2}]},
    {"type": "array", "prefixItems": [{"const": 1}, {"type": "string", "pattern": "^a+$"}], "items": False},
    {"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}}},
]


def fits(value: Any, schema: Any, root: Mapping[str, Any]) -> bool:
    """Whether a value is what a schema of the kind above allows."""
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema:
        return fits(value, root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root)
    types = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "null": type(None)}
    kind = schema.get("type")
    holds = kind is None or type(value) is types[kind]
    holds = holds and value in schema.get("enum", [value]) and value == schema.get("const", value)
    holds = holds and any(fits(value, one, root) for one in schema.get("anyOf", [True]))
    if isinstance(value, str):
        holds = (
            holds and len(value) <= schema.get("maxLength", 99) and bool(re.search(schema.get("pattern", ""), value))
        )
    if isinstance(value, int):
        holds = holds and schema.get("minimum", value) <= value <= schema.get("maximum", value)
    if isinstance(value, list):
        holds = holds and schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 99)
        head = schema.get("prefixItems", [])
        pairs = zip(value, [*head, *[schema.get("items", True)] * len(value)], strict=False)
        holds = holds and all(fits(item, one, root) for item, one in pairs)
    if isinstance(value, dict):
        known = schema.get("properties", {})
        holds = holds and set(schema.get("required", [])) <= set(value) <= set(known)
        holds = holds and all(fits(item, known[key], root) for key, item in value.items())
    return bool(holds)


@pytest.mark.parametrize("kind", ["byte-bpe", "unigram", "char"])
def test_outputs_are_json_of_their_schema(kind: str, tools: Any) -> None:
    lm = model_of(tools, kind)
    requests = [
        replace(request, params=replace(request.params, constraint=JsonSchema(schema)))
        for schema in SCHEMAS
        for seed in range(6)
        for request in lm.requests(["The"], temperature=1 + seed % 3, seed=seed, max_new_tokens=120)
    ]
    ended = 0
    for request, result in zip(requests, generate(lm.model, requests, tokenizer=lm.tokenizer), strict=True):
        assert isinstance(request.params.constraint, JsonSchema)
        schema = json.loads(request.params.constraint.schema)
        if result.finish_reason == "eos":
            ended += 1
            assert fits(json.loads(result.text), schema, schema)
        else:
            assert (result.finish_reason, len(result.ids)) == ("length", 120)
    assert ended >= len(requests) // 3


@pytest.mark.parametrize("text", ['start: "(" start* ")"', 'root ::= "(" root* ")"'])
def test_outputs_are_derived_by_their_grammar(text: str, tools: Any) -> None:
    lm = model_of(tools, "byte-bpe")
    requests = [
        replace(request, params=replace(request.params, constraint=Grammar(text)))
        for seed in range(10)
        for request in lm.requests(["The"], temperature=1 + seed % 3, seed=seed, max_new_tokens=60)
    ]
    for result in generate(lm.model, requests, tokenizer=lm.tokenizer):
        depth = [result.text[: n + 1].count("(") - result.text[: n + 1].count(")") for n in range(len(result.text))]
        assert set(result.text) <= set("()") and all(depth[:-1])
        assert (depth[-1] == 0) == (result.finish_reason == "eos")


def test_what_cannot_be_done_is_refused_before_anything_runs(tools: Any) -> None:
    lm = model_of(tools, "byte-bpe")
    params = GenerationParams(constraint=Regex("a"))
    with pytest.raises(GenerationError, match="needs a tokenizer"):
        generate(lm.model, [Request([5], params)])
    with pytest.raises(GenerationError, match="only text is empty"):
        lm.stream("x", regex="", ignore_eos=True)
    cat = lm.tokenizer.encode("猫"[:1])
    whole = [i for i in range(256 + 5) if "\\xe7" in lm.tokenizer.tokens([i])[0]][:1]
    assert cat and whole
    with pytest.raises(GenerationError, match="within a character"):
        lm.stream(whole, regex="a")
    with pytest.raises(GenerationError, match="vocabulary can't write"):
        model_of(tools, "wordpiece").stream("x", regex="[{]龘")


STRATEGIES: Mapping[str, Mapping[str, Any]] = {
    "beam": {"num_beams": 3, "n": 2},
    "beam-drawn": {"num_beams": 3, "n": 2, "temperature": 1.5},
    "diverse": {"num_beam_groups": 2, "num_beams": 4, "n": 2},
    "contrastive": {"penalty_alpha": 0.6, "top_k": 4},
    "best-of": {"best_of": 3, "n": 2, "temperature": 2.0},
    "look-up": {"prompt_lookup_num_tokens": 3, "temperature": 1.0},
    "early-exit": {"early_exit": 1, "num_assistant_tokens": 4, "temperature": 2.0},
    "n": {"n": 3, "temperature": 2.0},
    "guided": {"guidance_scale": 2.0},
}


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("ends", [True, False])
def test_every_strategy_writes_texts_of_the_language(name: str, ends: bool, tools: Any) -> None:
    """Among them a language of few texts, of which there are fewer than beams."""
    lm, ended = model_of(tools, "byte-bpe"), 0
    for pattern in (r"[a-c]{2,4}(fox| brown){1,2}", "(小猫|a)b?c", "ab"):
        asked = {"temperature": 0.0, **STRATEGIES[name], "seed": 3, "max_new_tokens": 24, "ignore_eos": not ends}
        for result in lm.complete(["The quick", "小"], regex=pattern, **asked):
            assert re.fullmatch(pattern, result.text) or result.finish_reason == "length"
            assert result.finish_reason in ("length", "eos" if ends else "stop")
            ended += result.finish_reason != "length"
    assert ended >= 4
