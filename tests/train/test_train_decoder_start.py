"""A decoder is trained after the tokens that it is written after: those of the checkpoint that a run begins with."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from transpect.core import Transformer, override, preset
from transpect.data.batch import IGNORE
from transpect.decode.prompts import Prompts
from transpect.interop import save_model
from transpect.text import Tokenizer, train_tokenizer
from transpect.train import evaluate_documents, parse_recipe
from transpect.train.job import Job, build
from transpect.train.recipe import dump_recipe

TEXTS = ["the cat eats fish", "a dog runs home", "birds sing at dawn", "rain falls on hills"]
OBJECTIVES = ("seq2seq", "span", "denoising")
STARTS: dict[str, dict[str, Any]] = {
    "nothing said": {},
    "pad": {"decoder_start_token_id": "<pad>"},
    "eos and bos": {"decoder_start_token_id": "</s>", "forced_bos_token_id": "<s>"},
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    sentinels = [f"<extra_id_{number}>" for number in range(9)]
    return train_tokenizer("char", TEXTS, special_tokens={"mask": "<mask>"}, extra_special_tokens=sentinels)


def job_of(folder: Path, tokenizer: Tokenizer, objective: str, said: dict[str, Any], **options: Any) -> Job:
    sizes = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 16, "context_length": 24}
    config = override(preset("bart-base"), {**sizes, "vocab_size": tokenizer.vocab_size}.items())
    save_model(Transformer(config, seed=0), folder / "model")
    tokenizer.save(folder / "model")
    named = {name: tokenizer.token_to_id(token) for name, token in said.items()}
    (folder / "model" / "generation_config.json").write_text(json.dumps(named), encoding="utf-8")
    (folder / "pairs.tsv").write_text("".join(f"{text}\t{text[::-1]}\n" for text in TEXTS), encoding="utf-8")
    recipe: dict[str, Any] = {
        "model": {"path": str(folder / "model")},
        "data": {"train": str(folder / "pairs.tsv"), "valid": None, "objective": {"kind": objective, **options}},
        "train": {"max_steps": 1, "batch_size": 4, "threads": 1},
    }
    return build(parse_recipe(recipe))


@pytest.mark.parametrize("said", STARTS)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_target_is_read_after_what_it_is_written_after(
    objective: str, said: str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    job = job_of(tmp_path, tokenizer, objective, STARTS[said])
    prompt = Prompts(job.tokenizer, job.generation).decoder_prompt()
    batch = next(job.batches)
    assert batch.source_ids is not None and batch.ids.shape[1] <= 24
    for ids, labels, position in zip(batch.ids, batch.labels, batch.tags.position, strict=True):
        real = position >= 0
        assert ids[: len(prompt)].tolist() == prompt
        assert (labels[: len(prompt) - 1] == IGNORE).all()
        assert torch.equal(ids[real][len(prompt) :], labels[real][len(prompt) - 1 : -1])
        assert labels[real][-1] == tokenizer.eos_id
    assert dump_recipe(build(job.recipe).recipe) == dump_recipe(job.recipe)


def test_what_is_cut_still_fits(tokenizer: Tokenizer, tmp_path: Path) -> None:
    job = job_of(tmp_path, tokenizer, "seq2seq", STARTS["eos and bos"], too_long="crop")
    long = tmp_path / "pairs.tsv"
    long.write_text(f"{'ab' * 40}\t{'cat' * 40}\n", encoding="utf-8")
    batch = next(build(job.recipe).batches)
    assert batch.ids.shape == batch.labels.shape == (4, 24)
    assert int(batch.n_labels) == 4 * 23 and not (batch.labels == tokenizer.eos_id).any()


def test_a_finished_model_is_measured_as_it_is_written_with(tokenizer: Tokenizer, tmp_path: Path) -> None:
    job = job_of(tmp_path, tokenizer, "seq2seq", STARTS["eos and bos"])
    documents = job.recipe.data.train.documents()
    told = evaluate_documents(job.model, tokenizer, documents, generation=job.generation)
    known = evaluate_documents(job.model, tokenizer, documents, objective=job.objective)
    blind = evaluate_documents(job.model, tokenizer, documents)
    assert told.total_nats == known.total_nats != blind.total_nats
    assert told.n_tokens == blind.n_tokens and told.n_characters == blind.n_characters


def test_no_target_begins_with_three(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="start must be the id that a decoder begins with"):
        job_of(tmp_path, tokenizer, "seq2seq", {}, start=[1, 2, 3])
