"""Parameters: every value has one meaning, and every value outside its range is refused by name."""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import Any

import pytest
import transformers

from transpect.base.errors import ContextLengthError, GenerationError
from transpect.decode import Defaults, GenerationParams
from transpect.decode.prompts import check_id

PENALTIES = ("repetition_penalty", "encoder_repetition_penalty")
SIZES = ("min_length", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "dry_allowed_length")
SHARES = ("min_p", "typical_p", "epsilon_cutoff", "eta_cutoff")

NUMBERS = (
    *("temperature", "top_p", "guidance_scale", *PENALTIES, "presence_penalty", "frequency_penalty"),
    *("dry_multiplier", "dry_base"),
)
"""Parameters that are numbers; whole ones may be longer than float64 has room for."""

REFUSED: list[tuple[str, Any]] = [
    ("max_new_tokens", -1),
    ("max_new_tokens", 1.5),
    ("max_new_tokens", None),
    ("max_new_tokens", True),
    ("min_new_tokens", -1),
    ("min_new_tokens", 129),
    ("temperature", -0.1),
    ("temperature", math.nan),
    ("temperature", math.inf),
    ("temperature", "1"),
    ("temperature", None),
    *[(name, 10**400) for name in NUMBERS],
    ("guidance_scale", 1.1e6),
    ("guidance_scale", -1e300),
    ("top_k", -1),
    ("top_k", 2.0),
    ("top_p", -0.01),
    ("top_p", 1.01),
    ("top_p", math.nan),
    ("top_p", None),
    ("seed", 2**64),
    ("seed", -(2**63) - 1),
    ("seed", 0.5),
    ("seed", True),
    ("stop", ""),
    ("stop", ["a", ""]),
    ("stop", [1]),
    ("eos_ids", [-1]),
    ("eos_ids", [None]),
    ("eos_ids", 1.5),
    ("eos_ids", "12"),
    ("eos_ids", True),
    ("stop", 5),
    ("stop", b"ab"),
    *[(name, value) for name in PENALTIES for value in (0, -1.0, math.inf, math.nan, "1", None, True)],
    *[(name, value) for name in ("presence_penalty", "frequency_penalty") for value in (math.inf, math.nan, "1", None)],
    *[(name, value) for name in SIZES for value in (-1, 1.5, "1", None, True)],
    *[(name, value) for name in SHARES for value in (-0.1, 1.1, math.nan, "1", None, True)],
    ("dry_multiplier", -0.1),
    ("dry_base", 0.9),
    ("dry_base", math.inf),
    ("dry_penalty_last_n", -1),
    ("dry_sequence_breakers", [[]]),
    ("dry_sequence_breakers", [[-1]]),
    ("bad_words", [[]]),
    ("bad_words", ["ab"]),
    ("bad_words", [[1, 2.0]]),
    ("bad_words", 1.5),
    ("begin_suppress_tokens", [-1]),
    ("forced_eos_token_id", "2"),
    ("logit_bias", {-1: 1.0}),
    ("logit_bias", {"1": 1.0}),
    ("logit_bias", {1: math.nan}),
    ("logit_bias", {1: "2"}),
    ("logit_bias", [1, 2]),
    ("logit_bias", 3),
    ("sequence_bias", {(): 1.0}),
    ("sequence_bias", {(1, -1): 1.0}),
    ("sequence_bias", [[[1], 1.0, 2]]),
    ("exponential_decay_length_penalty", (1, 0.0)),
    ("exponential_decay_length_penalty", (-1, 1.1)),
    ("exponential_decay_length_penalty", (1,)),
    ("exponential_decay_length_penalty", 1.1),
]


@pytest.mark.parametrize(("name", "value"), REFUSED, ids=repr)
def test_a_value_outside_its_range_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(GenerationError, match=name) as caught:
        GenerationParams(**{name: value})
    assert caught.value.remedy
    with pytest.raises(GenerationError, match=name):
        GenerationParams().override({name: value})


ALLOWED: list[tuple[str, Any]] = [
    ("max_new_tokens", 0),
    ("min_new_tokens", 128),
    ("temperature", 0),
    ("temperature", 1e-300),
    ("temperature", 100),
    ("top_k", 0),
    ("top_k", 10**9),
    ("top_k", None),
    ("top_p", 0),
    ("top_p", 1),
    ("seed", 0),
    ("seed", -1),
    ("seed", 2**64 - 1),
    ("stop", ()),
    *[(name, value) for name in PENALTIES for value in (1e-300, 0.5, 1, 1e300)],
    *[(name, value) for name in ("presence_penalty", "frequency_penalty") for value in (-2, 0, 1e300)],
    *[(name, value) for name in SIZES for value in (0, 1, 10**9)],
    *[(name, value) for name in SHARES for value in (0, 1)],
    ("dry_penalty_last_n", 0),
    ("dry_base", 1),
    *[(name, 10**308) for name in NUMBERS if name not in ("guidance_scale", "top_p")],
    ("guidance_scale", 10**6),
    ("guidance_scale", -1e6),
]


@pytest.mark.parametrize(("name", "value"), ALLOWED, ids=repr)
def test_a_value_at_the_end_of_its_range_is_kept(name: str, value: Any) -> None:
    assert getattr(GenerationParams(**{name: value}), name) == value


def test_one_stop_is_not_taken_letter_by_letter() -> None:
    assert GenerationParams(stop="own fox").stop == ("own fox",)  # type: ignore[arg-type]
    assert GenerationParams(stop=["a", "b"]).stop == ("a", "b")  # type: ignore[arg-type]
    assert GenerationParams(eos_ids=3).eos_ids == (3,)  # type: ignore[arg-type]


SPELLINGS: list[tuple[str, Any, Any]] = [
    ("logit_bias", {3: 1, 5: -2.5}, ((3, 1.0), (5, -2.5))),
    ("logit_bias", [[3, 1]], ((3, 1.0),)),
    ("logit_bias", None, ()),
    ("sequence_bias", {(3, 1): 1, (5,): 2}, (((3, 1), 1.0), ((5,), 2.0))),
    ("sequence_bias", [[[3, 1], 1.0], [[3, 1], 2.0]], (((3, 1), 2.0),)),
    ("bad_words", [[1, 2], (3,)], ((1, 2), (3,))),
    ("bad_words", [1, [2, 3]], ((1,), (2, 3))),
    ("bad_words", None, ()),
    ("dry_sequence_breakers", [7, [8, 9]], ((7,), (8, 9))),
    ("forced_eos_token_id", 2, (2,)),
    ("forced_eos_token_id", [2, 3], (2, 3)),
    ("begin_suppress_tokens", [1, 2], (1, 2)),
    ("exponential_decay_length_penalty", [5, 1.5], (5, 1.5)),
]


@pytest.mark.parametrize(("name", "given", "kept"), SPELLINGS, ids=repr)
def test_what_may_be_given_in_several_forms_is_kept_in_one(name: str, given: Any, kept: Any) -> None:
    params = GenerationParams(**{name: given})
    assert getattr(params, name) == kept
    assert getattr(params.override({"seed": 1}), name) == kept
    assert isinstance(hash(params), int)


def test_none_is_no_stop_and_no_end() -> None:
    assert GenerationParams(stop=None, eos_ids=None) == GenerationParams()  # type: ignore[arg-type]
    params = GenerationParams(stop=("a",), eos_ids=(1,)).override({"stop": None, "eos_ids": None})
    assert (params.stop, params.eos_ids) == ((), ())


def test_an_unknown_name_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(GenerationError, match="max_new_tokens"):
        GenerationParams().override({"max_new_token": 3})


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        *(("max_tokens", "max_new_tokens"), ("max_length", "max_new_tokens"), ("min_tokens", "min_new_tokens")),
        *(("stop_strings", "stop"), ("eos_token_id", "eos_ids"), ("stop_token_ids", "eos_ids")),
        *(("suppress_tokens", "banned"), ("bad_words_ids", "bad_words"), ("do_sample", "temperature")),
        *(("guided_json", "json_schema"), ("guided_choice", "choices"), ("assistant_model", "draft")),
    ],
)
def test_a_name_of_another_library_is_answered_with_ours(theirs, ours) -> None:
    with pytest.raises(GenerationError, match=f"Did you mean '{ours}'"):
        GenerationParams().override({theirs: 3})


def test_override_keeps_the_rest() -> None:
    params = GenerationParams(top_k=3, eos_ids=(1, 2))
    assert params.override({"top_k": None}) == dataclasses.replace(params, top_k=None)
    assert params.override({}) == params


# generation_config.json


def test_a_file_without_do_sample_means_greedy() -> None:
    assert Defaults.read({}).params == GenerationParams()
    assert Defaults.read({"do_sample": False, "top_p": 0.9}).params.greedy
    with pytest.warns(UserWarning, match="do_sample"):
        assert Defaults.read({"temperature": 0.7}).params.greedy


def test_a_file_that_samples() -> None:
    data = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 40, "max_new_tokens": 7}
    params = Defaults.read(data).params
    assert (params.temperature, params.top_p, params.top_k, params.max_new_tokens) == (0.6, 0.9, 40, 7)
    assert Defaults.read({"do_sample": True}).params.temperature == 1.0


def test_top_k_of_zero_in_a_file_is_no_filter() -> None:
    assert Defaults.read({"do_sample": True, "top_k": 0}).params.top_k is None


@pytest.mark.parametrize("unsaid", [{}, {"top_k": None}], ids=repr)
def test_a_file_that_samples_and_says_no_top_k_means_that_of_transformers(unsaid: dict[str, Any]) -> None:
    theirs = transformers.GenerationConfig._get_default_generation_params()["top_k"]
    defaults = Defaults.read({"do_sample": True, **unsaid})
    assert defaults.params_for({}, 1).top_k == theirs
    assert defaults.params_for({"temperature": 0.5}, 1).top_k == theirs
    assert defaults.params_for({"top_k": None}, 1).top_k is None
    for greedy in ({}, {"do_sample": False}):
        assert Defaults.read({**greedy, **unsaid}).params_for({"temperature": 1.0}, 1).top_k is None


@pytest.mark.parametrize(
    ("data", "eos"),
    [
        ({"eos_token_id": 5}, (5,)),
        ({"eos_token_id": [5, 6]}, (5, 6)),
        ({}, (2,)),
        ({"eos_token_id": None}, ()),
        ({"eos_token_id": 0}, (0,)),
    ],
    ids=repr,
)
def test_what_ends_an_output(data: dict[str, Any], eos: tuple[int, ...]) -> None:
    assert Defaults.read(data, eos_id=2).params.eos_ids == eos


@pytest.mark.parametrize(
    "entry", [{"force_words_ids": [[3]]}, {"top_h": 0.4}, {"stop_strings": ["."]}, {"forced_bos_token_id": 0}]
)
def test_an_entry_that_is_not_done_is_named(entry: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match=next(iter(entry))):
        Defaults.read(entry)


@pytest.mark.filterwarnings("error")
def test_neutral_entries_say_nothing() -> None:
    Defaults.read({"num_beams": 1, "repetition_penalty": 1.0, "min_p": None, "bos_token_id": 1, "use_cache": True})


@pytest.mark.parametrize("asked", [{"top_k": 5}, {"top_p": 0.9}, {"seed": 1}, {"top_k": 0}], ids=repr)
def test_asking_for_a_part_of_sampling_means_sampling(asked: dict[str, Any]) -> None:
    assert Defaults.read({}).params_for(asked, 1).temperature == 1.0
    assert Defaults(temperature=0.6).params_for(asked, 1).temperature == 0.6
    assert Defaults.read({}).params_for({**asked, "temperature": 0}, 1).greedy
    assert Defaults.read({"do_sample": True, "temperature": 0.3}).params_for(asked, 1).temperature == 0.3


@pytest.mark.parametrize("asked", [{}, {"max_new_tokens": 3}, {"seed": None}, {"top_k": None}], ids=repr)
def test_otherwise_decoding_is_greedy(asked: dict[str, Any]) -> None:
    assert Defaults.read({}).params_for(asked, 1).greedy


def test_max_length_counts_the_prompt() -> None:
    defaults = Defaults.read({"max_length": 20})
    assert defaults.params_for({}, 5).max_new_tokens == 15
    assert defaults.params_for({"max_new_tokens": 50}, 5).max_new_tokens == 50
    assert Defaults.read({"max_length": 20, "max_new_tokens": 3}).params_for({}, 5).max_new_tokens == 3
    with pytest.raises(ContextLengthError, match="max_length"):
        defaults.params_for({}, 20)


def test_the_callers_limit_beats_the_checkpoints_minimum() -> None:
    defaults = Defaults.read({"min_new_tokens": 10})
    assert defaults.params_for({"max_new_tokens": 4}, 1).min_new_tokens == 4
    with pytest.raises(GenerationError, match="min_new_tokens"):
        defaults.params_for({"max_new_tokens": 4, "min_new_tokens": 5}, 1)


@pytest.mark.parametrize(
    "value", ["3", "x", 0, -1, 1.5, True, [], [1], [[1]], [["x"]], {}, {"a": 1}, math.nan], ids=str
)
def test_an_entry_of_the_file_of_any_kind_is_read_or_refused_by_its_name(value: Any) -> None:
    names = [name for name in transformers.GenerationConfig().to_dict() if name[0] != "_"]  # type: ignore[no-untyped-call]
    assert {"max_length", "bad_words_ids", "suppress_tokens", "eos_token_id"} <= {*names}
    said: dict[str, str] = {}
    for name in names:
        try:
            with warnings.catch_warnings(action="ignore"):
                Defaults.read({name: value}).params_for({}, 1)
        except (GenerationError, ContextLengthError) as error:
            said[name] = str(error)
    ours = {"eos_token_id": "eos_ids"}
    assert [name for name, text in said.items() if ours.get(name, name) not in text] == []


@pytest.mark.parametrize("value", ["x", -1, 1.5, True, [], {}], ids=str)
def test_a_start_token_is_one_id(value: Any) -> None:
    with pytest.raises(GenerationError, match="decoder_start_token_id"):
        check_id("decoder_start_token_id", value)
