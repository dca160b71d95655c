"""Which strategy options ask for, beside the one that a checkpoint has."""

from typing import Any

import pytest

from transpect.base.errors import GenerationError
from transpect.decode.defaults import Defaults
from transpect.decode.params import GenerationParams
from transpect.decode.strategies import BeamSearch, PromptLookup, Sample

PRESENT: tuple[dict[str, Any], ...] = (
    {},
    {"num_beams": 4},
    {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5},
    {"penalty_alpha": 0.6, "top_k": 4},
    {"prompt_lookup_num_tokens": 5},
)


@pytest.mark.parametrize("present", PRESENT, ids=str)
def test_greedy_is_greedy_whatever_the_checkpoint_would_like(present: dict[str, Any]) -> None:
    params = GenerationParams().override(present)
    assert params.override({"num_beams": 1}).strategy == (params.strategy if not present.get("num_beams") else Sample())
    greedy = {"num_beams": 1, "num_beam_groups": 1, "penalty_alpha": None, "prompt_lookup_num_tokens": None}
    assert params.override(greedy).strategy == Sample()


@pytest.mark.parametrize("present", PRESENT[:4], ids=str)
def test_never_to_look_up_leaves_other_strategies(present: dict[str, Any]) -> None:
    params = GenerationParams().override(present)
    found = params.override({"prompt_lookup_num_tokens": 0}).strategy
    assert found == (params.strategy if present else PromptLookup(0))
    assert params.override({"num_beams": 2, "prompt_lookup_num_tokens": 0}).strategy.num_beams == 2  # type: ignore[attr-defined]


def test_true_is_no_number_of_beams() -> None:
    with pytest.raises(GenerationError, match="num_beams must be a whole number"):
        GenerationParams().override({"num_beams": True})
    assert GenerationParams().override({"num_beams": 2}).strategy == BeamSearch(2)


def test_contrastive_search_with_nothing_to_contrast_is_greedy() -> None:
    assert Defaults.read({}).params_for({"penalty_alpha": 0, "top_k": 4}, 1).temperature == 0
    assert Defaults.read({}).params_for({"top_k": 4}, 1).temperature == 1
