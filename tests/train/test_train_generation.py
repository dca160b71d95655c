"""What a recipe says of decoding becomes the defaults of what it trains, or is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

import transpect
from transpect.base.errors import ConfigError
from transpect.decode.defaults import ENTRIES, Defaults
from transpect.decode.strategies import BeamSearch
from transpect.train import dump_recipe, parse_recipe, train

RECIPE: dict[str, Any] = {
    "model": {"preset": "gpt2", "d_model": 16, "n_layers": 1, "n_heads": 2, "context_length": 16},
    "tokenizer": "char",
    "data": {"train": {"kind": "fable", "stories": 20}, "valid": 0.1},
    "train": {"max_steps": 1, "batch_size": 2, "threads": 1},
    "logging": {"tensorboard": False, "progress": "none"},
}


def test_entries_become_defaults_and_outlast_a_resume(tmp_path: Path) -> None:
    recipe = parse_recipe(
        {**RECIPE, "generation": {"num_beams": 3, "no_repeat_ngram_size": 6}}, [("generation.num_beams", "2")]
    )
    assert recipe.generation.entries == {"num_beams": 2, "no_repeat_ngram_size": 6}
    assert "no_repeat_ngram_size: 6" in dump_recipe(recipe)
    train(recipe, tmp_path)
    params = Defaults.read(transpect.load(tmp_path).generation).params
    assert (params.no_repeat_ngram_size, params.strategy) == (6, BeamSearch(2))
    longer = parse_recipe(
        {**RECIPE, "generation": {"num_beams": 4, "no_repeat_ngram_size": 6}}, [("train.max_steps", "2")]
    )
    train(longer, tmp_path, resume="auto")
    for folder in ("best", "last"):
        written = json.loads((tmp_path / folder / "generation_config.json").read_text(encoding="utf-8"))
        assert (written["num_beams"], written["no_repeat_ngram_size"]) == (4, 6)
        assert "eos_token_id" in written


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_each_value_out_of_its_range_is_named(name: str) -> None:
    for value in ("many", {"a": 1}):
        entries = {"do_sample": True, name: value}
        if name in ("length_penalty", "early_stopping", "renormalize_logits"):
            entries["num_beams"] = 2
        if name == "diversity_penalty":
            entries |= {"num_beams": 2, "num_beam_groups": 2}
        if name == "penalty_alpha":
            entries["do_sample"] = False
        with pytest.raises(ConfigError) as error:
            parse_recipe({**RECIPE, "generation": entries})
        assert name in str(error.value) or name in ("bad_words_ids", "suppress_tokens")


@pytest.mark.parametrize("name", ["num_beam", "eos_token_id", "transformers_version", "seed"])
def test_what_decoding_does_not_go_by_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"generation has no key '{name}'"):
        parse_recipe({**RECIPE, "generation": {name: 1}})
