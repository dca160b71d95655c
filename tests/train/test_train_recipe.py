"""Recipes are read strictly, every override does something, every mistake says where it is, and resolving is stable."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from transpect.base.errors import ConfigError, DataError, TranspectError
from transpect.core import PRESETS, ModelConfig, override, preset
from transpect.data.objectives import Causal, Masked, Seq2Seq
from transpect.data.sources import Jsonl, Stories, Text, Tsv
from transpect.text import train_tokenizer
from transpect.train import (
    ModelSpec,
    Recipe,
    TokenizerSpec,
    TrainSpec,
    dump_recipe,
    load_recipe,
    parse_recipe,
    recipe_data,
)
from transpect.train.material import documents

BASE = """\
model:
  preset: llama
  d_model: 64
  n_layers: 2
  n_heads: 4
  d_ff: 96
  context_length: 32
  positions: {kind: rope, theta: 5e5}
  embedding.dropout: 0.1
  attention:
    dropout: 0.2
tokenizer:
  kind: char
  byte_fallback: true
data:
  train: {kind: fable, stories: 50}
  seq_len: 16
train:
  max_steps: 40
  optimizer: {kind: adamw, lr: 3e-4}
  schedule:
    kind: cosine
    warmup: 0.1
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(BASE, encoding="utf-8")
    return path


def model_of(file: Path, *overrides: tuple[str, Any]) -> ModelConfig:
    return load_recipe(file, overrides).model.build(100)


def test_reads_every_part(file: Path) -> None:
    recipe = load_recipe(file)
    expected = override(
        preset("llama"),
        [
            ("vocab_size", 100),
            ("d_model", 64),
            ("n_layers", 2),
            ("n_heads", 4),
            ("d_ff", 96),
            ("context_length", 32),
            ("positions.theta", 5e5),
            ("embedding.dropout", 0.1),
            ("attention.dropout", 0.2),
        ],
    )
    assert recipe.model.build(100) == expected
    assert recipe.tokenizer == TokenizerSpec(kind="char", options={"byte_fallback": True})
    assert recipe.data.train == Stories(stories=50)
    assert (recipe.seq_len, recipe.objective, recipe.data.valid) == (16, Causal(), 0.05)
    assert recipe.train.optimizer.lr == 3e-4
    assert recipe.train.batch_size == TrainSpec().batch_size


# each: an override as typed, and where its value must then be found in the plain data of the resolved recipe
OVERRIDES: list[tuple[str, str, str, Any]] = [
    ("model.d_model", "32", "model.d_model", 32),
    ("model.n_layers", "3", "model.decoder.n_layers", 3),
    ("model.n_heads", "2", "model.decoder.attention.n_heads", 2),
    ("model.d_ff", "null", "model.decoder.ffn.d_ff", None),
    ("model.positions", "alibi", "model.decoder.positions.kind", "alibi"),
    ("model.positions.theta", "1e4", "model.decoder.positions.theta", 1e4),
    ("model.attention.dropout", "0.3", "model.decoder.attention.dropout", 0.3),
    ("model.decoder.ffn.act", "gelu", "model.decoder.ffn.act", "gelu"),
    ("model.embedding.scaled", "true", "model.embedding.scaled", True),
    ("model.vocab_size", "500", "model.vocab_size", 500),
    ("model.kernel", "naive", "model.decoder.attention.kernel.kind", "naive"),
    ("model.vocab_size", "null", "model.vocab_size", 6),
    ("model.context_length", "99", "model.context_length", 99),
    ("model.head.tied", "true", "model.head.tied", True),
    ("tokenizer.kind", "byte_bpe", "tokenizer.kind", "byte_bpe"),
    ("tokenizer.vocab_size", "300", "tokenizer.vocab_size", 300),
    ("tokenizer.lowercase", "true", "tokenizer.lowercase", True),
    ("tokenizer.special_tokens.mask", "<m>", "tokenizer.special_tokens.mask", "<m>"),
    ("data.seq_len", "8", "data.seq_len", 8),
    ("data.valid", "0.5", "data.valid", 0.5),
    ("data.valid_seed", "3", "data.valid_seed", 3),
    ("data.train.seed", "7", "data.train.seed", 7),
    ("data.objective.separate", "false", "data.objective.separate", False),
    ("train.max_steps", "24", "train.max_steps", 24),
    ("train.optimizer.lr", "1e-2", "train.optimizer.lr", 1e-2),
    ("train.optimizer.betas", "[0.8, 0.9]", "train.optimizer.betas", [0.8, 0.9]),
    ("train.optimizer", "sgd", "train.optimizer.kind", "sgd"),
    ("train.schedule.warmup", "5", "train.schedule.warmup", 5),
    ("train.schedule.floor", "0.5", "train.schedule.floor", 0.5),
    ("train.clip", "null", "train.clip", None),
    ("train.patience", "3", "train.patience", 3),
    ("train.precision", "bf16", "train.precision", "bf16"),
    ("logging.tensorboard", "false", "logging.tensorboard", False),
]


def at(data: Any, dotted: str) -> Any:
    for key in dotted.split("."):
        data = data[key]
    return data


def test_the_table_has_a_row_for_every_kind_of_key() -> None:
    assert {key.partition(".")[0] for key, *_ in OVERRIDES} == {"model", "tokenizer", "data", "train", "logging"}


@pytest.mark.parametrize(("key", "value", "where", "expected"), OVERRIDES, ids=str)
def test_an_override_arrives(key: str, value: str, where: str, expected: Any, file: Path) -> None:
    if key == "tokenizer.kind":
        file.write_text(BASE.replace("  byte_fallback: true\n", ""), encoding="utf-8")
    recipe = load_recipe(file, [(key, value)])
    assert at(recipe_data(recipe.resolve(train_tokenizer("char", ["ab"]))), where) == expected


def test_the_last_override_of_a_key_wins_and_the_command_line_comes_after_the_file(file: Path) -> None:
    assert model_of(file, ("model.n_layers", "3"), ("model.n_layers", "5")).last.n_layers == 5
    changed = model_of(file, ("model.preset", "gpt2"), ("model.positions", "learned"))
    assert (changed.d_model, changed.last.positions.kind, changed.last.norm.kind) == (64, "learned", "layernorm")


def test_a_section_need_not_be_in_the_file(plain: Callable[..., dict[str, Any]]) -> None:
    data = plain()
    del data["train"], data["logging"]
    recipe = parse_recipe(data, [("train.schedule.warmup", "3"), ("train.optimizer.lr", "1")])
    assert recipe.train.schedule.kind == "cosine"
    assert recipe.train.optimizer.lr == 1.0


@pytest.mark.parametrize("short", ["llama", {"preset": "llama"}])
def test_a_model_may_be_a_bare_preset(short: Any, plain: Callable[..., dict[str, Any]]) -> None:
    assert parse_recipe({**plain(), "model": short}).model == ModelSpec(preset("llama"))


def test_the_vocabulary_is_the_tokenizers_unless_it_is_given(plain: Callable[..., dict[str, Any]]) -> None:
    whole = recipe_data(parse_recipe(plain(), [("model.vocab_size", "50")]))
    assert parse_recipe(whole).model.build(9).vocab_size == 50
    assert parse_recipe(whole, [("model.vocab_size", "60")]).model.build(9).vocab_size == 60
    assert parse_recipe(whole, [("model.vocab_size", "null")]).model.build(9).vocab_size == 9
    assert parse_recipe(plain()).model.build(9).vocab_size == 9


def test_python_has_a_shorter_way_to_say_it(file: Path) -> None:
    spec = ModelSpec.of("llama", d_model=64, n_layers=2, n_heads=4, d_ff=96, context_length=32)
    assert spec.build(100).d_model == 64
    assert not spec.sized
    assert ModelSpec.of("gpt2", vocab_size=7).build(100).vocab_size == 7
    with pytest.raises(ConfigError, match="n_layerz"):
        ModelSpec.of("gpt2", n_layerz=3)


MISTAKES: list[tuple[str, str, int | None, str]] = [
    # what is replaced in the file, by what, the line that must be named, what must be said
    ("d_model: 64", "d_modle: 64", 3, "Did you mean 'd_model'"),
    ("preset: llama", "preset: lama", 2, "Did you mean 'llama'"),
    ("d_model: 64", "d_model: 66", 3, "multiple of n_heads"),
    ("d_model: 64", "d_model: big", 3, "whole number"),
    ("n_heads: 4", "n_heads: 0", 5, "n_heads must be at least 1"),
    ("n_layers: 2", "n_layers: 2.5", 4, "whole number"),
    ("theta: 5e5", "thta: 5e5", 8, "Did you mean 'theta'"),
    ("kind: rope", "kind: ropes", 8, "Did you mean 'rope'"),
    ("embedding.dropout: 0.1", "embedding.dropout: 1.5", 9, "dropout must be"),
    ("    dropout: 0.2", "    dropuot: 0.2", 11, "Did you mean 'dropout'"),
    ("    dropout: 0.2", "    dropout: 2.0", 11, "dropout must be"),
    ("kind: char", "kind: chars", 13, "Did you mean 'char'"),
    ("byte_fallback: true", "byte_falback: true", 14, "Did you mean 'byte_fallback'"),
    ("byte_fallback: true", "byte_fallback: maybe", 14, "true or false"),
    ("byte_fallback: true", "vocab_siz: 3", 14, "Did you mean 'vocab_size'"),
    ("stories: 50", "storys: 50", 16, "Did you mean 'stories'"),
    ("kind: fable", "kind: fabel", 16, "Did you mean 'fable'"),
    ("seq_len: 16", "seq_length: 16", 17, "Did you mean 'seq_len'"),
    ("seq_len: 16", "batch_size: 16", 17, "train.batch_size"),
    ("max_steps: 40", "max_step: 40", 19, "Did you mean 'max_steps'"),
    ("max_steps: 40", "max_steps: 0", 19, "max_steps must be at least 1"),
    ("max_steps: 40", "precision: fp8", 19, "fp8"),
    ("max_steps: 40", "clip: -1", 19, "clip must be above 0"),
    ("lr: 3e-4", "learning_rate: 3e-4", 20, "no key 'learning_rate'"),
    ("lr: 3e-4", "lr: -1", 20, "lr must be above 0"),
    ("kind: cosine", "kind: cosin", 22, "Did you mean 'cosine'"),
    ("warmup: 0.1", "warmup: -3", 23, "warmup must be"),
    ("train:\n  max", "trian:\n  max", 18, "Did you mean 'train'"),
    ("train:\n  max", "max_steps: 3\ntrain:\n  max", 18, "Did you mean 'train.max_steps'"),
    ("model:\n", "modl:\n", 1, "Did you mean 'model'"),
    ("preset:", "presett:", 2, "Did you mean 'preset'"),
    ("seq_len: 16", "workers: 100000000", 17, "data.workers must be at most"),
]


@pytest.mark.parametrize(("old", "new", "line", "said"), MISTAKES, ids=lambda x: str(x).replace("\n", " "))
def test_a_mistake_in_a_file_is_named_with_its_line(old: str, new: str, line: int, said: str, file: Path) -> None:
    assert BASE.count(old) == 1
    file.write_text(BASE.replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_recipe(file)
    assert str(caught.value).startswith(f"{file}:{line}: "), str(caught.value)
    assert said in str(caught.value)


BAD_OPTIONS: list[tuple[list[tuple[str, str]], str, str]] = [
    ([("model.d_modle", "3")], "model.d_modle", "Did you mean 'd_model'"),
    ([("model.n_heads", "7")], "model.n_heads", "multiple of n_heads"),
    ([("model.preset", "gpt3")], "model.preset", "no such preset"),
    ([("model.positions.thta", "3")], "model.positions.thta", "Did you mean 'theta'"),
    ([("model.encoder.n_layers", "3")], "model.encoder.n_layers", "needs the key 'attention'"),
    ([("train.max_stepz", "3")], "train.max_stepz", "Did you mean 'max_steps'"),
    ([("train.max_steps", "many")], "train.max_steps", "whole number"),
    ([("train.max_steps", "0")], "train.max_steps", "at least 1"),
    ([("train.precision", "fp8")], "train.precision", "fp8"),
    ([("train.schedule", "noam"), ("train.schedule.floor", "0.1")], "train.schedule.floor", "no key 'floor'"),
    ([("train.optimizer.momentum", "0.9")], "train.optimizer.momentum", "no key 'momentum'"),
    ([("data.train.stories", "-1")], "data.train.stories", "stories must be"),
    ([("tokenizer.path", "x")], "tokenizer.path", "either a kind"),
    ([("trian.max_steps", "3")], "trian.max_steps", "Did you mean 'train'"),
    ([("max_steps", "3")], "max_steps", "Did you mean 'train.max_steps'"),
    ([("model", "gpt2")], "model", "no key"),
    ([("logging.tensorbord", "false")], "logging.tensorbord", "Did you mean 'tensorboard'"),
]


@pytest.mark.parametrize(("overrides", "option", "said"), BAD_OPTIONS, ids=str)
def test_a_mistake_on_the_command_line_is_named_with_its_option(
    overrides: list[tuple[str, str]], option: str, said: str, file: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_recipe(file, overrides)
    text = str(caught.value)
    assert said in text
    assert text.startswith(f"option --{option}: "), text


def test_a_missing_part_is_named(plain: Callable[..., dict[str, Any]]) -> None:
    for name in ("model", "tokenizer", "data"):
        data = plain()
        del data[name]
        with pytest.raises(ConfigError, match=f"needs the key '{name}'"):
            parse_recipe(data)
    with pytest.raises(ConfigError, match="preset, or a whole configuration"):
        parse_recipe({**plain(), "model": {"d_model": 3}})
    with pytest.raises(ConfigError, match="no such file"):
        load_recipe("nowhere.yaml")


# --data


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    found = {"txt": "a b\nc d\n", "jsonl": '{"text": "a"}\n{"text": "b"}\n', "tsv": "a\tb\nc\td\n"}
    paths = {ending: tmp_path / f"data.{ending}" for ending in found}
    for ending, content in found.items():
        paths[ending].write_text(content, encoding="utf-8")
    return paths


def test_data_replaces_the_source_and_what_is_measured(file: Path, files: dict[str, Path]) -> None:
    for ending, kind in (("txt", Text), ("jsonl", Jsonl), ("tsv", Tsv)):
        recipe = load_recipe(file, data=files[ending])
        assert recipe.data.train == kind(str(files[ending]))
        assert recipe.data.valid == 0.05
        assert recipe.data.seq_len == 16


def test_data_keeps_the_options_of_a_source_of_its_kind(file: Path, files: dict[str, Path]) -> None:
    file.write_text(BASE.replace("{kind: fable, stories: 50}", "{kind: text, path: gone.txt, by: file}"), "utf-8")
    assert load_recipe(file, data=files["txt"]).data.train == Text(str(files["txt"]), by="file")


@pytest.mark.parametrize(
    ("in_recipe", "overrides", "expected"),
    [
        ("0.3", [], 0.3),
        ("null", [], None),
        ("{kind: fable, seed: 9, stories: 5}", [], 0.05),
        ("{kind: fable, seed: 9, stories: 5}", [("data.valid.seed", "4")], Stories(seed=4, stories=5)),
        ("0.3", [("data.valid", "0.1")], 0.1),
        ("0.3", [("data.valid", "null")], None),
    ],
)
def test_data_comes_with_a_share_held_out_unless_valid_is_named_too(
    in_recipe: str, overrides: Iterable[tuple[str, str]], expected: object, file: Path, files: dict[str, Path]
) -> None:
    file.write_text(BASE.replace("  seq_len: 16", f"  valid: {in_recipe}\n  seq_len: 16"), encoding="utf-8")
    assert load_recipe(file, overrides, files["txt"]).data.valid == expected


def test_which_share_is_held_out_is_the_training_s_seed_s_unless_said(file: Path) -> None:
    recipe = load_recipe(file, [("train.seed", "4")])
    assert recipe.valid_seed == 4
    fixed = load_recipe(file, [("train.seed", "4"), ("data.valid_seed", "1")])
    assert fixed.valid_seed == 1
    held = [documents(one)[1] for one in (recipe, fixed, load_recipe(file, [("train.seed", "1")]))]
    assert list(held[0]) != list(held[1])
    assert list(held[1]) == list(held[2])
    with pytest.raises(ConfigError, match="valid must be a share"):
        load_recipe(file, [("data.valid_seed", "1"), ("data.valid", "null")])


def test_data_makes_up_for_a_recipe_without_any(file: Path, files: dict[str, Path]) -> None:
    file.write_text(BASE.replace("data:\n  train: {kind: fable, stories: 50}\n  seq_len: 16\n", ""), encoding="utf-8")
    assert load_recipe(file, data=files["txt"]).data.train == Text(str(files["txt"]))


def test_data_that_is_not_there_or_named_twice_is_refused(file: Path, files: dict[str, Path]) -> None:
    with pytest.raises(DataError, match="nowhere"):
        load_recipe(file, data="nowhere.txt")
    with pytest.raises(ConfigError, match="twice"):
        load_recipe(file, [("data.train.seed", "3")], files["txt"])


def test_a_source_may_be_a_bare_path(file: Path, files: dict[str, Path]) -> None:
    recipe = load_recipe(file, [("data.train", str(files["jsonl"])), ("data.valid", str(files["txt"]))])
    assert recipe.data.train == Jsonl(str(files["jsonl"]))
    assert recipe.data.valid == Text(str(files["txt"]))


# resolving


def every_recipe(plain: Callable[..., dict[str, Any]]) -> list[Recipe]:
    recipes = [parse_recipe(plain(objective)) for objective in ("causal", "masked", "seq2seq")]
    for name in PRESETS:
        data = plain()
        del data["data"]["objective"]
        data["train"]["schedule"] = {"kind": "noam", "warmup": 0.25}
        data["train"]["optimizer"] = "adamw"
        data["train"]["eval_batch_size"] = None
        recipes.append(parse_recipe({**data, "model": {"preset": name}}))
    return recipes


def test_a_resolved_recipe_is_a_recipe_and_leaves_nothing_open(plain: Callable[..., dict[str, Any]]) -> None:
    tokenizer = train_tokenizer("char", ["abc"], special_tokens={"mask": "<mask>"})
    for recipe in every_recipe(plain):
        resolved = recipe.resolve(tokenizer)
        assert parse_recipe(yaml.safe_load(dump_recipe(resolved))) == resolved
        assert resolved.resolve(tokenizer) == resolved
        data = recipe_data(resolved)
        assert data["model"]["vocab_size"] == tokenizer.vocab_size
        assert isinstance(data["train"]["schedule"]["warmup"], int)
        for key in ("data.objective", "data.seq_len", "train.optimizer.lr", "train.eval_batch_size"):
            assert at(data, key) is not None, key
        assert parse_recipe(yaml.safe_load(dump_recipe(recipe))) == recipe


def test_what_is_left_open_becomes_what_the_model_is_for(plain: Callable[..., dict[str, Any]]) -> None:
    expected = {"decoder": Causal, "encoder": Masked, "encoder-decoder": Seq2Seq}
    for recipe in every_recipe(plain):
        assert type(recipe.objective) is expected[recipe.model.config.kind]


def test_noam_has_a_rate_of_its_own() -> None:
    from transpect.train import AdamW, Constant, DataSpec, Noam

    def rate(train: TrainSpec) -> float | None:
        recipe = Recipe(ModelSpec.of("gpt2"), TokenizerSpec("char"), DataSpec(Stories(stories=3)), train)
        return recipe.resolve(train_tokenizer("char", ["ab"])).train.optimizer.lr

    assert rate(TrainSpec(schedule=Noam())) == 1.0
    assert rate(TrainSpec(schedule=Constant())) == 1e-3
    assert rate(TrainSpec(schedule=Noam(), optimizer=AdamW(lr=2.0))) == 2.0


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "char", "path": "x"},
        {},
        {"path": "x", "vocab_size": 3},
        {"kind": "char", "add_tokens": ["m"]},
        {"kind": "char", "texts": 0},
    ],
    ids=str,
)
def test_a_tokenizer_is_trained_or_opened_and_not_both(options: dict[str, Any]) -> None:
    with pytest.raises(TranspectError):
        TokenizerSpec(**options)
