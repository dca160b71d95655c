"""Runs on conversations: from a checkpoint, resumed bit for bit, and what they leave ends where a turn ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transpect.core import Transformer, override, preset
from transpect.interop import load_generation, save_model
from transpect.text import load_tokenizer, train_tokenizer
from transpect.train import parse_recipe, read_metrics, train

TEMPLATE = (
    "{% for m in messages %}{{ m.role + ' ' + m.content + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant ' }}{% endif %}"
)


def test_a_checkpoint_learns_to_answer(tmp_path: Path, assert_same: Callable[[Path, Path], None]) -> None:
    tokenizer = train_tokenizer("char", ["abcdefghijklmnopqrstuvwxyz "], extra_special_tokens=["<|end|>"])
    sizes = {"vocab_size": len(tokenizer), "d_model": 16, "n_layers": 1, "n_heads": 2, "context_length": 64}
    model = Transformer(override(preset("gpt2"), sizes.items()), seed=0)
    save_model(model, tmp_path / "base", generation={"eos_token_id": tokenizer.eos_id, "temperature": 0.7})
    tokenizer.save(tmp_path / "base")
    rows = [{"instruction": f"say {word}", "output": word} for word in ("cat", "fish", "hay", "rain") * 3]
    (tmp_path / "x.json").write_text(json.dumps(rows))
    plain: dict[str, Any] = {
        "model": {"path": str(tmp_path / "base"), "dropout": 0.1},
        "data": {
            "train": {"kind": "chat", "path": str(tmp_path / "x.json")},
            "valid": 0.25,
            "objective": {"kind": "chat", "template": TEMPLATE},
        },
        "train": {
            "max_steps": 6,
            "batch_size": 2,
            "optimizer": {"kind": "adamw", "lr": 1e-2},
            "eval_every": 3,
            "save_every": 3,
            "log_every": 1,
            "threads": 1,
        },
        "logging": {"tensorboard": False, "progress": "none"},
    }
    train(parse_recipe(plain), tmp_path / "whole")
    lines = read_metrics(tmp_path / "whole")
    assert lines[-1]["loss"] < lines[0]["loss"]
    train(parse_recipe(plain), tmp_path / "parts", should_stop=lambda step: step == 4)
    train(parse_recipe(plain), tmp_path / "parts", resume="auto")
    assert_same(tmp_path / "whole", tmp_path / "parts")
    generation = load_generation(tmp_path / "whole" / "best")
    assert generation["eos_token_id"] == [tokenizer.eos_id, tokenizer.token_to_id("<|end|>")]
    assert generation["temperature"] == 0.7
    assert load_tokenizer(tmp_path / "whole" / "best").chat_templates == {"default": TEMPLATE}
