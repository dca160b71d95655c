"""What a recipe reads is the same for a run, for a plan, and for whoever looks at it, with every objective."""

import json
from pathlib import Path
from typing import Any

import pytest

from transpect.core import SequenceClass
from transpect.data.objectives import Objective
from transpect.interop import load_config
from transpect.train import Recipe, parse_recipe, train
from transpect.train.job import build
from transpect.train.material import gathered
from transpect.train.planning.reading import work_of

WORDS = ["the cat eats fish", "a dog runs home", "birds sing at dawn", "rain falls on hills"] * 4
TEMPLATE = "{% for m in messages %}{{ m.role + ' ' + m.content + eos_token }}{% endfor %}"
CHAT = TEMPLATE + "{% if add_generation_prompt %}{{ 'assistant ' }}{% endif %}"
SIZES = {"d_model": 16, "n_layers": 1, "n_heads": 2, "context_length": 64}
ROWS: dict[str, Any] = {
    "text": lambda n, text: {"text": text},
    "label": lambda n, text: {"text": text, "label": f"{n % 4}"},
    "pair": lambda n, text: {"text": text, "label": text[::-1]},
    "tags": lambda n, text: {"tokens": text.split(), "tags": ["O", *(f"B-{n % 2}" for _ in text.split()[1:])]},
    "chat": lambda n, text: {"instruction": text, "input": "", "output": text[::-1]},
    "preference": lambda n, text: {"prompt": text, "chosen": text[::-1], "rejected": "no"},
}
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "causal": ("gpt2", "text", {}),
    "recurrent": ("llama", "text", {"memory": 16}),
    "prefix": ("prefix-lm", "text", {}),
    "masked": ("bert-base", "text", {}),
    "electra": ("bert-base", "text", {}),
    "span": ("t5-small", "text", {}),
    "denoising": ("bart-base", "text", {}),
    "seq2seq": ("t5-small", "pair", {}),
    "classification": ("gpt2", "label", {}),
    "token_classification": ("bert-base", "tags", {}),
    "contrastive": ("bert-base", "pair", {}),
    "chat": ("gpt2", "chat", {"template": CHAT}),
    "preference": ("gpt2", "preference", {"template": CHAT}),
}


@pytest.fixture
def recipe(kind: str, tmp_path: Path) -> Recipe:
    preset, rows, options = KINDS[kind]
    file = tmp_path / "rows.jsonl"
    made = (ROWS[rows](number, f"{text} {number}") for number, text in enumerate(WORDS))
    file.write_text("\n".join(map(json.dumps, made)), encoding="utf-8")
    source: dict[str, Any] = {"kind": "jsonl", "path": str(file)}
    source |= {"target": "label"} if rows in ("label", "pair") else {}
    source |= {"kind": {"tags": "tagged"}.get(rows, rows)} if rows in ("tags", "chat", "preference") else {}
    return parse_recipe(
        {
            "model": {"preset": preset, **SIZES},
            "tokenizer": "char",
            "data": {"train": source, "valid": 0.2, "objective": {"kind": kind, **options}},
            "train": {"max_steps": 1, "batch_size": 4, "threads": 1},
            "logging": {"tensorboard": False, "progress": "none"},
        }
    )


def test_every_objective_is_here() -> None:
    assert set(KINDS) == set(Objective.kinds())


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_and_a_plan_read_the_same(kind: str, recipe: Recipe) -> None:
    """With no more said than the kind: a character vocabulary gets the roles that the objective needs."""
    job, read, planned = build(recipe), gathered(recipe), work_of(recipe)
    assert job.recipe == read.recipe == planned.recipe
    assert job.tokenizer.backend.to_str() == read.tokenizer.backend.to_str()
    assert read.tokenizer.chat_templates == job.tokenizer.chat_templates
    assert read.recipe.resolve(read.tokenizer) == read.recipe


@pytest.mark.parametrize("kind", ["classification", "token_classification"])
def test_classes_that_are_held_out_whole_are_known(kind: str, recipe: Recipe, tmp_path: Path) -> None:
    rows = (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    for number, row in enumerate(rows):  # each its own class
        data = json.loads(row)
        data |= {"label": f"{number}"} if kind == "classification" else {"tags": [f"B-{number}"] * len(data["tokens"])}
        rows[number] = json.dumps(data)
    (tmp_path / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    read = gathered(recipe)
    assert len(read.recipe.objective.classes) == len(rows) > len(list(read.train))


@pytest.mark.parametrize("kind", ["classification"])
def test_a_classifier_of_a_family_stays_one(kind: str, recipe: Recipe, tmp_path: Path) -> None:
    """GPT-2's projection to classes has no bias; with one, nobody else could open what a run leaves."""
    train(recipe, tmp_path / "run")
    for name in ("best", "last"):
        written = json.loads((tmp_path / "run" / name / "config.json").read_text(encoding="utf-8"))
        assert written["architectures"] == ["GPT2ForSequenceClassification"] and written["pad_token_id"] is not None
        head = load_config(tmp_path / "run" / name).head
        assert isinstance(head, SequenceClass) and head.n_classes == 4
