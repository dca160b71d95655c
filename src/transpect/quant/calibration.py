"""GPTQ and AWQ of a whole model: layer by layer, on the inputs that the layers before it, already in few bits, give it.

Axes: B windows at once, T tokens of a window, D width.

In a layer, modules that read one tensor (queries, keys and values; gate and up) are put into their formats together,
and what comes after them in the layer is measured only then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from transpect.base.errors import ConfigError
from transpect.core.attention import Pass
from transpect.core.blocks import Layer, Stack
from transpect.core.context import Context
from transpect.core.model import Tower, Transformer
from transpect.core.tags import Tags
from transpect.quant.awq import Awq
from transpect.quant.folds import folds
from transpect.quant.gptq import Gptq
from transpect.quant.rounding import rounded
from transpect.quant.swap import Plan, Target, is_tied, swap, targets, weight_of

__all__ = ["calibrated_model"]

Section = Callable[[int], object]
"""Runs a part of the model on the window of a number."""


class _EnoughError(Exception):
    """Stops a pass that has shown all that was asked of it."""


@dataclass
class _Window:
    x: Tensor  # [B, T, D], what the next layer reads
    runs: list[Pass]
    tags: Tags


@torch.no_grad()
def calibrated_model(
    model: Transformer,
    plan: Plan,
    windows: Sequence[Tensor],
    *,
    method: Gptq | Awq | None = None,
    after_layer: Callable[[int], object] = lambda count: None,
) -> Transformer:
    """Put the weights that a plan names into formats by GPTQ or AWQ, in place; gives the model.

    A token table that the head is tied to goes last, by what the head reads. One that only gives vectors, and what no
    window reaches (an expert that none chooses), are rounded (`rounded`).

    Args:
        model: of one tower, in full weights.
        plan: which weights take which format.
        windows: ids [B, T] of texts such as the model will read; some thousand tokens in all.
        method: with its options; None is `Gptq()`. AWQ also changes norms and layers that stay in full.
        after_layer: is called with 1 after each layer.

    Raises:
        ConfigError: no windows, several towers, layers that share weights; see also `targets`.
    """
    tower = _one_tower(model)
    if not windows:
        raise ConfigError("GPTQ and AWQ need a text to calibrate on", remedy="Give windows of token ids.")
    solver = _Solver(model, method or Gptq(), len(windows))
    wanted = targets(model, plan)
    inside = {module for part in (*tower.stack.layers, model.head) for module in part.modules()}
    tied = [target for target in wanted if target.module is model.token and is_tied(model)]
    for target in wanted:
        if target.module not in inside and target not in tied:
            solver.put(target, None)
    training = model.training
    model.eval()
    held = [_entry(model, tower.stack, ids) for ids in windows]
    for number, layer in enumerate(tower.stack.layers):

        def through(window: int, number: int = number, layer: nn.Module = layer) -> Tensor:
            out: Tensor = layer(held[window].x, held[window].runs[number])
            return out

        if isinstance(solver.method, Awq):
            solver.balance(layer, wanted, through, solver.method)
        solver.solve(_within(layer, wanted), through)
        for window in range(len(held)):
            held[window].x = through(window)
        after_layer(1)

    def head(window: int) -> None:
        model.head(tower.stack.final_norm(held[window].x), held[window].tags, model.token.weight)

    solver.solve(_within(model.head, wanted), head)
    for target in tied:
        solver.put(target, solver.hessian(model.head.get_submodule("project"), weight_of(target.module), head))
    return model.train(training)


@dataclass
class _Solver:
    model: Transformer
    method: Gptq | Awq
    n_windows: int

    def balance(self, layer: nn.Module, wanted: list[Target], section: Section, method: Awq) -> None:
        """Scale the inputs of a layer's targets where something else can take it up."""
        assert isinstance(layer, Layer)
        formats = {target.module: target.format for target in wanted}
        for fold in folds(layer):
            asked = [formats.get(reader) for reader in fold.readers]
            first = next((reader for reader in fold.readers if reader in formats), None)
            if first is not None:
                fold.apply(method.scale(fold, asked, self.hessian(first, weight_of(first), section)))

    def solve(self, wanted: list[Target], section: Section) -> None:
        """Put the targets of a section into their formats, those with one input at a time."""
        for stage in self._stages(wanted, section):
            first = stage[0].module
            hessian = self.hessian(first, weight_of(first), section)
            for target in stage:
                self.put(target, hessian)

    def put(self, target: Target, hessian: Tensor | None) -> None:
        weight = weight_of(target.module)
        if hessian is None:
            stored = rounded(weight, target.format)
        else:
            stored = self.method.stored(weight, hessian, target.format)
        swap(self.model, target, stored)

    def _stages(self, wanted: list[Target], section: Section) -> list[list[Target]]:
        """Targets in the order of their first call, those that read the same tensor together; those that are never
        called are rounded here."""
        stages: list[list[Target]] = []
        waiting = {target.module: target for target in wanted}
        for window in range(self.n_windows):
            if not waiting:
                break
            inputs: list[tuple[Tensor, list[Target]]] = []

            def see(module: nn.Module, x: Tensor, inputs: list[tuple[Tensor, list[Target]]] = inputs) -> None:
                target = waiting.pop(module, None)
                if target is None:
                    return
                group = next((group for seen, group in inputs if seen is x), None)
                if group is None:
                    stages.append(group := [])
                    inputs.append((x, group))
                group.append(target)

            with _seeing(list(waiting), see):
                section(window)
        for target in waiting.values():
            self.put(target, None)
        return stages

    def hessian(self, module: nn.Module, weight: Tensor, section: Section) -> Tensor:
        """Σ XᵀX over all windows of what a module multiplies its weight [N, D] with, [D, D] in float64."""
        D = weight.shape[1]
        total = torch.zeros(D, D, dtype=torch.float64, device=weight.device)

        def see(module: nn.Module, x: Tensor) -> None:
            flat = x.detach().reshape(-1, D)
            flat = flat.to(torch.promote_types(flat.dtype, torch.float32))
            total.add_(flat.T @ flat)
            raise _EnoughError

        for window in range(self.n_windows):
            with suppress(_EnoughError), _seeing([module], see):
                section(window)
        return total


@contextmanager
def _seeing(modules: list[nn.Module], see: Callable[[nn.Module, Tensor], None]) -> Iterator[None]:
    def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
        see(module, args[0])

    handles = [module.register_forward_pre_hook(hook) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _one_tower(model: Transformer) -> Tower:
    tower, *others = model.towers.values()
    assert isinstance(tower, Tower)
    if others:
        raise ConfigError(
            "GPTQ and AWQ go through a model of one tower", value=len(model.towers), remedy="Round this one instead."
        )
    if len(tower.stack.layers) != len(tower.stack.kind_of):
        raise ConfigError(
            "GPTQ and AWQ go through layers with weights of their own",
            value=f"{len(tower.stack.kind_of)} layers by {len(tower.stack.layers)}",
            remedy="Round this one instead.",
        )
    return tower


def _within(part: nn.Module, wanted: list[Target]) -> list[Target]:
    inside = set(part.modules())
    return [target for target in wanted if target.module in inside]


def _entry(model: Transformer, stack: Stack, ids: Tensor) -> _Window:
    """What the first layer reads for a window, and what all layers are told of the pass."""
    caught: list[tuple[Tensor, Context]] = []

    def catch(module: nn.Module, args: tuple[Tensor, Context]) -> None:
        caught.append(args)
        raise _EnoughError

    handle = stack.register_forward_pre_hook(catch)
    try:
        with suppress(_EnoughError):
            model.hidden(ids.to(model.token.weight.device))
    finally:
        handle.remove()
    ((x, context),) = caught
    return _Window(x, stack.prepare(context, x), context.tags)
