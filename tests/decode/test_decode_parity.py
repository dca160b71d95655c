"""The same weights in `transformers`: its greedy outputs, one prompt at a time, and its filters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.generation import (
    MinNewTokensLengthLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from transpect.decode import GenerationParams, Request, Sampler, generate
from transpect.interop import load_model

from .conftest import after

VOCAB, NEW = 61, 12
SIZES: dict[str, Any] = {"vocab_size": VOCAB, "bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}


def theirs(family: str) -> Any:
    torch_state = torch.random.get_rng_state()
    torch.manual_seed(11)
    if family == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(n_positions=64, n_embd=32, n_layer=2, n_head=4, **SIZES))
    elif family == "llama":
        sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "max_position_embeddings": 64}
        model = LlamaForCausalLM(LlamaConfig(num_attention_heads=4, num_key_value_heads=2, **sizes, **SIZES))
    else:
        model = T5ForConditionalGeneration(T5Config(d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, **SIZES))
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.4)
    torch.random.set_rng_state(torch_state)
    return model.double().eval()


def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(1, VOCAB, (length,), generator=generator).tolist() for length in (1, 7, 3, 12, 5)]


@pytest.mark.parametrize("family", ["gpt2", "llama", "t5"])
def test_greedy_outputs_are_theirs(family: str, tmp_path: Path) -> None:
    other = theirs(family)
    other.save_pretrained(tmp_path)
    model = load_model(tmp_path)
    assert model.token.weight.dtype == torch.float64
    encodes = family == "t5"
    for ends, least in (((), 0), ((3, 17, 40, 52), 0), ((3, 17, 40, 52), 6)):
        params = GenerationParams(NEW, min_new_tokens=least, eos_ids=ends)
        mine = generate(model, [Request([0], params, ids) if encodes else Request(ids, params) for ids in prompts()])
        for ids, result in zip(prompts(), mine, strict=True):
            settings = {"eos_token_id": list(ends)} if ends else {}
            settings |= {"min_new_tokens": least} if least else {}
            out = other.generate(
                torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                generation_config=transformers.GenerationConfig(
                    max_new_tokens=NEW, do_sample=False, pad_token_id=0, decoder_start_token_id=0, **settings
                ),
            )[0].tolist()
            assert list(result.ids) == out[1 if encodes else len(ids) :]


FILTERS = [
    {"temperature": 0.7},
    {"top_k": 5},
    {"top_p": 0.6},
    {"temperature": 1.7, "top_k": 9, "top_p": 0.8},
    {"temperature": 0.2, "top_k": 1, "top_p": 0.0},
    {"min_new_tokens": 4, "eos_ids": (2, 8), "temperature": 1.3, "top_p": 0.9},
]


@pytest.mark.parametrize("changes", FILTERS, ids=str)
def test_filters_are_theirs(changes: dict[str, Any]) -> None:
    params = GenerationParams(**{"temperature": 1.0, "seed": 0, **changes})
    logits = torch.randn(50, VOCAB, generator=torch.Generator().manual_seed(2)) * 3
    chain = (
        [MinNewTokensLengthLogitsProcessor(0, params.min_new_tokens, list(params.eos_ids))] if params.eos_ids else []
    )
    chain.append(TemperatureLogitsWarper(float(params.temperature)))
    chain += [TopKLogitsWarper(params.top_k)] if params.top_k is not None else []
    chain += [TopPLogitsWarper(params.top_p)] if params.top_p < 1 else []
    expected = logits.clone()
    for processor in chain:
        expected = processor(torch.ones(50, 2, dtype=torch.long), expected)
    sampler = Sampler([params] * 50, [0] * 50, VOCAB, torch.device("cpu"))
    found = sampler.filter(logits, after(2, 50))
    assert torch.equal(found > -torch.inf, expected > -torch.inf)
    assert torch.allclose(found.softmax(-1), expected.softmax(-1), atol=1e-6)
