"""Loops of our own in training beside torch's operations, on one thread: activations, a loss, causal attention.

    python benchmarks/loops.py

Times are of the thread, each the shortest of some turns, which the two sides take by and by; they still grow where
other processes share the core.
"""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time

import torch
from torch import Tensor
from torch.nn import functional

from transpect.base.devices import set_threads
from transpect.core import Tags
from transpect.core.feedforward import ACTIVATIONS
from transpect.core.kernels import Scoring, Sdpa
from transpect.core.view import View
from transpect.core.visibility import Causal
from transpect.train.attending import attending
from transpect.train.cross_entropy import label_loss
from transpect.train.pointwise import ByAutograd, gated, pointwise

TURNS = 9
SHAPES = ((8, 256, 6, 64), (2, 1024, 6, 64), (16, 128, 4, 32))
"""Rows, tokens, heads and their width."""


def main() -> None:
    """Measure and print."""
    set_threads(1)
    activation("gelu_tanh", 1)
    activation("silu", 2)
    logits, labels = torch.randn(256, 8192), torch.randint(8192, (256,))
    slope = torch.empty_like(logits)
    sides = [lambda: by_torch(logits, labels), lambda: label_loss(logits, labels, slope=slope)]
    tell("loss and slope of a logit", 1e9 / logits.numel(), "ns", sides)
    for shape in SHAPES:
        attention(*shape)


def activation(act: str, inputs: int) -> None:
    """Of one number, or of a gate and what passes it."""
    function = ACTIVATIONS[act]
    plain = ByAutograd(function if inputs == 1 else lambda gate, up: function(gate) * up)
    ours = pointwise(function) if inputs == 1 else gated(function)
    given, by = list(torch.randn(inputs, 2**20).unbind()), torch.randn(2**20)
    out = [torch.empty_like(own) for own in given]
    tell(act, 1e9 / 2**20, "ns", [lambda: plain.value(given), lambda: ours.value(given)])
    pulls = [lambda: plain.pull(given, by.clone(), out), lambda: ours.pull(given, by.clone(), out)]
    tell(f"{act} and slopes", 1e9 / 2**20, "ns", pulls)


def attention(rows: int, length: int, heads: int, width: int) -> None:
    """Forward and backward."""
    leaves = [torch.randn(rows, length, heads, width).transpose(1, 2).requires_grad_() for _ in range(3)]
    tags, by = Tags.dense(rows, length, device="cpu"), torch.randn(rows, length, heads, width).transpose(1, 2)
    view, scoring = View(Causal(), tags, tags), Scoring(width**-0.5)
    passes = [lambda own=own: own.attend(*leaves, view, scoring) for own in (Sdpa(), attending(Sdpa()))]
    outs = [attend() for attend in passes]
    back = [lambda out=out: torch.autograd.grad(out, leaves, by, retain_graph=True) for out in outs]
    name = f"attention of {rows} × {length} tokens, {heads} heads of {width}"
    tell(name, 1e3, "ms", passes)
    tell(f"{name}, backward", 1e3, "ms", back)


def by_torch(logits: Tensor, labels: Tensor) -> Tensor:
    """The gradient of a summed loss by the logits."""
    leaf = logits.detach().requires_grad_()
    (slope,) = torch.autograd.grad(functional.cross_entropy(leaf, labels, reduction="sum"), leaf)
    return slope


def tell(name: str, factor: float, unit: str, sides: list[Callable[[], object]]) -> None:
    """Print what torch takes, and we."""
    best = [float("inf")] * len(sides)
    for turn in range(TURNS + 1):
        for place, side in enumerate(sides):
            begun = thread_time()
            side()
            if turn:
                best[place] = min(best[place], thread_time() - begun)
    torchs, ours = (factor * own for own in best)
    print(f"{name}: torch {torchs:.2f} {unit}, ours {ours:.2f} {unit}, {torchs / ours:.2f} times")


if __name__ == "__main__":
    main()
