"""Classifiers from a recipe to use: trained, scored, resumed bit for bit, saved with their names, and opened."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transpect.lm import load
from transpect.train import Recipe, parse_recipe, read_metrics, train

CLASSES = {
    "animals": ["the cat eats", "a dog runs", "fish swim"],
    "weather": ["rain falls", "it snows", "the sun shines"],
}


@pytest.fixture
def recipe_for(plain: Callable[..., dict[str, Any]], tmp_path: Path) -> Callable[..., Recipe]:
    """A recipe that classifies texts or words."""

    def make(objective: str, model: str = "bert-base") -> Recipe:
        data = plain("masked")
        file = tmp_path / "data.jsonl"
        rows = [(text, name) for name, texts in CLASSES.items() for text in texts] * 8
        tags = [["O" if len(word) < 4 else f"B-{name}" for word in text.split()] for text, name in rows]
        file.write_text(
            "\n".join(
                json.dumps({"text": text, "label": name, "tokens": text.split(), "tags": own})
                for (text, name), own in zip(rows, tags, strict=True)
            ),
            encoding="utf-8",
        )
        texts = {"kind": "jsonl", "path": str(file), "target": "label"}
        source = texts if objective == "classification" else {"kind": "tagged", "path": str(file)}
        data["model"] |= {"preset": model}
        data["data"] = {"train": source, "valid": source, "objective": objective}
        data["train"] |= {"max_steps": 24, "batch_size": 8, "eval_every": 12, "save_every": 12}
        return parse_recipe(data)

    return make


@pytest.mark.parametrize(
    ("objective", "model", "score"),
    [
        ("classification", "gpt2", "accuracy"),
        ("token_classification", "bert-base", "span_f1"),
    ],
)
def test_from_a_recipe_to_use(
    objective: str,
    model: str,
    score: str,
    recipe_for: Callable[..., Recipe],
    tmp_path: Path,
    assert_same: Callable[[Path, Path], None],
    stop_at: Callable[..., None],
) -> None:
    recipe, run = recipe_for(objective, model), tmp_path / "run"
    result = train(recipe, run)
    assert result.evaluation is not None
    assert result.evaluation.measures[score] == read_metrics(run)[-1][f"valid_{score}"]
    assert result.evaluation.measures[score] > 0.8
    lm = load(run)
    config = json.loads((run / "best" / "config.json").read_text(encoding="utf-8"))
    if objective == "classification":
        assert set(lm.labels.names) == set(CLASSES) == set(config["label2id"])
        right = sum(lm.classify(text)[0].label == name for name, texts in CLASSES.items() for text in texts)
        assert right / 6 == pytest.approx(result.evaluation.measures["accuracy"])
    else:
        assert set(lm.labels.names) == {"O", "B-animals", "B-weather"}
        named = {token.start: token.label for token in lm.classify_tokens("the cat eats")[0] if token.end}
        assert (named[0], named[8]) == ("O", "B-animals")
    again = tmp_path / "again"
    stop_at(recipe, again, 7)
    train(recipe, again, resume="auto")
    assert_same(run, again)
