"""All programs of `bench train` begin with the same weights and make the same updates."""

from pathlib import Path
from typing import Any

import pytest
import torch

from transpect.base.errors import ConfigError
from transpect.bench.harness import Options
from transpect.bench.train import Training, bars, flops, known_dtypes, loads_of, prepare
from transpect.bench.worker import OURS, script_of
from transpect.bench.workers.loop import _script
from transpect.interop import load_model

TINY = Training(steps=3, rows=2, length=8, layers=2, width=16, heads=2, words=32)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_programs_make_the_same_updates(tmp_path: Path, dtype: str) -> None:
    common = {**prepare(tmp_path, TINY), "dtype": dtype, "threads": torch.get_num_threads(), "keep": False}
    answers: dict[str, Any] = {}
    for who in (OURS, "transformers", "nanogpt-style"):
        _, run = _script(str(script_of("train", who))).load({**common, "compiled": False})
        answers[who] = run({"steps": TINY.steps})
    ours = torch.tensor(answers[OURS]["losses"])
    assert ours.std() > 1e-3, "the weights move"
    for answer in answers.values():
        assert answer["count"] == {"updates": TINY.steps * TINY.rows * TINY.length}
        assert answer["sizes"]["peak memory"] > 0
        tolerance = 1e-5 if dtype == "float32" else 2e-2  # 8 bits of a bfloat16
        torch.testing.assert_close(torch.tensor(answer["losses"]), ours, atol=tolerance, rtol=0)


def test_operations_are_counted_by_matrices(tmp_path: Path) -> None:
    model = load_model(prepare(tmp_path, TINY)["directory"])
    matrices = sum(w.numel() for name, w in model.named_parameters() if w.ndim == 2 and "positions" not in name)
    pairs = TINY.layers * TINY.length * TINY.width
    assert flops(TINY) == 6 * matrices + 6 * pairs


def test_the_allocator_is_given_to_all_or_to_ours_alone() -> None:
    options = Options(("transformers", "nanogpt-style"))
    for shared in (False, True):
        loads = loads_of(options, {}, shared=shared)
        assert {who: load["keep"] for who, load in loads.items()} == {
            OURS: True,
            "transformers": shared,
            "nanogpt-style": shared,
            "nanogpt-style compiled": shared,
        }
        assert [loads[who]["compiled"] for who in ("nanogpt-style", "nanogpt-style compiled")] == [False, True]
    assert bars(shared=False)["transformers", "updates"].value > bars(shared=True)["transformers", "updates"].value


def test_dtypes_are_known() -> None:
    assert known_dtypes(("bfloat16",)) == ("bfloat16",)
    for names in ((), ("float16",)):
        with pytest.raises(ConfigError, match="known dtypes"):
            known_dtypes(names)
