"""The same weights in `transformers`: its beam search with all its options, in batches of prompts of many lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from transpect.core import Transformer
from transpect.decode import GenerationParams, Request, Result, generate
from transpect.interop import load_model

VOCAB, NEW, START = 61, 8, 0
SIZES: dict[str, Any] = {"vocab_size": VOCAB, "bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
FAMILIES = ("gpt2", "llama", "t5", "bart")
ENCODES = ("t5", "bart")
ENDS = [3, 17, 40, 52]


def built(family: str) -> Any:
    if family == "gpt2":
        return GPT2LMHeadModel(GPT2Config(n_positions=64, n_embd=32, n_layer=2, n_head=4, **SIZES))
    if family == "llama":
        sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "max_position_embeddings": 64}
        return LlamaForCausalLM(LlamaConfig(num_attention_heads=4, num_key_value_heads=2, **sizes, **SIZES))
    if family == "t5":
        return T5ForConditionalGeneration(T5Config(d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, **SIZES))
    layers = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 2), ("ffn_dim", 48))}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    return BartForConditionalGeneration(
        BartConfig(d_model=32, max_position_embeddings=64, forced_eos_token_id=None, **layers, **heads, **SIZES)
    )


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Transformer]]:
    """Of each family the model there and here, with weights wide enough that beams differ."""
    state, found = torch.random.get_rng_state(), {}
    for family in FAMILIES:
        torch.manual_seed(11)
        model, path = built(family), Path(tmp_path_factory.mktemp(family))
        for parameter in model.parameters():
            if parameter.ndim > 1:
                torch.nn.init.normal_(parameter, std=0.4)
        model = model.double().eval()
        model.save_pretrained(path)
        found[family] = (model, load_model(path))
    torch.random.set_rng_state(state)
    return found


def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(1, VOCAB, (length,), generator=generator).tolist() for length in (1, 7, 3)]


def theirs(model: Any, rows: list[list[int]], **settings: Any) -> Any:
    """Prompts are padded on the left, sources on the right, where BART's positions bear it."""
    longest, left = max(map(len, rows)), not model.config.is_encoder_decoder
    gaps = [[0] * (longest - len(row)) for row in rows]
    marks = [[1] * len(row) for row in rows]
    return model.generate(
        torch.tensor([gap + row if left else row + gap for row, gap in zip(rows, gaps, strict=True)]),
        attention_mask=torch.tensor([gap + row if left else row + gap for row, gap in zip(marks, gaps, strict=True)]),
        generation_config=transformers.GenerationConfig(
            pad_token_id=0, decoder_start_token_id=START, return_dict_in_generate=True, output_scores=True, **settings
        ),
    )


def compared(found: list[Result], out: Any, given: int) -> None:
    """Their rows are filled after the end with the first EOS."""
    assert len(found) == len(out.sequences)
    for result, row, score in zip(found, out.sequences.tolist(), out.sequences_scores.tolist(), strict=True):
        new = row[given:]
        assert list(result.ids) == new[: len(result.ids)]
        assert set(new[len(result.ids) :]) <= {ENDS[0]}
        assert result.score == pytest.approx(score, abs=1e-5, rel=1e-6)  # theirs is in float32


OPTIONS: list[dict[str, Any]] = [
    {"num_beams": 4},
    {"num_beams": 4, "eos_token_id": ENDS, "num_return_sequences": 4},
    {"num_beams": 3, "eos_token_id": ENDS, "length_penalty": 2.0, "num_return_sequences": 3},
    {"num_beams": 3, "eos_token_id": ENDS, "length_penalty": 0.0, "early_stopping": "never", "num_return_sequences": 2},
    {"num_beams": 2, "eos_token_id": ENDS, "length_penalty": -1.0, "num_return_sequences": 2},
    {"num_beams": 3, "eos_token_id": ENDS, "early_stopping": True, "num_return_sequences": 3},
    {"num_beams": 3, "eos_token_id": ENDS, "early_stopping": "never", "length_penalty": 1.5, "num_return_sequences": 3},
    {"num_beams": 3, "eos_token_id": ENDS, "min_new_tokens": 6, "num_return_sequences": 2},
    {"num_beams": 3, "repetition_penalty": 1.8, "no_repeat_ngram_size": 2, "num_return_sequences": 3},
    {"num_beams": 4, "eos_token_id": 3, "bad_words_ids": [[5], [7, 8], [30, 31, 32]], "suppress_tokens": [9, 10]},
    {"num_beams": 3, "eos_token_id": ENDS, "exponential_decay_length_penalty": (3, 1.3), "num_return_sequences": 3},
    {"num_beams": 3, "sequence_bias": [[[5], 4.0], [[6, 7], 9.0]], "eos_token_id": ENDS, "num_return_sequences": 2},
    {"num_beams": 3, "forced_eos_token_id": 3, "eos_token_id": 3, "begin_suppress_tokens": [1, 2, 50]},
    {"num_beams": 3, "renormalize_logits": True, "repetition_penalty": 1.8, "suppress_tokens": [9, 10, 20]},
    {"num_beams": 3, "renormalize_logits": True, "sequence_bias": [[[5], 4.0], [[6, 7], 9.0]], "eos_token_id": ENDS},
    {"num_beams": 4, "max_new_tokens": 1, "eos_token_id": ENDS, "num_return_sequences": 4},
]
NAMES = {
    "eos_token_id": "eos_ids",
    "bad_words_ids": "bad_words",
    "suppress_tokens": "banned",
    "num_return_sequences": "num_return_sequences",
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_beams_are_theirs(options: dict[str, Any], family: str, models: dict[str, Any]) -> None:
    other, model = models[family]
    settings = {"max_new_tokens": NEW, "do_sample": False, **options}
    out = theirs(other, prompts(), **settings)
    asked = {NAMES.get(name, name): value for name, value in settings.items() if name != "do_sample"}
    params = GenerationParams().override(asked)
    encodes = family in ENCODES
    requests = [Request([START], params, ids) if encodes else Request(ids, params) for ids in prompts()]
    compared(generate(model, requests), out, 1 if encodes else max(map(len, prompts())))


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_outputs_of_a_batch_are_theirs(family: str, models: dict[str, Any]) -> None:
    other, model = models[family]
    settings = {"max_new_tokens": NEW, "do_sample": False, "repetition_penalty": 1.3, "eos_token_id": ENDS}
    out = theirs(other, prompts(), **settings).sequences.tolist()
    params = GenerationParams(NEW, repetition_penalty=1.3, eos_ids=tuple(ENDS))
    encodes = family in ENCODES
    requests = [Request([START], params, ids) if encodes else Request(ids, params) for ids in prompts()]
    given = 1 if encodes else max(map(len, prompts()))
    for result, row in zip(generate(model, requests), out, strict=True):
        assert [*result.ids, *[0] * (len(row) - given - len(result.ids))] == row[given:]


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize("scale", [0.0, 0.6, 1.5, 4.0])
def test_guidance_is_theirs(scale: float, family: str, models: dict[str, Any]) -> None:
    """Greedy, one prompt at a time, with a negative and without. Theirs is for decoders alone."""
    other, model = models[family]
    negatives = [[9, 8, 7, 6], None, [1]]
    params = GenerationParams(NEW, guidance_scale=scale)
    requests = [Request(ids, params, negative=one) for ids, one in zip(prompts(), negatives, strict=True)]
    for request, result in zip(requests, generate(model, requests), strict=True):
        given = {} if request.negative is None else {"negative_prompt_ids": torch.tensor([request.negative])}
        out = other.generate(
            torch.tensor([request.prompt]),
            generation_config=transformers.GenerationConfig(
                max_new_tokens=NEW, do_sample=False, pad_token_id=0, guidance_scale=scale, use_cache=False
            ),
            **given,
        )
        assert list(result.ids) == out[0, len(request.prompt) :].tolist()
