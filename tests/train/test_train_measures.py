"""Norms by part, entropies and samples: right against their definitions, and without effect on the run."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transpect.base.errors import ConfigError
from transpect.core import Transformer, override, preset
from transpect.core.context import NO_SOURCE
from transpect.train import Recipe, read_metrics, train
from transpect.train.job import build
from transpect.train.state import read_state
from transpect.train.watching.measures import EntropyTap, part_of

Make = Callable[..., Recipe]
ALL = {"logging.measures": ["norms", {"kind": "attention", "rows": 2}, {"kind": "utilisation", "peak": 1e9}]}
SAMPLES = {"logging.samples": {"prompts": ["the c", ""], "max_new_tokens": 3}}


@pytest.mark.parametrize("objective", ["causal", "masked", "seq2seq"])
def test_measuring_changes_nothing_else(
    objective: str, recipe_of: Make, straight: Callable[[str], Path], tmp_path: Path, lines: Any
) -> None:
    more = ALL if objective == "masked" else ALL | SAMPLES
    train(recipe_of(objective, more), tmp_path)
    a, b = read_state(straight(objective)), read_state(tmp_path)
    assert all(torch.equal(a.tensors[name], b.tensors[name]) for name in a.tensors)
    for plain, measured in zip(lines(straight(objective)), lines(tmp_path), strict=True):
        assert plain.items() <= measured.items()


@pytest.mark.parametrize("by", ["layer", "branch"])
@pytest.mark.parametrize("clip", [None, 1e-3])
def test_norms_of_parts_make_up_the_norm(by: str, clip: float | None, recipe_of: Make, tmp_path: Path) -> None:
    changes = {"logging.measures": [{"kind": "norms", "by": by}], "train.clip": clip, "train.log_every": 2}
    train(recipe_of("seq2seq", changes), tmp_path)
    for line in read_metrics(tmp_path):
        parts = {name: value for name, value in line.items() if name.startswith("grad_norm/")}
        assert math.sqrt(sum((value or 0.0) ** 2 for value in parts.values())) == pytest.approx(line["grad_norm"])
        names = {name.partition("/")[2] for name in parts}
        assert names >= ({"embeddings", "decoder.0.cross", "encoder.0.ffn"} if by == "branch" else {"decoder.0"})
    weights = read_state(tmp_path).part("model")
    whole = math.sqrt(sum(float(w.double().square().sum()) for w in weights.values()))
    last = [value or 0.0 for name, value in line.items() if name.startswith("weight_norm/")]
    assert math.sqrt(sum(value**2 for value in last)) == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("name", ["llama", "t5", "bert-base", "gemma2", "modernbert", "mixtral", "albert-base"])
def test_every_weight_has_a_part(name: str) -> None:
    try:
        config = preset(name)
    except ConfigError:
        pytest.skip("no such preset")
    sizes = {"d_model": 16, "n_layers": 2, "n_heads": 2, "vocab_size": 11}
    model = Transformer(override(config, list(sizes.items())), seed=None)
    found = {part_of(weight, "branch") for weight, _ in model.named_parameters()}
    assert all(len(part.split(".")) <= 3 for part in found)
    assert any(part.endswith(".ffn") for part in found) and "embeddings" in found


def test_entropy_is_that_of_the_definition() -> None:
    """Uniform weights over n keys have ln n, certain ones 0; a query that sees nothing does not count."""
    tap = EntropyTap()
    weights = torch.zeros(1, 1, 3, 4)
    weights[0, 0, 0] = 0.25
    weights[0, 0, 1, 2] = 1.0
    tap.see("decoder.0.self.attention_weights", weights)
    tap.see("decoder.0.self.other", weights)
    assert tap.entropies == {"decoder.0.self": pytest.approx(math.log(4) / 2)}


def test_an_untrained_decoder_looks_at_all_it_sees(recipe_of: Make, tmp_path: Path) -> None:
    """With queries of nothing but zeros, attention is uniform: the mean of ln(t + 1) over a row's places."""
    recipe = recipe_of("causal", ALL | {"data.objective": {"kind": "causal", "pack": False}})
    job = build(recipe)
    for name, weight in job.model.named_parameters():
        if ".query." in name:
            torch.nn.init.zeros_(weight)
    meter = job.recipe.logging.measures[1].build(job, torch.optim.SGD(job.model.parameters()))
    assert job.valid is not None
    batch = next(job.valid.once())
    positions = batch.tags.position[:2]
    expected = torch.log(positions[positions >= 0].double() + 1).mean()
    assert meter.evaluated()["valid_attention_entropy/decoder.0.self"] == pytest.approx(float(expected), rel=1e-5)
    assert job.model.hidden(batch.ids, tags=batch.tags, source=NO_SOURCE).isfinite().all()


def test_samples_are_written_and_a_resume_writes_none_twice(
    recipe_of: Make, tmp_path: Path, stop_at: Callable[..., None], told: Any
) -> None:
    recipe = recipe_of("causal", SAMPLES | {"train.eval_every": 2, "train.save_every": 7})
    train(recipe, tmp_path / "straight", loggers=[told])
    stop_at(recipe, tmp_path / "run", 3)
    train(recipe, tmp_path / "run", resume="auto")
    one, other = (tmp_path / name / "samples.jsonl" for name in ("straight", "run"))
    assert one.read_bytes() == other.read_bytes()
    lines = [json.loads(line) for line in one.read_text(encoding="utf-8").splitlines()]
    assert [(line["step"], line["prompt"]) for line in lines] == [(s, p) for s in (2, 4, 6, 7) for p in ("the c", "")]
    assert any(line["text"] for line in lines)


@pytest.mark.parametrize(
    ("objective", "samples", "says"),
    [
        ("masked", {"prompts": ["a"]}, "samples"),
        ("causal", {"prompts": ["the cat " * 9]}, "samples"),
        ("causal", {"prompts": []}, "at least one of prompts"),
        ("causal", {"prompts": ["a"], "every": 0}, "every must be"),
    ],
)
def test_samples_that_can_t_be_are_refused_before_the_first_step(
    objective: str, samples: dict[str, Any], says: str, recipe_of: Make, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        train(recipe_of(objective, {"logging.samples": samples}), tmp_path / "run")
    assert not (tmp_path / "run" / "state").exists()


@pytest.mark.parametrize("objective", ["causal", "seq2seq"])
def test_utilisation_is_flops_over_the_peak(objective: str, recipe_of: Make, tmp_path: Path) -> None:
    """Of a model whose matrices have W weights, 6·W FLOPs a token and some more for attention."""
    train(recipe_of(objective, {"logging.measures": [{"kind": "utilisation", "peak": 1e9}]}), tmp_path)
    weights = sum(w.numel() for name, w in read_state(tmp_path).part("model").items() if w.ndim == 2)
    for line in read_metrics(tmp_path):
        per_token = (line["utilisation"] or 0.0) / (line["tokens_per_s"] or 1.0) * 1e9
        assert 1.5 * weights < per_token < 9 * weights
