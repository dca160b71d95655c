"""What the scripts of programs do, on a tiny llama: all write the same tokens, and count the same work."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from transpect.bench.workers.decode.ours import bits_of
from transpect.core import Transformer, override, preset
from transpect.interop.convert import convert
from transpect.lm import LanguageModel
from transpect.text import train_tokenizer

PROMPTS = [[5, 6, 7, 8], [9, 10, 11, 12], [8, 7, 6, 5]]
SIZES = {"n_layers": 2, "d_model": 64, "n_heads": 4, "n_kv_heads": 2, "d_ff": 96, "context_length": 64}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = train_tokenizer("byte_bpe", ["the cat sat on the mat"] * 4, 300)
    config = override(preset("llama"), [*SIZES.items(), ("vocab_size", tokenizer.vocab_size)])
    folder = tmp_path_factory.mktemp("bench") / "tiny"
    LanguageModel(Transformer(config, seed=1), tokenizer, {"eos_token_id": tokenizer.eos_id}).save(folder)
    return folder


def done(task: str, who: str, options: dict[str, Any], asked: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    facts, run = importlib.import_module(f"transpect.bench.workers.{task}.{who}").load({"threads": 1, **options})
    return facts, run(asked)


@pytest.mark.parametrize("rows", [1, 3])
def test_programs_write_the_same_tokens_and_count_the_same_work(tiny: Path, rows: int) -> None:
    asked = {"prompts": PROMPTS[:rows], "new": 6}
    facts, ours = done("decode", "ours", {"model": str(tiny), "open": {"dtype": "float32"}}, asked)
    others = [done("decode", "transformers", {"directory": str(tiny), "dtype": "float32"}, asked)]
    if importlib.util.find_spec("llama_cpp"):
        convert(tiny, tiny.with_suffix(".gguf"), dtype="f32")
        room = {"file": str(tiny.with_suffix(".gguf")), "batch": rows, "capacity": 10}
        others.append(done("decode", "llama_cpp", room, asked))
    for their_facts, theirs in others:
        assert theirs["ids"] == ours["ids"]
        assert theirs["count"] == ours["count"] == {"prompt": 4 * rows, "steps": 5 * rows, "call": 6 * rows}
        assert their_facts["bits"] == facts["bits"] == 32
        assert their_facts["bytes"] == facts["bytes"]
    for _, answer in [(facts, ours), *others]:
        seconds = answer["seconds"]
        assert seconds["call"] >= seconds["prompt"] + seconds["steps"] > seconds["prompt"] > 0


def test_programs_are_ready_with_the_same_token(tiny: Path) -> None:
    asked: dict[str, Any] = {}
    _, ours = done("load", "ours", {"model": str(tiny), "open": {"dtype": "float32"}, "bits": 32}, asked)
    facts, theirs = done("load", "transformers", {"directory": str(tiny), "dtype": "float32"}, asked)
    assert ours["ids"] == theirs["ids"] and facts["bits"] == 32
    assert all(0 < answer["sizes"]["load"] < answer["sizes"]["first token"] for answer in (ours, theirs))


@pytest.mark.parametrize(("dtype", "bits"), [(torch.float32, 32), (torch.bfloat16, 16)])
def test_bits_are_those_of_the_largest_layer(tiny: Path, dtype: torch.dtype, bits: int) -> None:
    model = torch.nn.ModuleList([torch.nn.Linear(2, 2, dtype=torch.float64), torch.nn.Linear(8, 8, dtype=dtype)])
    assert bits_of(model) == bits
    model[1].format = type("Stored", (), {"bits": lambda self, d_in: 4 + 16 / 32 + d_in * 0})()
    assert bits_of(model) == 4


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
@pytest.mark.parametrize("way", ["window: block_sparse", "window: torch, mask", "learned bias: torch"])
def test_attention_is_timed_and_weighed(way: str) -> None:
    facts, answer = done("attention", "ours", {"way": way, "length": 512, "backward": True}, {"calls": 1})
    assert facts["versions"]["torch"] == torch.__version__
    assert answer["seconds"] > 0 and answer["memory"] >= 0
