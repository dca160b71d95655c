"""The token that a checkpoint forces its decoder to begin with: honoured, wherever the checkpoint says it."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, MBartConfig, MBartForConditionalGeneration

from transpect.base.errors import GenerationError
from transpect.decode import Prompts
from transpect.decode.defaults import Defaults
from transpect.interop import load_generation, load_model, save_model
from transpect.lm import LanguageModel
from transpect.text import train_tokenizer

TOKENIZER = train_tokenizer("char", ["abcdefghij"])
START, FORCED, NEW = 3, 7, 12
SIZES: dict[str, Any] = {
    "vocab_size": 41,
    "d_model": 24,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 28,
    "max_position_embeddings": 32,
    "decoder_start_token_id": START,
    "bos_token_id": 5,
    "eos_token_id": None,
    "forced_eos_token_id": None,
}


def checkpoint(folder: Path, kind: str) -> Any:
    config, model = {
        "bart": (BartConfig, BartForConditionalGeneration),
        "mbart": (MBartConfig, MBartForConditionalGeneration),
    }[kind]
    theirs = model(config(**SIZES)).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in theirs.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, 0.8, generator=generator)
    theirs.generation_config.forced_bos_token_id = FORCED
    theirs.save_pretrained(folder)
    return theirs


@pytest.mark.parametrize("kind", ["bart", "mbart"])
def test_the_output_is_theirs(kind: str, tmp_path: Path) -> None:
    theirs, sources = checkpoint(tmp_path, kind), [[9, 8, 7, 6], [11, 4, 30, 2, 6, 17, 1]]
    lm = LanguageModel(load_model(tmp_path), TOKENIZER, load_generation(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mine = lm.complete(sources, max_new_tokens=NEW, ignore_eos=True)
    free = LanguageModel(lm.model, TOKENIZER, {"decoder_start_token_id": START})
    for ids, result in zip(sources, mine, strict=True):
        out = theirs.generate(torch.tensor([ids]), max_new_tokens=NEW + 1, do_sample=False)[0].tolist()
        assert out[:2] == [START, FORCED]
        assert list(result.ids) == out[2:]
        (other,) = free.complete([ids], max_new_tokens=NEW, ignore_eos=True)
        assert other.logprobs != result.logprobs


@pytest.mark.parametrize("penalty", [-1.0, 1.0, 3.0])
def test_it_counts_in_the_length_by_which_beams_rank(penalty: float, tmp_path: Path) -> None:
    """Scores, and so which of a short and a long output is the better."""
    theirs, ends = checkpoint(tmp_path, "mbart").double(), list(range(20, 30))
    lm = LanguageModel(load_model(tmp_path).double(), TOKENIZER, load_generation(tmp_path))
    options = {"num_beams": 3, "length_penalty": penalty, "num_return_sequences": 3}
    for ids in ([9, 8, 7, 6], [11, 4, 30, 2, 6, 17, 1], [3]):
        out = theirs.generate(
            torch.tensor([ids]),
            max_new_tokens=NEW + 1,
            do_sample=False,
            eos_token_id=ends,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_scores=True,
            **options,
        )
        mine = lm.complete([ids], max_new_tokens=NEW, eos_ids=ends, **options)
        for result, row, score in zip(mine, out.sequences.tolist(), out.sequences_scores.tolist(), strict=True):
            assert list(result.ids) == row[2 : 2 + len(result.ids)]
            assert result.score == pytest.approx(score, rel=1e-5)


@pytest.mark.parametrize(
    ("said", "forced"),
    [
        ({"forced_bos_token_id": FORCED}, FORCED),
        ({"forced_bos_token_id": 0}, 0),
        ({"force_bos_token_to_be_generated": True}, 5),
        ({"force_bos_token_to_be_generated": True, "forced_bos_token_id": FORCED}, FORCED),
        ({"force_bos_token_to_be_generated": False}, None),
        ({"forced_bos_token_id": None}, None),
    ],
    ids=str,
)
def test_an_early_checkpoint_says_it_in_its_config(said: dict[str, Any], forced: int | None, tmp_path: Path) -> None:
    checkpoint(tmp_path, "bart")
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | said))
    assert load_generation(tmp_path)["forced_bos_token_id"] == FORCED  # the newer file has the last word
    (tmp_path / "generation_config.json").unlink()
    assert load_generation(tmp_path).get("forced_bos_token_id") == forced


def test_it_is_kept_in_saving(tmp_path: Path) -> None:
    checkpoint(tmp_path / "theirs", "mbart")
    generation = load_generation(tmp_path / "theirs")
    save_model(load_model(tmp_path / "theirs"), tmp_path / "ours", generation=generation)
    assert load_generation(tmp_path / "ours")["forced_bos_token_id"] == FORCED


@pytest.mark.parametrize(("forced", "ids"), [(None, [START]), (0, [START, 0]), (FORCED, [START, FORCED])])
def test_it_follows_the_start(forced: int | None, ids: list[int]) -> None:
    generation = {"decoder_start_token_id": START, "forced_bos_token_id": forced}
    assert Prompts(TOKENIZER, generation).decoder_prompt() == ids


@pytest.mark.parametrize("wrong", ["de", [1, 2], True, 1.0])
def test_what_is_no_id_is_refused(wrong: object) -> None:
    with pytest.raises(GenerationError, match="forced_bos_token_id"):
        Prompts(TOKENIZER, {"decoder_start_token_id": START, "forced_bos_token_id": wrong}).decoder_prompt()


def test_where_nobody_sees_to_it_it_is_named() -> None:
    with pytest.warns(UserWarning, match="forced_bos_token_id"):
        Defaults.read({"forced_bos_token_id": FORCED})
