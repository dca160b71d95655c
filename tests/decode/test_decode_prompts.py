"""What is put around a text: one start token or none, one end of a source; and nothing around ids."""

from __future__ import annotations

from typing import Any

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors

from transpect.base.errors import GenerationError
from transpect.decode import Prompts
from transpect.text import Tokenizer

WORDS = {word: i for i, word in enumerate(["<pad>", "<s>", "</s>", "cat", "fish", "[CLS]"])}
CAT, FISH, BOS, EOS = 3, 4, 1, 2


def tokenizer(rule: str | None, roles: dict[str, str]) -> Tokenizer:
    """Words, with a template for what ``add_special_tokens`` adds."""
    backend = tokenizers.Tokenizer(models.WordLevel(WORDS, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    if rule is not None:
        used = [(word, WORDS[word]) for word in rule.split() if word in WORDS]
        backend.post_processor = processors.TemplateProcessing(single=rule, pair=f"{rule} $B", special_tokens=used)
    return Tokenizer(backend, roles)


BOTH = {"bos": "<s>", "eos": "</s>", "pad": "<pad>"}
ONLY_EOS = {"eos": "</s>", "pad": "<pad>"}

# a tokenizer's rule, its roles, the checkpoint's entries → the ids of "cat fish" as a prompt
CASES: list[tuple[str | None, dict[str, str], dict[str, Any], list[int]]] = [
    ("<s> $A", BOTH, {}, [BOS, CAT, FISH]),
    ("<s> $A </s>", BOTH, {}, [BOS, CAT, FISH]),
    ("$A </s>", BOTH, {}, [CAT, FISH]),
    (None, BOTH, {}, [CAT, FISH]),
    (None, BOTH, {"bos_token_id": BOS, "eos_token_id": EOS}, [CAT, FISH]),
    (None, BOTH, {"prompt_start_token_id": BOS}, [BOS, CAT, FISH]),
    (None, ONLY_EOS, {"prompt_start_token_id": EOS}, [EOS, CAT, FISH]),
    ("<s> $A", BOTH, {"prompt_start_token_id": BOS}, [BOS, CAT, FISH]),
    (None, ONLY_EOS, {}, [CAT, FISH]),
]


@pytest.mark.parametrize(("rule", "roles", "generation", "ids"), CASES, ids=repr)
def test_a_prompt_begins_as_the_model_was_trained(
    rule: str | None, roles: dict[str, str], generation: dict[str, Any], ids: list[int]
) -> None:
    prompts = Prompts(tokenizer(rule, roles), generation)
    assert prompts.prompt("cat fish") == ids


@pytest.mark.parametrize(("rule", "roles", "generation", "ids"), CASES, ids=repr)
def test_case_16_a_start_that_the_text_spells_is_not_doubled(
    rule: str | None, roles: dict[str, str], generation: dict[str, Any], ids: list[int]
) -> None:
    prompts = Prompts(tokenizer(rule, roles), generation)
    if prompts.start is not None:
        start = {BOS: "<s>", EOS: "</s>"}[prompts.start]
        assert prompts.prompt(f"{start} cat fish") == ids


def test_an_end_that_the_text_spells_stays() -> None:
    assert Prompts(tokenizer("<s> $A", BOTH), {}).prompt("cat </s>") == [BOS, CAT, EOS]


@pytest.mark.parametrize(
    ("rule", "roles", "generation", "begin"),
    [
        ("<s> $A", BOTH, {}, BOS),
        (None, BOTH, {}, BOS),
        (None, ONLY_EOS, {}, EOS),
        (None, {}, {"bos_token_id": 5}, 5),
        (None, {}, {"eos_token_id": [2, 4]}, EOS),
        (None, BOTH, {"prompt_start_token_id": 5}, 5),
    ],
    ids=repr,
)
def test_an_empty_prompt_begins_with_bos_or_eos(
    rule: str | None, roles: dict[str, str], generation: dict[str, Any], begin: int
) -> None:
    prompts = Prompts(tokenizer(rule, roles), generation)
    assert prompts.prompt("") == [begin]
    assert prompts.begin() == begin


def test_an_empty_prompt_without_either_is_refused() -> None:
    with pytest.raises(GenerationError, match="BOS"):
        Prompts(tokenizer(None, {}), {}).prompt("")


@pytest.mark.parametrize(
    ("rule", "roles", "ids"),
    [
        ("$A </s>", BOTH, [CAT, FISH, EOS]),  # T5
        ("<s> $A </s>", BOTH, [BOS, CAT, FISH, EOS]),  # BART
        ("<s> $A", BOTH, [CAT, FISH, EOS]),  # a language model's tokenizer, as our own training uses it
        (None, BOTH, [CAT, FISH, EOS]),
        (None, {}, [CAT, FISH]),
    ],
    ids=repr,
)
def test_a_source_ends_with_eos(rule: str | None, roles: dict[str, str], ids: list[int]) -> None:
    assert Prompts(tokenizer(rule, roles), {}).source("cat fish") == ids


@pytest.mark.parametrize("rule", [None, "<s> $A", "$A </s>", "<s> $A </s>"])
@pytest.mark.parametrize("text", ["cat </s>", "cat </s> fish", "</s> cat"])
def test_an_end_that_a_source_spells_is_not_doubled_and_stands_at_the_end(rule: str | None, text: str) -> None:
    ids = Prompts(tokenizer(rule, BOTH), {}).source(text)
    inner = [WORDS[word] for word in text.removesuffix(" </s>").split()]
    assert ids == [*([BOS] if rule == "<s> $A </s>" else []), *inner, EOS]


@pytest.mark.parametrize(
    ("roles", "generation", "start"),
    [(BOTH, {"decoder_start_token_id": 0}, 0), (BOTH, {}, BOS), (ONLY_EOS, {}, EOS)],
    ids=repr,
)
def test_a_decoder_begins_where_the_checkpoint_says(
    roles: dict[str, str], generation: dict[str, Any], start: int
) -> None:
    assert Prompts(tokenizer(None, roles), generation).decoder_start() == start


def test_a_decoder_without_a_beginning_is_refused() -> None:
    with pytest.raises(GenerationError, match="begin"):
        Prompts(tokenizer(None, {}), {}).decoder_start()
