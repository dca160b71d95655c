"""Threads that read pieces of a micro-batch side by side on a CPU, each with a model over the same weights.

An operation that all threads share is over when the last of them is, and an update has some thousands of operations. A
thread that reads rows of its own waits for nobody until all are read: on two cores an update of a small GPT takes a
tenth less time. Each reader but the first makes a gradient of its own, and these are added up in the end, so an update
gives the same bits every time: which reader has which piece is fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from transpect.core.attention import Attention
from transpect.core.model import Transformer
from transpect.data.batch import Batch
from transpect.train.products import onto_gradients

MOST = 2
"""Readers. Of more threads each has several, so that there are not as many gradients as cores."""
LARGEST = 2**26
"""Weights of a model that may have another gradient. Products of larger ones keep all threads busy by themselves."""

Mean = Callable[[Transformer, Batch], Tensor]


class Readers:
    """Those who read the pieces of an update.

    Args:
        model: what is trained; its parameters are given the gradient.
        count: how many read side by side.
    """

    def __init__(self, model: Transformer, count: int = 1) -> None:
        self.count = count
        self._models = [model, *(over_the_same_weights(model) for _ in range(count - 1))]

    def accumulate(self, batches: Sequence[Batch], mean: Mean, factor: float) -> Tensor:
        """Add the gradient of an update to the weights' own.

        Args:
            batches: the pieces.
            mean: the loss of one by a model.
            factor: of the gradient.

        Returns:
            the sum of the losses, without a graph.
        """
        losses = [torch.zeros(())] * len(batches)

        def read(reader: int) -> None:
            with onto_gradients():
                for number in range(reader, len(batches), self.count):
                    loss = mean(self._models[reader], batches[number])
                    torch.autograd.backward(loss * factor)
                    losses[number] = loss.detach()

        own, *others = [list(model.parameters()) for model in self._models]
        for weights in others:
            for weight, mine in zip(own, weights, strict=True):
                mine.data = weight.data  # it may have been exchanged for another
        with shared_threads(self.count):
            started = [self._pool.submit(read, reader) for reader in range(1, self.count)]
            try:
                read(0)
            finally:
                for other in started:
                    other.result()
        for weights in others:
            for weight, mine in zip(own, weights, strict=True):
                if mine.grad is not None:
                    weight.grad = mine.grad if weight.grad is None else weight.grad.add_(mine.grad)
                    mine.grad = None
        return torch.stack(losses).sum()

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.count - 1, "reader")


def readers_of(model: Transformer, *, compiled: bool = False) -> Readers:
    """As many as serve a model: on a CPU `how_many`, elsewhere one."""
    return Readers(model, how_many(model, compiled=compiled) if model.device.type == "cpu" else 1)


def how_many(model: Transformer, *, compiled: bool = False) -> int:
    """Readers that serve a model on a CPU: one where it draws numbers (all threads draw them from one generator, and in
    which order would be chance), is ``compiled``, or has more than `LARGEST` weights to train."""
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    alone = compiled or trained > LARGEST or any(map(_draws, model.modules()))
    return 1 if alone else min(MOST, torch.get_num_threads())


def over_the_same_weights(model: Transformer) -> Transformer:
    """A model with parameters of its own, whose numbers are those of ``model``."""
    known: dict[int, object] = {
        id(weight): nn.Parameter(weight.data, requires_grad=weight.requires_grad) for weight in model.parameters()
    }
    known |= {id(buffer): buffer for buffer in model.buffers()}
    return deepcopy(model, known)


def _draws(module: nn.Module) -> bool:
    return bool(module.p if isinstance(module, _DropoutNd) else isinstance(module, Attention) and module.dropout)


@contextmanager
def shared_threads(count: int) -> Iterator[None]:
    """Let each of so many readers compute on its share of torch's threads."""
    threads = torch.get_num_threads()
    if count == 1:
        yield
        return
    torch.set_num_threads(max(1, threads // count))
    try:
        yield
    finally:
        torch.set_num_threads(threads)
