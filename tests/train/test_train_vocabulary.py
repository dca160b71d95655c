"""Tokens that are added to a checkpoint: old ids and old logits stay, and a new token is at first the mean of all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from transpect.core import ModelConfig, Transformer, override, preset
from transpect.interop import load_model, save_model
from transpect.text import Tokenizer, load_tokenizer, train_tokenizer
from transpect.train import TokenizerSpec, parse_recipe, train
from transpect.train.job import build
from transpect.train.model.initial import fitted
from transpect.train.model.vocabulary import extended

IDS = torch.tensor([[3, 1, 4, 1, 5]])


def small(name: str, vocab_size: int, **changes: Any) -> ModelConfig:
    sizes = {"d_model": 16, "context_length": 24, "n_layers": 1, "n_heads": 2, "d_ff": 24, "vocab_size": vocab_size}
    return override(preset(name), [*sizes.items(), *changes.items()])


@pytest.fixture(scope="module")
def tokenizer(corpora: dict[str, Path]) -> Tokenizer:
    return train_tokenizer("char", [corpora["causal"].read_text("utf-8")])


@pytest.mark.parametrize("known", [None, 27])
@pytest.mark.parametrize(
    ("name", "changes"),
    [("gpt2", {}), ("llama", {}), ("bert-base", {}), ("llama", {"head.tied": True}), ("gpt2", {"head.bias": True})],
    ids=str,
)
def test_old_logits_stay_and_new_ones_are_their_mean(name: str, changes: dict[str, Any], known: int | None) -> None:
    """Both by the token table and by a head's own weight: a mean of rows gives a mean of logits."""
    origin = Transformer(small(name, 30, **changes), seed=1).double().eval()
    with torch.no_grad():
        for name_, weight in origin.named_parameters():
            if name_.endswith("bias"):
                weight.normal_(generator=torch.Generator().manual_seed(0))
    model, new = fitted(origin, small(name, 35, **changes), seed=0, known=known)
    assert new == []
    old, now = origin(IDS), model.eval()(IDS)
    first = 30 if known is None else known
    torch.testing.assert_close(now[..., :first], old[..., :first], rtol=1e-12, atol=1e-12)
    mean = old[..., :first].mean(-1, keepdim=True)
    torch.testing.assert_close(now[..., first:], mean.expand(-1, -1, 35 - first), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(model.token.weight[first], origin.token.weight[:first].mean(0))


def test_added_tokens_keep_old_ids_and_are_read_whole(tokenizer: Tokenizer, tmp_path: Path) -> None:
    spec = TokenizerSpec(
        path="x", add_tokens=("<think>", "cat"), extra_special_tokens=("<end>",), special_tokens={"pad": "<pad2>"}
    )
    more = extended(tokenizer, spec)
    before = tokenizer.backend.get_vocab()
    assert {token: more.token_to_id(token) for token in before} == before
    assert len(more) == len(tokenizer) + 4
    assert more.pad_id == more.token_to_id("<pad2>")
    text = "the cat<think> eats<end>"
    ids = more.encode(text)
    assert [more.token_to_id(token) for token in ("cat", "<think>", "<end>")] == [i for i in ids if i >= len(tokenizer)]
    assert more.decode(ids) == text
    assert more.decode(ids, skip_special_tokens=True) == "the cat<think> eats"
    assert tokenizer.encode("cat") != more.encode("cat")  # the one that was extended is as it was
    more.save(tmp_path)
    assert load_tokenizer(tmp_path).encode(text) == ids
    assert AutoTokenizer.from_pretrained(tmp_path).encode(text, add_special_tokens=False) == ids


def test_a_run_grows_its_model_and_goes_on(
    tokenizer: Tokenizer, plain: Callable[..., dict[str, Any]], tmp_path: Path, assert_same: Any, stop_at: Any
) -> None:
    origin = tmp_path / "origin"
    save_model(Transformer(small("llama", len(tokenizer) + 2), seed=0), origin)  # with two rows in store
    tokenizer.save(origin)
    data = {**plain("causal"), "model": {"path": str(origin)}, "tokenizer": {"add_tokens": ["cat", "fish", "rain"]}}
    recipe = parse_recipe(data)
    job = build(recipe)
    n = len(tokenizer)
    assert job.config.vocab_size == n + 3 == len(job.tokenizer)
    assert torch.equal(job.model.token.weight[n:], job.model.token.weight[:n].mean(0).expand(3, -1))
    assert any(f"Tokens {n} to {n + 2} are new" in remark for remark in job.remarks)
    train(recipe, tmp_path / "straight")
    stop_at(recipe, tmp_path / "run", 3)
    train(recipe, tmp_path / "run", resume="auto")
    assert_same(tmp_path / "run", tmp_path / "straight")
    assert load_tokenizer(tmp_path / "run").token_to_id("rain") == n + 2
    assert load_model(tmp_path / "run").config.vocab_size == n + 3
