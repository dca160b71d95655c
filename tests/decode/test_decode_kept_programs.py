"""A program that was used before gives what a new one gives, and none outlives a change of its model."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn

from transpect.cache import Dense, Paged, Sliding
from transpect.decode import GenerationParams, generate
from transpect.runtime import Layout, Loan, kept

PARAMS = GenerationParams(5).override({"num_beams": 2, "n": 2})


def norms(model: Any) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, nn.LayerNorm | nn.RMSNorm)]


def linear(model: Any) -> Any:
    return next(module for module in model.modules() if isinstance(module, nn.Linear))


@torch.no_grad()
def in_place(model: Any) -> None:
    norms(model)[-1].weight.mul_(torch.linspace(-1, 1, norms(model)[-1].weight.numel()))


def behind_its_back(model: Any) -> None:
    norms(model)[-1].weight.data.mul_(torch.linspace(-1, 1, norms(model)[-1].weight.numel()))


@torch.no_grad()
def a_matrix(model: Any) -> None:
    linear(model).weight.neg_()


def another_module(model: Any) -> None:
    holder = next(own for own in model.modules() if linear(model) in own.children())
    name = next(name for name, own in holder.named_children() if own is linear(model))
    former = linear(model)
    setattr(holder, name, nn.Linear(former.in_features, former.out_features, former.bias is not None))


def another_state(model: Any) -> None:
    model.load_state_dict({name: own + 0.5 * torch.randn_like(own) for name, own in model.state_dict().items()})


def an_option(model: Any) -> None:
    norms(model)[0].eps = 3.0


CHANGES = [in_place, behind_its_back, a_matrix, another_module, another_state, an_option]


def both(tools: Any, model: Any) -> tuple[Any, Any]:
    requests = tools.requests(model, [PARAMS, PARAMS])
    found, expected = (generate(model, requests, runtime=way) for way in ("program", "torch"))
    return [(own.ids, own.logprobs) for own in found], [
        (own.ids, pytest.approx(own.logprobs, abs=1e-4)) for own in expected
    ]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_model_is_seen(tools: Any, change: Callable[[Any], None]) -> None:
    torch.manual_seed(5)
    model = deepcopy(tools.model(tools.Case("rope", "gqa"), torch.float32))
    before, expected = both(tools, model)
    assert before == expected
    change(model)
    after, expected = both(tools, model)
    assert after == expected
    assert after != before


def test_a_hook_is_refused_although_a_program_is_kept(tools: Any) -> None:
    model = deepcopy(tools.model(tools.Case("rope", "gqa"), torch.float32))
    both(tools, model)
    handle = linear(model).register_forward_hook(lambda *_: None)
    with pytest.raises(Exception, match="hook"):
        both(tools, model)
    handle.remove()
    both(tools, model)


def _wanted(loan: Loan) -> Any:
    loan.program.begin({0: [1, 2, 3], 1: [4]})
    loan.program.select([1, 0, 1])
    return loan.program.read(torch.tensor([5, 6, 7, 8]), [0, 1, 2, 1])[0].clone()


@pytest.mark.parametrize("kind", [Dense(), Paged(2), Sliding(4)], ids=str)
def test_a_second_use_equals_the_first_bit_for_bit(tools: Any, kind: Any) -> None:
    layout = {"dense": Layout(), "paged": Layout(2), "sliding": Layout(None, 4)}[kind.kind]
    model = deepcopy(tools.model(tools.Case("rope", "gqa"), torch.float32))
    first = Loan(model, 2, 20, 0, layout)
    expected, program = _wanted(first), first.program
    for held in (*program._built.keys, *program._built.values):
        held[:] = torch.nan  # of sequences that are no more
    first.give_back()
    second = Loan(model, 2, 20, 0, layout)
    assert second.program is program
    assert torch.equal(_wanted(second), expected)


def test_who_gets_which(tools: Any, monkeypatch: Any) -> None:
    model = deepcopy(tools.model(tools.Case("rope", "gqa"), torch.float32))
    one, two = Loan(model, 2, 20), Loan(model, 2, 20)
    assert one.program is not two.program  # both are in use
    one.give_back()
    two.give_back()
    kept_one = Loan(model, 1, kept.TOKENS)
    assert kept_one.program is two.program  # the last, for fewer and longer sequences
    kept_one.give_back()
    assert Loan(model, 1, kept.TOKENS + 1).program is not two.program
    for other in ({"sequences": 3, "capacity": 5}, {"sequences": 1, "capacity": 5, "layout": Layout(4)}):
        two.give_back()
        assert Loan(model, **other).program is not two.program
    monkeypatch.setattr(kept, "MOST_BYTES", 1)
    two.give_back()
    assert Loan(model, 2, 20).program is not two.program


def test_other_threads_get_another(tools: Any) -> None:
    model = deepcopy(tools.model(tools.Case("rope", "gqa"), torch.float32))
    loan, threads = Loan(model, 1, 9), torch.get_num_threads()
    loan.give_back()
    try:
        torch.set_num_threads(threads + 1)
        assert Loan(model, 1, 9).program is not loan.program
    finally:
        torch.set_num_threads(threads)


def test_a_program_goes_with_its_model(tools: Any) -> None:
    model = deepcopy(tools.model(tools.Case("rope", "gqa"), torch.float32))
    both(tools, model)
    gone = [weakref.ref(model), weakref.ref(kept._KEPT[model].program)]
    del model
    gc.collect()
    assert [own() for own in gone] == [None, None]
