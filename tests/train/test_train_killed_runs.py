"""Runs that are killed by SIGKILL and go on; `killed_runs` tries every way to train, here a sample of them."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.train.killed_runs import faults
from tests.train.ways import ways

FAST = ("masked, adafactor", 2)
SAMPLE = [
    *(("masked, muon", 0), ("electra", 2), ("spans", 0), ("triples", 2)),
    *(("a mixture of tokens and a stream", 2), ("lora", 0)),
]


@pytest.mark.parametrize(("name", "workers"), [FAST, *(pytest.param(*one, marks=pytest.mark.slow) for one in SAMPLE)])
def test_a_killed_run_goes_on_bit_for_bit(name: str, workers: int, tmp_path: Path) -> None:
    recipe = ways(tmp_path)[name]()
    assert faults(replace(recipe, data=replace(recipe.data, workers=workers)), tmp_path) == []
