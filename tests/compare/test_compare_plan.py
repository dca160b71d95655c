"""All is built and tried before training: slips are errors, what can't be is a cell with its reason."""

import pytest
import yaml

from transpect.base.errors import ConfigError, TranspectError
from transpect.compare import load_comparison, parse_comparison
from transpect.compare.parameters import count_parameters, near

from .conftest import PART

YARN = {"kind": "yarn", "factor": 4, "original_length": PART}
VARIANTS = {
    "rope": {"model.positions": "rope"},
    "rope-yarn": {"model.positions": "rope", "evaluate": {"model.positions.scaling": YARN}},
    "alibi": {"model.positions": "alibi"},
}


def test_variants_that_are_trained_alike_are_trained_once(plain) -> None:
    plan = parse_comparison(plain(variants=VARIANTS))
    assert [training.name for training in plan.trainings] == ["rope", "alibi"]
    rope, yarn, _ = plan.entries
    assert rope.training.key == yarn.training.key
    assert rope.config.last.positions.scaling.kind == "none"
    assert yarn.config.last.positions.scaling.kind == "yarn"
    assert rope.evaluation != yarn.evaluation
    assert plan.seeds == (0, 1)


@pytest.mark.parametrize("seed", [0, 7])
def test_the_key_of_a_training_knows_no_seed(plain, seed) -> None:
    one = parse_comparison(plain(variants=VARIANTS))
    other = parse_comparison(plain(variants=VARIANTS), [("train.seed", seed), ("train.save_every", 2)])
    assert [t.key for t in one.trainings] == [t.key for t in other.trainings]
    assert other.seeds == (seed, seed + 1)
    longer = parse_comparison(plain(variants=VARIANTS), [("train.max_steps", 4)])
    assert {t.key for t in one.trainings}.isdisjoint({t.key for t in longer.trainings})


def test_every_combination_is_compared_in_order(plain) -> None:
    plan = parse_comparison(plain(), vary=["model.positions=rope,alibi", "model.norm=a=layernorm,b=rmsnorm"])
    assert [entry.variant.name for entry in plan.entries] == ["rope · a", "rope · b", "alibi · a", "alibi · b"]
    built = [(entry.config.last.positions.kind, entry.config.last.norm.kind) for entry in plan.entries]
    assert built == [(p, n) for p in ("rope", "alibi") for n in ("layernorm", "rmsnorm")]


def test_a_learned_table_that_ends_refuses_what_is_beyond_it(plain) -> None:
    short = {"model.positions": "learned", "model.context_length": 2 * PART}
    plan = parse_comparison(plain(variants={"short": short, **VARIANTS}))
    assert list(plan.entries[0].refused) == [4]
    assert "learned positions end at 16" in plan.entries[0].refused[4]
    assert not any(entry.refused for entry in plan.entries[1:])


def test_what_can_t_be_built_is_refused_at_every_length_and_others_are_not(plain) -> None:
    odd = {"model.positions": "rope", "model.head_dim": 7}
    plan = parse_comparison(plain(variants={"odd": odd, **VARIANTS}))
    assert plan.entries[0].training is None
    assert list(plan.entries[0].refused) == [1, 2, 4]
    assert "must be even" in plan.entries[0].refused[1]
    assert [training.name for training in plan.trainings] == ["rope", "alibi"]


def test_a_combination_that_can_t_be_is_a_cell_but_a_value_that_never_can_is_an_error(plain) -> None:
    vary = ["model.head_dim=8,7", "model.positions=alibi,rope"]
    plan = parse_comparison(plain(), vary=vary)
    assert [bool(entry.refused) for entry in plan.entries] == [False, False, False, True]
    with pytest.raises(ConfigError, match=r"option --vary model\.positions: variant '8 · roap': .*'roap'.*'rope'"):
        parse_comparison(plain(), vary=["model.head_dim=8,7", "model.positions=alibi,roap"])


def test_where_nothing_can_be_built_that_is_an_error(plain) -> None:
    with pytest.raises(TranspectError, match="must be even"):
        parse_comparison(plain(), [("model.head_dim", 7)], vary=["model.positions=rope,far=rope{theta: 5e5}"])


def test_an_evaluation_that_needs_other_weights_is_refused(plain) -> None:
    more = {"model.positions": "rope", "evaluate": {"model.n_layers": 2}}
    plan = parse_comparison(plain(variants={"more": more, **VARIANTS}))
    assert "may not change the weights" in plan.entries[0].refused[1]


def test_equal_parameters(plain) -> None:
    variants = {
        "rope": {"model.positions": "rope"},
        "learned": {"model.positions": "learned"},
        "alibi": VARIANTS["alibi"],
    }
    unequal = parse_comparison(plain(variants=variants))
    assert not near(unequal.entries[1].n_parameters, unequal.entries[0].n_parameters)
    equal = parse_comparison(plain(variants=variants, equal="parameters"))
    totals = [entry.n_parameters for entry in equal.entries]
    assert all(near(total, totals[0]) for total in totals)
    assert [entry.d_ff is None for entry in equal.entries] == [True, False, True]
    for entry in equal.entries:
        assert entry.n_parameters == count_parameters(entry.training.recipe.model.config)
        assert entry.d_ff in (None, entry.config.last.ffn.d_ff)


@pytest.mark.parametrize(
    ("changes", "overrides", "says"),
    [
        ({}, {}, "at least two variants"),
        ({"variants": {"one": {}}}, {}, "at least two variants"),
        ({"variants": {"a": {"data.seq_len": 4}, "b": {}}}, {}, "read the same tokens.*data.seq_len"),
        ({"variants": {"a": {"train.seed": 4}, "b": {}}}, {}, "read the same tokens.*train.seed"),
        ({"variants": {"a": {"train.batch_size": 4}, "b": {}}}, {}, "read the same tokens.*train.batch_size"),
        ({"variants": {"a": {"model": {"d_model": 4}}, "b": {}}}, {}, "read the same tokens"),
        ({"variants": {"a": {"evaluate": {"train.clip": 4}}, "b": {}}}, {}, "differ in model"),
        ({"variants": {"a": {"evaluate": "yarn"}, "b": {}}}, {}, "evaluate must be a mapping"),
        ({"variants": {"a": {"model.position": "rope"}, "b": {}}}, {}, "variant 'a': .*no key 'position'.*positions"),
        ({"variants": {"a": {"evaluate": []}, "b": {}}}, {}, "evaluate must be a mapping"),
        (
            {"variants": {"a": {"evaluate": {"model.position": "rope"}}, "b": {}}},
            {},
            "variant 'a': .*no key 'position'",
        ),
        ({"variants": {"a": {"evaluate": {"model.norm": "rms"}}, "b": {}}}, {}, "variant 'a': .*rmsnorm"),
        ({"variants": {"": {}, "b": {}}}, {}, "must be a line of text"),
        ({"variants": {"a\nb": {}, "b": {}}}, {}, "must be a line of text"),
        ({"lengths": [2, 1], "variants": {"a": {}, "b": {}}}, {}, "lengths must be multiples"),
        ({"lengths": [], "variants": {"a": {}, "b": {}}}, {}, "lengths must be multiples"),
        ({"lengths": [0], "variants": {"a": {}, "b": {}}}, {}, "lengths must be multiples"),
        ({"seeds": 0, "variants": {"a": {}, "b": {}}}, {}, "seeds must be at least 1"),
        ({"equal": "time", "variants": {"a": {}, "b": {}}}, {}, "equal must be one of"),
        ({"sedes": 1, "variants": {"a": {}, "b": {}}}, {}, "no key 'sedes'.*'seeds'"),
        ({"variants": VARIANTS}, {"train.patience": 2}, "none may stop early"),
        ({"variants": VARIANTS}, {"data.valid": "null"}, "needs a text to evaluate on"),
    ],
)
def test_a_slip_is_told_before_anything_is_trained(plain, changes, overrides, says) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_comparison(plain(**changes), overrides.items())


def test_rows_of_another_length_would_be_other_tokens(plain) -> None:
    content = plain(
        variants={"short": {"model.context_length": PART}, "alibi": {"model.positions": "alibi"}}, lengths=[1]
    )
    del content["data"]["seq_len"]
    plan = parse_comparison(content)
    assert "must read the same tokens, so seq_len must be 32" in plan.entries[0].refused[1]


def test_an_error_stands_where_the_recipe_says_it(plain, tmp_path) -> None:
    content = plain(variants={"good": {}, "bad": {"model.positions": {"kind": "roap"}}})
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    lines = file.read_text(encoding="utf-8").splitlines()
    line = next(i for i, text in enumerate(lines, 1) if "model.positions" in text)
    with pytest.raises(ConfigError, match=rf"recipe\.yaml:{line}: variant 'bad': .*roap"):
        load_comparison(file)


@pytest.mark.parametrize("lengths", [(1,), (2, 4), (3,)])
def test_any_lengths(plain, lengths) -> None:
    plan = parse_comparison(plain(variants=VARIANTS), lengths=lengths)
    assert not any(entry.refused for entry in plan.entries)
    assert plan.part == PART


def test_a_name_may_look_like_a_number(plain) -> None:
    variants = {1: {"model.positions": "rope"}, 2.5: {"model.positions": "alibi"}}
    assert [e.variant.name for e in parse_comparison(plain(variants=variants)).entries] == ["1", "2.5"]


def test_rows_that_go_on_are_not_compared(plain) -> None:
    content = plain(variants=VARIANTS)
    content["data"]["objective"] = {"kind": "recurrent", "memory": PART}
    with pytest.raises(ConfigError, match=r"rows that stand alone.*recurrent.*causal"):
        parse_comparison(content)


def test_encoder_decoders_are_not_compared(plain) -> None:
    content = plain(variants=VARIANTS)
    content["model"] = {"preset": "transformer-base", "d_model": 16, "n_heads": 2, "n_layers": 1}
    del content["data"]["objective"]
    with pytest.raises(ConfigError, match="Compare decoders or encoders"):
        parse_comparison(content)
