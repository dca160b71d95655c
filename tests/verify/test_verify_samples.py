"""What is read: both languages, several lengths, no special token, and far enough to meet a window's edge."""

from dataclasses import replace

import pytest
import torch

from transpect.core import (
    AttentionConfig,
    Causal,
    Full,
    GlobalTokens,
    ModelConfig,
    PrefixLM,
    StackConfig,
    Visibility,
    Window,
)
from transpect.interop.peers import Reading
from transpect.text import train_tokenizer
from transpect.verify.measure import compare, compare_tokens
from transpect.verify.samples import TEXTS, samples_for


def config(context: int = 512, rule: Visibility = Causal(), vocab_size: int = 300) -> ModelConfig:  # noqa: B008
    stack = StackConfig(n_layers=1, attention=AttentionConfig(n_heads=2), visibility=rule)
    return ModelConfig(vocab_size=vocab_size, d_model=8, context_length=context, decoder=stack)


@pytest.mark.parametrize("kind", ["byte-bpe", "char"])
def test_texts_of_both_languages_go_through_the_tokenizer(kind: str) -> None:
    tokenizer = train_tokenizer(kind, list(TEXTS.values()), vocab_size=280 if kind == "byte-bpe" else None)
    samples = {sample.label: sample for sample in samples_for(config(), tokenizer, {}, seed=0)}
    for language, text in TEXTS.items():
        ids = [i for i in samples[language].ids if i not in tokenizer.special_ids]
        assert ids and text.startswith(tokenizer.decode(ids).rstrip("\ufffd"))


def test_random_ids_are_the_seed_s_and_never_special() -> None:
    tokenizer = train_tokenizer("char", ["abcdefgh"])
    small = config(vocab_size=tokenizer.vocab_size)
    twice = [samples_for(small, tokenizer, {}, seed=3), samples_for(small, tokenizer, {}, seed=3)]
    assert twice[0] == twice[1] != samples_for(small, tokenizer, {}, seed=4)
    drawn = {i for sample in twice[0] if sample.label.startswith("random") for i in sample.ids}
    assert drawn and not drawn & tokenizer.special_ids
    assert 7 not in {i for s in samples_for(small, None, {"pad_token_id": 7}, seed=3) for i in s.ids}


@pytest.mark.parametrize("context", [1, 2, 8, 40, 512])
def test_no_sample_is_longer_than_the_context(context: int) -> None:
    assert {len(s.ids) for s in samples_for(config(context), None, {}, seed=0)} >= {1}
    assert all(1 <= len(s.ids) <= context for s in samples_for(config(context), None, {}, seed=0))


@pytest.mark.parametrize(("rule", "more_than"), [(Window(70), 70), (Window(50, both_ways=True), 50), (Causal(), 9)])
def test_the_longest_goes_beyond_the_window(rule: Visibility, more_than: int) -> None:
    assert max(len(s.ids) for s in samples_for(config(rule=rule), None, {}, seed=0)) > more_than


def test_a_prefix_is_marked_where_the_rule_knows_one() -> None:
    assert all(0 < s.prefix <= len(s.ids) for s in samples_for(config(rule=PrefixLM()), None, {}, seed=0))
    assert all(not s.prefix for s in samples_for(config(), None, {}, seed=0))


@pytest.mark.parametrize("width", [3, 257])
def test_a_global_token_is_marked_where_what_reads_the_ids_knows_one(width: int) -> None:
    one = config(rule=Window(width, both_ways=True) | GlobalTokens())
    assert all(s.marked for s in samples_for(one, None, {}, seed=0))
    behind = replace(one.last, visibility=Causal(), steps=(("self",), ("cross",), ("ffn",)))
    assert not any(s.marked for s in samples_for(replace(one, encoder=one.last, decoder=behind), None, {}, seed=0))


def test_an_encoder_decoder_has_sources() -> None:
    one = config()
    two = replace(
        one,
        encoder=replace(one.last, visibility=Full()),
        decoder=replace(one.last, steps=(("self",), ("cross",), ("ffn",))),
    )
    assert all(s.source for s in samples_for(two, None, {}, seed=0))


def reading(*rows: list[float]) -> list[Reading]:
    return [{"logits": torch.tensor([row], dtype=torch.float64)} for row in rows]


def test_another_token_counts_only_where_the_margin_exceeds_the_tolerance() -> None:
    wanted = reading([1.0, 0.99, 0.0], [1.0, 0.5, 0.0])
    found = reading([1.0, 1.01, 0.0], [1.0, 1.01, 0.0])
    near = compare(found[:1], wanted[:1], [{"logits": 0.05}], greedy=True)
    assert (near.passes, near.greedy_equal, near.greedy_total, near.greedy_wrong) == (True, 0, 1, 0)
    far = compare_tokens([[1], [1]], [w["logits"] for w in wanted], [{"logits": 0.05}] * 2)
    assert (far.passes, far.greedy_equal, far.greedy_total, far.greedy_wrong) == (False, 0, 2, 1)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_none_never_passes(value: float) -> None:
    assert not compare(reading([value, 0.0]), reading([1.0, 0.0]), [{"logits": 1e9}], greedy=False).passes
    assert not compare(reading([1.0, 0.0]), reading([value, 0.0]), [{"logits": 1e9}], greedy=False).passes


def test_equal_infinities_are_equal_and_another_shape_is_not() -> None:
    hidden = reading([float("-inf"), 0.0])
    assert compare(hidden, hidden, [{"logits": 0.0}], greedy=False).passes
    assert not compare(reading([1.0]), reading([1.0, 1.0]), [{"logits": 1e9}], greedy=False).passes
