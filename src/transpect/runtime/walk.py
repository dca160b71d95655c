"""How the steps of a layer become calls, whatever the calls are and however a pass holds its tokens."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from torch import nn

from transpect.core.blocks import Branch, Stack, Step

Array = Any


class Walk:
    """Goes through the modules of a stack; a child says what buffers and calls there are.

    Attributes:
        x: the residual stream.

    Args:
        d_model: D.
    """

    def __init__(self, d_model: int) -> None:
        self._pool: dict[int, list[Array]] = defaultdict(list)
        self._taken: Counter[int] = Counter()
        self.x = self._buffer(d_model)
        self._shared, self._normed, self._branch, self._sum = (self._buffer(d_model) for _ in range(4))

    def _made(self, width: int) -> Array:
        """A buffer for vectors of so many numbers."""
        raise AssertionError("abstract")

    def _norm(self, norm: nn.Module, x: Array, out: Array | None = None, times: int = 1) -> Array:
        """out ← norm(x), in place without ``out``; what holds the result: x itself where there is no norm."""
        raise AssertionError("abstract")

    def _body(self, body: nn.Module, x: Array, out: Array, *, more: bool) -> None:
        """out ← body(x), or out + that."""
        raise AssertionError("abstract")

    def _plus(self, x: Array, out: Array) -> None:
        """out ← out + x."""
        raise AssertionError("abstract")

    def _buffer(self, width: int) -> Array:
        own, which = self._pool[width], self._taken[width]
        self._taken[width] += 1
        if which == len(own):
            own.append(self._made(width))
        return own[which]

    def _go_through(self, stack: Stack, layer: int) -> None:
        """The steps of a layer, in buffers that the next one uses again."""
        of_all_layers = Counter(self._taken)
        layers: Any = stack.layers
        for step in layers[stack.unique[layer]].steps.values():
            self._step(step)
        self._taken = of_all_layers

    def _step(self, step: Step) -> None:
        """after(x + Σ branch(before(x))) of x ← enter(x)."""
        self._norm(step.enter, self.x)
        shared = self._norm(step.before, self.x, self._shared)
        branches: list[Any] = list(step.branches.values())
        if len(branches) == 1:
            self._branch_of(branches[0], shared, self.x, more=True)
        else:  # x must stay until every branch has read it
            total, x = self._sum, self.x
            for place, branch in enumerate(branches):
                self._branch_of(branch, shared, total, more=place > 0)
            self._plus(total, x)
        self._norm(step.after, self.x)

    def _branch_of(self, branch: Branch, x: Array, out: Array, *, more: bool) -> None:
        """out ← after_branch(body(before(x))), or out + that."""
        before = self._norm(branch.before, x, self._normed)
        if isinstance(branch.after_branch, nn.Identity):
            self._body(branch.body, before, out, more=more)
            return
        result = self._branch
        self._body(branch.body, before, result, more=False)
        if more:
            self._norm(branch.after_branch, result)
            self._plus(result, out)
        else:
            self._norm(branch.after_branch, result, out)
