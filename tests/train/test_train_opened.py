"""Fine-tuned checkpoints of others, opened again by `transformers`: the same logits there and here."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from transpect.core import Tags
from transpect.interop import load_model
from transpect.text import Tokenizer, train_tokenizer
from transpect.train import parse_recipe, train

PAIRS = ["cat\tmao", "dog\tgou", "big fish\tda yu", "bird\tniao", "rain falls\txia yu", "hill\tshan"]
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, "dropout_rate": 0.1}
BART = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 20,
    "max_position_embeddings": 32,
    "forced_eos_token_id": None,
}
SMALL = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
}
GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}


@dataclass(frozen=True)
class Case:
    """A model of theirs, what it is trained for, and the class that opens it then."""

    config: type
    model: type
    options: dict[str, Any]
    objective: str
    opens: type


def case(name: str, options: dict[str, Any], made: str, objective: str, opens: str) -> Case:
    config, model, opened = (getattr(transformers, found) for found in (f"{name}Config", f"{name}{made}", opens))
    return Case(config, model, options, objective, opened)


WRITES, CLASSES, TAGS = (
    f"AutoModelFor{task}" for task in ("Seq2SeqLM", "SequenceClassification", "TokenClassification")
)
CASES = {
    "t5": case("T5", T5, "ForConditionalGeneration", "seq2seq", WRITES),
    "t5 v1.1": case(
        "T5",
        {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        "ForConditionalGeneration",
        "seq2seq",
        WRITES,
    ),
    "bart": case("Bart", BART, "ForConditionalGeneration", "seq2seq", WRITES),
    "marian": case("Marian", BART, "MTModel", "seq2seq", WRITES),
    "mbart": case("MBart", BART, "ForConditionalGeneration", "seq2seq", WRITES),
    "pegasus": case("Pegasus", BART, "ForConditionalGeneration", "seq2seq", WRITES),
    "gpt2": case("GPT2", GPT2, "LMHeadModel", "causal", "AutoModelForCausalLM"),
    "llama": case("Llama", SMALL, "ForCausalLM", "causal", "AutoModelForCausalLM"),
    "bert": case("Bert", SMALL, "ForMaskedLM", "masked", "AutoModelForMaskedLM"),
    "gpt2 with classes": case("GPT2", GPT2, "LMHeadModel", "classification", CLASSES),
    "llama with classes": case("Llama", SMALL, "ForCausalLM", "classification", CLASSES),
    "qwen2 with classes": case("Qwen2", {**SMALL, "num_key_value_heads": 1}, "ForCausalLM", "classification", CLASSES),
    "bert with classes": case("Bert", SMALL, "ForMaskedLM", "classification", CLASSES),
    "roberta with classes": case("Roberta", SMALL, "ForMaskedLM", "classification", CLASSES),
    "electra with classes": case(
        "Electra", {**SMALL, "embedding_size": 8}, "ForPreTraining", "classification", CLASSES
    ),
    "bert with tags": case("Bert", SMALL, "ForMaskedLM", "token_classification", TAGS),
    "roberta with tags": case("Roberta", SMALL, "ForMaskedLM", "token_classification", TAGS),
    "distilbert with classes": case(
        "DistilBert",
        {"dim": 16, "hidden_dim": 24, "n_layers": 2, "n_heads": 2, "max_position_embeddings": 32},
        "ForMaskedLM",
        "classification",
        CLASSES,
    ),
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    special = {"mask": "<mask>", "cls": "<cls>", "sep": "<sep>"}
    return train_tokenizer("char", ["abcdefghijklmnopqrstuvwxyz "], special_tokens=special)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("sources")
    rows = [
        {"text": text, "label": text[0], "tokens": text.split()} for text in (pair.split("\t")[0] for pair in PAIRS)
    ]
    rows = [{**row, "tags": [word[:1] for word in row["tokens"]]} for row in rows]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows * 3)) + "\n", encoding="utf-8")
    (folder / "pairs.tsv").write_text("\n".join(PAIRS * 3) + "\n", encoding="utf-8")
    lines = {"kind": "jsonl", "path": str(folder / "rows.jsonl")}
    return {
        "seq2seq": {"kind": "tsv", "path": str(folder / "pairs.tsv")},
        "causal": lines,
        "masked": lines,
        "classification": {**lines, "target": "label"},
        "token_classification": {**lines, "kind": "tagged"},
    }


def ids_of(tokenizer: Tokenizer) -> dict[str, int]:
    named = {"pad_token_id": "<pad>", "bos_token_id": "<s>", "eos_token_id": "</s>", "decoder_start_token_id": "<pad>"}
    return {name: tokenizer.token_to_id(token) for name, token in named.items()}


@torch.no_grad()
def logits(folder: Path, opens: Any, writes: bool) -> tuple[Tensor, Tensor]:
    """Theirs and ours, at what is no padding."""
    theirs, info = opens.from_pretrained(folder, attn_implementation="eager", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    ours, pad = load_model(folder), theirs.config.pad_token_id
    ids = torch.randint(5, theirs.config.vocab_size, (3, 9), generator=torch.Generator().manual_seed(0))
    real = torch.arange(9) < torch.tensor([9, 6, 4])[:, None]
    ids = torch.where(real, ids, pad)
    if writes:
        target = ids[:, :5].flip(0).where(real[:, :5].flip(0), 7)
        there = theirs.eval()(input_ids=ids, attention_mask=real.long(), decoder_input_ids=target).logits
        return there, ours(target, source=ours.encode(ids, tags=Tags.padded(real)))
    there = theirs.eval()(input_ids=ids, attention_mask=real.long()).logits
    here = ours(ids, tags=Tags.padded(real))
    return (there[real], here[real]) if there.ndim == 3 else (there, here)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_was_fine_tuned_gives_the_same_logits_there(
    name: str, tokenizer: Tokenizer, sources: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    asked, origin = CASES[name], tmp_path / "origin"
    torch.manual_seed(0)
    config = asked.config(vocab_size=tokenizer.vocab_size, **asked.options, **ids_of(tokenizer))
    asked.model(config).save_pretrained(origin)
    tokenizer.save(origin)
    recipe = {
        "model": {"path": str(origin)},
        "data": {"train": sources[asked.objective], "valid": None, "objective": asked.objective, "seq_len": 24},
        "train": {"max_steps": 4, "batch_size": 4, "optimizer": {"kind": "adamw", "lr": 3e-2}, "threads": 1},
        "logging": {"tensorboard": False, "progress": "none"},
    }
    train(parse_recipe(recipe), tmp_path / "run")
    theirs, ours = logits(tmp_path / "run" / "last", asked.opens, asked.objective == "seq2seq")
    assert theirs.shape == ours.shape and theirs.std() > 0.01
    assert float((theirs - ours).abs().max()) <= 1e-5 * max(1.0, float(theirs.abs().max()))
