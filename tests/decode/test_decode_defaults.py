"""A checkpoint's own settings are carried out: each entry is a parameter here, and the outputs are those of
`transformers` that it names."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, GPT2Config, GPT2LMHeadModel

from transpect.base.errors import GenerationError
from transpect.decode import Defaults
from transpect.interop import load_generation, load_model
from transpect.lm import LanguageModel
from transpect.text import train_tokenizer

TOKENIZER = train_tokenizer("char", ["abcdefghij"])
VOCAB = 37

ENTRIES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"min_length": 7}, {"min_length": 7}),
    ({"repetition_penalty": 1.3}, {"repetition_penalty": 1.3}),
    ({"encoder_repetition_penalty": 1.3}, {"encoder_repetition_penalty": 1.3}),
    ({"no_repeat_ngram_size": 3}, {"no_repeat_ngram_size": 3}),
    ({"encoder_no_repeat_ngram_size": 3}, {"encoder_no_repeat_ngram_size": 3}),
    ({"bad_words_ids": [[1, 2], [3]]}, {"bad_words": ((1, 2), (3,))}),
    ({"suppress_tokens": [1, 2]}, {"banned": (1, 2)}),
    ({"begin_suppress_tokens": [1, 2]}, {"begin_suppress_tokens": (1, 2)}),
    ({"forced_eos_token_id": 0}, {"forced_eos_token_id": (0,)}),
    ({"sequence_bias": [[[1, 2], -1.5]]}, {"sequence_bias": (((1, 2), -1.5),)}),
    ({"exponential_decay_length_penalty": [3, 1.2]}, {"exponential_decay_length_penalty": (3, 1.2)}),
    ({"min_p": 0.1}, {"min_p": 0.1}),
    ({"typical_p": 0.9}, {"typical_p": 0.9}),
    ({"epsilon_cutoff": 0.01}, {"epsilon_cutoff": 0.01}),
    ({"eta_cutoff": 0.01}, {"eta_cutoff": 0.01}),
    ({"guidance_scale": 1.5}, {"guidance_scale": 1.5}),
    ({"top_p": 0.0, "do_sample": True}, {"top_p": 0.0}),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("entries", "params"), ENTRIES, ids=str)
def test_an_entry_is_a_parameter(entries: dict[str, Any], params: dict[str, Any]) -> None:
    found = Defaults.read(entries).params
    assert {name: getattr(found, name) for name in params} == params


STRATEGIES: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    (
        {"num_beams": 3, "length_penalty": 2.0, "early_stopping": True},
        "num_beams",
        {"num_beams": 3, "length_penalty": 2},
    ),
    ({"num_beams": 1, "length_penalty": 2.0, "early_stopping": True}, "", {}),
    ({"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.3}, "num_beam_groups", {"diversity_penalty": 0.3}),
    ({"num_beams": 4, "num_beam_groups": 1, "diversity_penalty": 0.0}, "num_beams", {"num_beams": 4}),
    ({"penalty_alpha": 0.6, "top_k": 4}, "penalty_alpha", {"penalty_alpha": 0.6}),
    ({"penalty_alpha": 0.6, "top_k": 4, "do_sample": True}, "", {}),
    ({"penalty_alpha": 0.6, "num_beams": 2}, "num_beams", {"num_beams": 2}),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("entries", "trigger", "options"), STRATEGIES, ids=str)
def test_the_strategy_is_theirs(entries: dict[str, Any], trigger: str, options: dict[str, Any]) -> None:
    strategy = Defaults.read(entries).params.strategy
    assert strategy.trigger == trigger
    assert {name: getattr(strategy, name) for name in options} == options


def test_new_tokens_take_the_place_of_a_length() -> None:
    """As there: who says how many new tokens there must be says no more how long all must be."""
    assert Defaults.read({"min_length": 9, "min_new_tokens": 2}).params.min_length == 0
    long = Defaults.read({"min_length": 9})
    assert long.params_for({}, 1).min_length == 9
    assert long.params_for({"min_new_tokens": 0}, 1).min_length == 0
    assert long.params_for({"min_new_tokens": 2, "min_length": 4}, 1).min_length == 4


@pytest.mark.filterwarnings("error")
def test_options_of_beams_wait_for_beams() -> None:
    said = {"length_penalty": 2.0, "early_stopping": True, "renormalize_logits": True}
    for entries in (said, {**said, "num_beams": 1}):
        found = Defaults.read(entries)
        assert found.params_for({}, 1).strategy.trigger == ""
        assert found.params_for({"num_beams": 1}, 1).strategy.trigger == ""
        for asked in ({"num_beams": 4}, {"num_beam_groups": 2}):
            strategy: Any = found.params_for(asked, 1).strategy
            assert {name: getattr(strategy, name) for name in said} == said
        mine: Any = found.params_for({"num_beams": 4, "length_penalty": 0.5}, 1).strategy
        assert (mine.length_penalty, mine.early_stopping) == (0.5, True)


def test_the_caller_has_the_last_word_on_the_strategy() -> None:
    beams = Defaults.read({"num_beams": 3, "length_penalty": 2.0})
    assert beams.params_for({"num_beams": 1}, 1).strategy.trigger == ""
    five: Any = beams.params_for({"num_beams": 5}, 1).strategy
    assert (five.num_beams, five.length_penalty) == (5, 2.0)
    contrasts = Defaults.read({"penalty_alpha": 0.6, "top_k": 4})
    assert contrasts.params_for({"top_k": 8}, 1).greedy
    assert contrasts.params_for({"temperature": 0.7}, 1).strategy.trigger == ""
    assert contrasts.params_for({"seed": 1}, 1).strategy.trigger == ""
    mine = Defaults.read({}).params_for({"penalty_alpha": 0.6, "top_k": 4, "seed": 1}, 1)
    assert (mine.greedy, mine.strategy.trigger) == (True, "penalty_alpha")


@pytest.mark.parametrize("asked", ["min_p", "typical_p", "epsilon_cutoff", "eta_cutoff"])
def test_who_cuts_the_distribution_samples(asked: str) -> None:
    assert Defaults.read({}).params_for({asked: 0.1}, 1).temperature == 1.0


def spread(model: Any) -> Any:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, 0.6, generator=generator)
    return model.double().eval()


def bart(folder: Path) -> Any:
    sizes = {"vocab_size": VOCAB, "d_model": 24, "encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 20}
    heads = {"encoder_attention_heads": 3, "decoder_attention_heads": 2, "decoder_ffn_dim": 28}
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    theirs = spread(BartForConditionalGeneration(BartConfig(**sizes, **heads, **ids, max_position_embeddings=64)))
    theirs.save_pretrained(folder)
    return theirs


def gpt2(folder: Path) -> Any:
    sizes = {"vocab_size": VOCAB, "n_positions": 64, "n_embd": 24, "n_layer": 2, "n_head": 3}
    theirs = spread(GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=2, pad_token_id=1)))
    theirs.save_pretrained(folder)
    return theirs


SETTINGS: dict[str, dict[str, Any]] = {
    "summarises": {
        "num_beams": 4,
        "length_penalty": 2.0,
        "early_stopping": True,
        "no_repeat_ngram_size": 3,
        "min_length": 9,
        "max_length": 20,
        "forced_bos_token_id": 0,
        "forced_eos_token_id": 2,
    },
    "penalised": {"repetition_penalty": 1.7, "min_length": 6, "max_length": 25, "no_repeat_ngram_size": 2},
    "source": {"encoder_repetition_penalty": 1.4, "encoder_no_repeat_ngram_size": 2, "max_length": 18},
    "biased": {
        "sequence_bias": [[[5], 1.5], [[7, 8], -9.0], [[9], -2.0]],
        "bad_words_ids": [[6], [4, 3], [2]],
        "suppress_tokens": [11, 12],
        "begin_suppress_tokens": [5, 13],
        "max_length": 18,
    },
    "ending": {"exponential_decay_length_penalty": [2, 1.3], "max_length": 30, "forced_eos_token_id": 2},
}


@pytest.mark.parametrize("family", [bart, gpt2], ids=lambda family: family.__name__)
@pytest.mark.parametrize("name", SETTINGS)
def test_the_outputs_are_theirs(name: str, family: Any, tmp_path: Path) -> None:
    theirs, encodes = family(tmp_path), family is bart
    entries = {key: value for key, value in SETTINGS[name].items() if encodes or key != "forced_bos_token_id"}
    file = tmp_path / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))
    theirs.generation_config = type(theirs.generation_config).from_pretrained(tmp_path)
    lm = LanguageModel(load_model(tmp_path), TOKENIZER, load_generation(tmp_path))
    rows = [[9, 8, 7, 6, 9], [11, 4, 30, 2, 6, 17, 9], [5, 5, 5]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mine = lm.complete(rows)
    for ids, result in zip(rows, mine, strict=True):
        out = theirs.generate(torch.tensor([ids]))[0].tolist()
        began = len(ids) if not encodes else 2 if "forced_bos_token_id" in entries else 1
        assert list(result.ids) == out[began:]


def test_a_value_that_no_filter_takes_is_named() -> None:
    with pytest.raises(GenerationError, match="repetition_penalty"):
        Defaults.read({"repetition_penalty": 0})
