"""Several outputs, pairs, conversations and translations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from transpect.base.errors import ConfigError, GenerationError, TokenizerError
from transpect.core import AttentionConfig, Full, ModelConfig, StackConfig, Transformer
from transpect.core.positions import Rope
from transpect.lm import LanguageModel
from transpect.text import Tokenizer, train_tokenizer
from transpect.text.chat import encode_chat

CORPUS = ["小猫爱吃鱼。小狗爱吃肉。", "The quick brown fox jumps over the lazy dog: user assistant system"]
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:"
    "{% endif %}"
)
SAMPLED: dict[str, Any] = {"temperature": 1.0, "seed": 7, "max_new_tokens": 6}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    plain = train_tokenizer("char", [*CORPUS, "\n"], extra_special_tokens=("de_DE", "fr_FR"))
    return Tokenizer(
        plain.backend, dict(plain.special_tokens), chat_templates={"default": TEMPLATE, "short": "{{ 1 }}"}
    )


def build(kind: str, tokenizer: Tokenizer) -> LanguageModel:
    stack = StackConfig(n_layers=1, attention=AttentionConfig(n_heads=2), positions=Rope())
    config = ModelConfig(vocab_size=tokenizer.vocab_size, d_model=16, context_length=96, decoder=stack)
    if kind == "encoder-decoder":
        crossing = replace(stack, steps=(("self",), ("cross",), ("ffn",)))
        config = replace(config, encoder=replace(stack, visibility=Full()), decoder=crossing)
    generation = {"decoder_start_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id}
    return LanguageModel(Transformer(config, seed=4), tokenizer, generation)


@pytest.fixture(scope="module")
def lm(tokenizer: Tokenizer) -> LanguageModel:
    return build("decoder", tokenizer)


@pytest.fixture(scope="module")
def translator(tokenizer: Tokenizer) -> LanguageModel:
    return build("encoder-decoder", tokenizer)


@pytest.mark.parametrize("name", ["n", "num_return_sequences"])
def test_several_outputs_are_a_list_prompt_by_prompt(name: str, lm: LanguageModel) -> None:
    three = lm.generate("小", **{name: 3}, **SAMPLED)
    assert three == [lm.generate("小", **{**SAMPLED, "seed": seed}) for seed in (7, 8, 9)]
    assert lm.generate(["小", "fox"], **{name: 3}, **SAMPLED) == [*three, *lm.generate("fox", **{name: 3}, **SAMPLED)]
    assert lm.generate("小", **{name: 1}, **SAMPLED) == three[:1], "who asks for a number gets a list"
    assert [(r.choice, r.seed) for r in lm.complete(["小"], n=2, **SAMPLED)] == [(0, 7), (1, 8)]


def test_a_tuple_is_a_pair_wherever_it_stands(lm: LanguageModel, translator: LanguageModel) -> None:
    assert lm.score(("小猫", "爱")) == lm.score([("小猫", "爱")])
    assert len(lm.score(["小猫", "爱"])) == 2
    assert translator.score(("小猫", "fox")) == translator.score([("小猫", "fox")])
    for bad in [("a", "b", "c"), [3], [("a",)], [["a", "b"]]]:
        with pytest.raises(GenerationError, match="a pair of two texts as a tuple"):
            lm.score(bad)  # type: ignore[arg-type]


def test_a_conversation_is_continued_from_its_template(lm: LanguageModel, tokenizer: Tokenizer) -> None:
    messages = [{"role": "system", "content": "fox"}, {"role": "user", "content": "小猫"}]
    ids = encode_chat(tokenizer, messages)
    assert lm.chat_prompt(messages) == ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "system: fox\nuser: 小猫\nassistant:"
    assert lm.chat(messages, **SAMPLED) == lm.generate(ids, **SAMPLED) == "".join(lm.stream_chat(messages, **SAMPLED))
    assert lm.chat("小猫", **SAMPLED) == lm.chat([{"role": "user", "content": "小猫"}], **SAMPLED)
    assert lm.chat_prompt("小猫", template="short") == [tokenizer.bos_id, *tokenizer.encode("1")]
    assert len(lm.chat(messages, n=2, **SAMPLED)) == 2
    with pytest.raises(TokenizerError, match="no such chat template"):
        lm.chat("小猫", template="tall")


def test_a_translation_is_a_search_with_four_beams(translator: LanguageModel) -> None:
    options: dict[str, Any] = {"max_new_tokens": 6}
    whole = translator.generate(["小猫", "fox"], num_beams=4, **options)
    assert translator.translate(["小猫", "fox"], **options) == whole
    assert translator.translate("fox", **options) == whole[1]
    assert translator.translate("fox", num_beams=1, **options) == translator.generate("fox", **options)
    assert translator.translate("fox", num_beams=1, **SAMPLED) == translator.generate("fox", **SAMPLED)
    for other in ({"temperature": 1.0, "seed": 3}, {"seed": 3}, {"best_of": 2, "temperature": 1.0, "seed": 3}):
        assert translator.translate("fox", **other, **options) == translator.generate("fox", **other, **options)
    wishing = LanguageModel(translator.model, translator.tokenizer, {**translator.generation, "num_beams": 2})
    assert wishing.translate("fox", **options) == translator.generate("fox", num_beams=2, **options)
    two = translator.translate("fox", n=2, length_penalty=0.5, **options)
    assert two == translator.generate("fox", num_beams=4, n=2, length_penalty=0.5, **options) and len(set(two)) == 2


def test_a_target_language_is_forced(translator: LanguageModel, tokenizer: Tokenizer) -> None:
    token = tokenizer.token_to_id("de_DE")
    forced = LanguageModel(translator.model, tokenizer, {**translator.generation, "forced_bos_token_id": token})
    found = translator.translate("fox", target_language="de_DE", max_new_tokens=6)
    assert (
        found
        == forced.translate("fox", max_new_tokens=6)
        == forced.translate("fox", target_language="de_DE", max_new_tokens=6)
    )
    for bad in ("de_DD", "小"):
        with pytest.raises(GenerationError, match="target_language"):
            translator.translate("fox", target_language=bad)


def test_only_an_encoder_decoder_translates(lm: LanguageModel) -> None:
    with pytest.raises(GenerationError, match=r"generate\(\) or chat\(\)"):
        lm.translate("fox")


def test_guidance_leads_away_from_a_text_as_it_is_prompted(lm: LanguageModel, translator: LanguageModel) -> None:
    for model in (lm, translator):
        (request,) = model.requests(["小猫"], guidance_scale=2.0, negative_prompt="fox")
        (other,) = model.requests(["fox"])
        assert request.negative == (other.prompt if other.source is None else other.source)
        (without,) = model.requests(["小猫"], guidance_scale=2.0)
        assert without.negative is None


def test_a_draft_is_a_model_by_any_name(lm: LanguageModel, tokenizer: Tokenizer, tmp_path: Path) -> None:
    small = LanguageModel(Transformer(lm.model.config, seed=9), tokenizer, lm.generation)
    small.save(tmp_path / "small")
    plain = lm.generate("小猫", max_new_tokens=12)
    for draft in (small.model, small, tmp_path / "small", str(tmp_path / "small")):
        (result,) = lm.complete(["小猫"], draft=draft, num_assistant_tokens=3, max_new_tokens=12)
        assert result.text == plain and result.drafted
    (one,) = {id(lm.requests(["小"], draft=tmp_path / "small")[0].params.strategy.draft) for _ in range(2)}  # type: ignore[attr-defined]
    assert one
    other = LanguageModel(small.model, train_tokenizer("char", ["abc"]), {})
    with pytest.raises(GenerationError, match="the vocabulary of the model"):
        lm.generate("小猫", draft=other)


@pytest.mark.parametrize("prompts", [None, 3, b"ab", {"a": 1}, (text for text in "ab"), [None], [True], [[1.5]]])
@pytest.mark.parametrize("method", ["generate", "complete", "events", "requests"])
def test_what_is_no_prompt_is_refused_by_name(tokenizer, method, prompts) -> None:
    with pytest.raises(GenerationError, match=r"a text(, a list| or a list)"):
        getattr(build("decoder", tokenizer), method)(prompts, max_new_tokens=1)


@pytest.mark.parametrize("texts", [None, 3])
def test_what_is_no_text_has_no_score(tokenizer, texts) -> None:
    with pytest.raises(GenerationError, match="must be a text"):
        build("decoder", tokenizer).score(texts)


@pytest.mark.parametrize("cache", ["int8", 3])
def test_what_is_no_cache_is_refused_by_name(tokenizer, cache) -> None:
    with pytest.raises(ConfigError, match="kind of cache"):
        build("decoder", tokenizer).generate("小", cache=cache)
