"""Where the gradient of one process overflows float16, all of them skip the same update, and nothing moves."""

import math
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from transpect.train import parse_recipe, read_metrics, session, train, updates
from transpect.train.schedules import Scale

import_module("transpect.train.parallel.together")  # once, before processes are forked

STILL = {f"model.{part}": 0.0 for part in ("dropout", "attention.dropout", "embedding.dropout")}
FIVE = {**STILL, "train.precision": "fp16", "train.max_steps": 5, "model.n_layers": 2}
SPOILED = (1, 3, 4)
"""Which attempts at an update overflow."""
LAYOUTS: dict[str, dict[str, Any]] = {
    "ddp": {"data": "ddp"},
    "fsdp": {"data": "fsdp"},
    "tensor": {"tensor": 2},
    "pipeline": {"pipeline": 2},
}


def attempts(plain: dict[str, Any], changes: dict[str, Any], out: Path) -> list[tuple[float, bool, bool, float]]:
    """Train, while the loss of process 1 has an infinite slope at some attempts.

    Returns:
        of each attempt its rate, whether it was made, whether anything of this process moved, and the scale afterwards.
    """
    mean, real, seen = updates.mean_loss, session.update, list[tuple[float, bool, bool, float]]()

    def spoiled(*args: Any) -> Tensor:
        loss = mean(*args)
        if torch.distributed.get_rank() == 1 and len(seen) + 1 in SPOILED:
            loss.register_hook(lambda slope: slope * math.inf)
        return loss

    def held(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
        memory = [value for state in optimizer.state.values() for value in state.values()]
        tensors = [*model.parameters(), *(value for value in memory if isinstance(value, Tensor))]
        return [(own.to_local() if isinstance(own, DTensor) else own).detach().clone() for own in tensors]

    def noted(model: Any, optimizer: Any, batches: Any, **options: Any) -> Any:
        before = held(model, optimizer)
        done = real(model, optimizer, batches, **options)
        after = held(model, optimizer)
        moved = len(before) != len(after) or not all(map(torch.equal, before, after))
        seen.append((options["rate"], done.made, moved, options["scale"].factor))
        return done

    updates.mean_loss, session.update = spoiled, noted  # type: ignore[assignment]
    train(parse_recipe(plain, changes.items()), out)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_skip_the_update_of_which_one_overflows(
    layout: str, plain: Callable[..., dict[str, Any]], tmp_path: Path, together: Callable[..., list[Any]]
) -> None:
    changes = {**FIVE, **{f"parallel.{key}": value for key, value in LAYOUTS[layout].items()}}
    one, other = together(2, attempts, plain("causal"), changes, tmp_path / "run")
    assert [made for _, made, _, _ in one] == [attempt not in SPOILED for attempt in range(1, 9)]
    for seen in (one, other):
        assert [moved for _, _, moved, _ in seen] == [made for _, made, _, _ in seen]
    assert [(rate, made, scale) for rate, made, _, scale in one] == [
        (rate, made, scale) for rate, made, _, scale in other
    ]
    spec = parse_recipe(plain("causal"), changes.items()).train
    rates = [spec.schedule.rate(n, Scale(spec.optimizer.lr or 0.0, 5, 16)) for n in range(1, 6)]
    assert [rate for rate, made, _, _ in one if made] == rates
    lines = read_metrics(tmp_path / "run")
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5]
    assert [line["skipped"] for line in lines] == [1, 3, 3, 3, 3]
    assert lines[-1]["loss_scale"] == 2.0**13
