"""One way to compute attention at one length, of ours or of torch with a mask: its time, and the memory of a call.

One sequence, 4 heads of 64, float32. A process measures one way: memory is the highest resident size during its first
call above that before it, when queries, keys, values and the gradient of the result are there, so what the call itself
takes, its own results included. Time is the median of the calls after it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

HEADS, HEAD_DIM, WINDOW = 4, 64, 256


def _ours(kernel: str, rule: str, **options: Any) -> Callable[[int], Callable[..., Any]]:
    """A kernel of ours under a rule."""

    def make(length: int) -> Callable[..., Any]:
        import torch

        from transpect.base.codec import from_data
        from transpect.core.kernels import Kernel, Scoring, Sizes
        from transpect.core.kernels.linformer import LinformerWay
        from transpect.core.kernels.performer import PerformerWay
        from transpect.core.view import View

        way = from_data(Kernel, {"kind": kernel, **options}).build(Sizes(HEADS, HEADS, HEAD_DIM, length))
        if isinstance(way, PerformerWay):
            way.draw(layer=0, step=0)
        if isinstance(way, LinformerWay):
            with torch.no_grad():
                way.draw(torch.Generator().manual_seed(0))
        tags = _tags(length, rule)

        def call(query: Any, key: Any, value: Any) -> Any:
            return way.attend(query, key, value, View(rule_of(rule), tags, tags), Scoring(HEAD_DIM**-0.5))

        return call

    return make


def _torch(rule: str) -> Callable[[int], Callable[..., Any]]:
    """torch's attention with the rule written out as a mask, as a program without a plan of blocks would do it."""

    def make(length: int) -> Callable[..., Any]:
        from torch.nn.functional import scaled_dot_product_attention

        tags = _tags(length, rule)

        def call(query: Any, key: Any, value: Any) -> Any:
            mask = rule_of(rule).mask(tags, tags)[:, None]
            return scaled_dot_product_attention(query, key, value, mask)

        return call

    return make


def _learned_bias(way: str) -> Callable[[int], Callable[..., Any]]:
    """T5's learned bias with its gradient: our kernel `sdpa`, or torch's attention with the bias as a whole."""

    def make(length: int) -> Callable[..., Any]:
        import torch
        from torch.nn.functional import scaled_dot_product_attention

        from transpect.core.kernels import Scoring, Sdpa
        from transpect.core.positions import Dims, T5Buckets
        from transpect.core.tags import Tags
        from transpect.core.view import View
        from transpect.core.visibility import Full

        dims = Dims(HEADS * HEAD_DIM, HEADS * HEAD_DIM, HEADS, HEAD_DIM, length, looks_ahead=True)
        positions, tags = T5Buckets().build(dims), Tags.dense(1, length)

        def call(query: Any, key: Any, value: Any) -> Any:
            bias = positions.geometry(tags, tags, tags, torch.float32).bias
            assert bias is not None
            if way == "torch":
                return scaled_dot_product_attention(query, key, value, bias.whole, scale=1.0)
            return Sdpa().attend(query, key, value, View(Full(), tags, tags), Scoring(1.0, bias=bias))

        return call

    return make


WAYS: dict[str, Callable[[int], Callable[..., Any]]] = {
    "window: block_sparse": _ours("block_sparse", "window"),
    "window: torch, mask": _torch("window"),
    "longformer: block_sparse": _ours("block_sparse", "longformer"),
    "longformer: torch, mask": _torch("longformer"),
    "bigbird: block_sparse": _ours("block_sparse", "bigbird", block=64),
    "bigbird: torch, mask": _torch("bigbird"),
    "causal: naive": _ours("naive", "causal"),
    "causal: sdpa": _ours("sdpa", "causal"),
    "causal: flash": _ours("flash", "causal"),
    "causal: flash in tiles": _ours("flash", "causal", fused=False),
    "causal: performer": _ours("performer", "causal"),
    "causal: linear": _ours("linear", "causal"),
    "full: linformer": _ours("linformer", "full"),
    "full: performer": _ours("performer", "full"),
    "learned bias: sdpa": _learned_bias("ours"),
    "learned bias: torch": _learned_bias("torch"),
}


def rule_of(name: str) -> Any:
    """Who may see whom, by its name here."""
    from transpect.core import Blocks, Causal, EdgeBlocks, Full, GlobalTokens, RandomBlocks, Window

    return {
        "full": Full(),
        "causal": Causal(),
        "window": Window(WINDOW),
        "longformer": Window(WINDOW, both_ways=True) | GlobalTokens(),
        "bigbird": Blocks(64) | EdgeBlocks(64) | RandomBlocks(64, n=3, seed=0),
    }[name]


def _tags(length: int, rule: str) -> Any:
    import torch

    from transpect.core.tags import Tags

    dense = Tags.dense(1, length)
    if rule != "longformer":
        return dense
    return Tags.of(dense.position.clone(), is_global=torch.arange(length)[None] < 16)


def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """``way`` of `WAYS`, ``length`` T = S, ``backward`` too or forward alone, ``threads``."""
    import torch

    from transpect.base.devices import set_threads

    set_threads(options["threads"])
    generator = torch.Generator().manual_seed(0)
    way, backward = WAYS[options["way"]], bool(options["backward"])

    def inputs(length: int) -> list[Any]:
        shape = (1, HEADS, length, HEAD_DIM)
        return [torch.randn(shape, generator=generator).requires_grad_(backward) for _ in range(3)]

    def once(call: Callable[..., Any], tensors: list[Any], upward: Any) -> None:
        with torch.set_grad_enabled(backward):
            out = call(*tensors)
        if backward:
            torch.autograd.grad(out, tensors, upward)

    call = way(options["length"])
    small = inputs(256)
    once(way(256), small, small[0].detach())  # what libraries load and keep on their first call

    def run(asked: dict[str, Any]) -> dict[str, Any]:
        tensors = inputs(options["length"])
        upward = torch.randn(tensors[0].shape, generator=generator)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the highest size so far is forgotten
        before = _memory("VmRSS")
        once(call, tensors, upward)
        memory = _memory("VmHWM") - before
        seconds = []
        for _ in range(asked["calls"]):
            start = perf_counter()
            once(call, tensors, upward)
            seconds.append(perf_counter() - start)
        return {"seconds": statistics.median(seconds), "memory": memory}

    return {"versions": {"torch": torch.__version__}}, run


def _memory(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024
