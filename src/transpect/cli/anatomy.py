"""What a model is made of, counted and measured on itself: parameters by part, and the shape at every step.

The model is built and run on torch's meta device, which knows shapes and holds no numbers, so the largest preset
needs no memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from transpect.base.errors import ConfigError, ContextLengthError
from transpect.cli.watching import watched
from transpect.core import ModelConfig, StackConfig, Transformer, blocks
from transpect.core.context import NO_SOURCE
from transpect.core.embeddings import Embeddings

__all__ = ["Part", "Step", "on_meta", "parts", "shapes"]

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """A share of the parameters.

    Attributes:
        owner: ``embeddings``, a tower (``encoder``, ``decoder``) or ``head``.
        name: what it does there.
        parameters: how many numbers.
        layers: over how many layers they are spread; 1 where they stand outside of layers.
    """

    owner: str
    name: str
    parameters: int
    layers: int = 1


@dataclass(frozen=True)
class Step:
    """One intermediate tensor.

    Attributes:
        where: dotted, e.g. ``decoder.layer.self.query``; ``layer`` stands for each of the equal layers.
        what: the class of the module that made it, ``residual stream``, or nothing for what a kernel is given or makes.
        shape: its axes.
        times: how many layers have this step; 1 outside of layers.
    """

    where: str
    what: str
    shape: Shape
    times: int = 1


def on_meta(config: ModelConfig) -> Transformer:
    """The model without memory for its weights."""
    with torch.device("meta"):
        return Transformer(config, seed=None).eval()


def parts(model: Transformer) -> list[Part]:
    """Every parameter, counted once, by owner and part, in the order in which data meets them."""
    counts: dict[tuple[str, str], int] = {}
    for name, parameter in model.named_parameters():
        part = _part(name)
        counts[part] = counts.get(part, 0) + parameter.numel()
    counts.setdefault(("head", "head"), 0)
    layers = {tower: _equal_layers(stack) for tower, stack in model.config.towers.items()}
    return [
        Part(owner, part, number, layers.get(owner, 1) if part in _IN_LAYERS else 1)
        for (owner, part), number in sorted(counts.items(), key=lambda item: _order(item[0]))
    ]


def _equal_layers(stack: StackConfig) -> int:
    """How many layers share a part's parameters equally; 1 where layers differ in what they are made of."""
    if any(other.attention is not None or other.ffn is not None for other in stack.others):
        return 1
    return stack.n_layers if stack.n_unique is None else stack.n_unique


_IN_LAYERS = ("self-attention", "cross-attention", "feed-forward")
_PARTS = ("token", "projection", "segment", "positions", *_IN_LAYERS, "norms", "head")
_OWNERS = ("embeddings", "encoder", "decoder", "head")
_BRANCHES = {"self": "self-attention", "cross": "cross-attention", "ffn": "feed-forward"}
_POSITIONS = {"positions", "other_positions", "relation"}
_PROJECTIONS = {"widen", "project"}
_NORMS = {"norm", "before", "after", "after_branch", "final_norm", "query_norm", "key_norm"}


def _part(name: str) -> tuple[str, str]:
    words = name.split(".")
    if words[0] == "token":
        return "embeddings", "token"
    if words[0] == "head":
        return "head", "head"
    tower, inside = words[1], words[2:]
    if not _NORMS.isdisjoint(inside):
        return tower, "norms"
    if not _POSITIONS.isdisjoint(inside):
        return tower, "positions"
    if not _PROJECTIONS.isdisjoint(inside):
        return tower, "projection"
    if "segment" in inside:
        return tower, "segment"
    return tower, _BRANCHES[inside[inside.index("branches") + 1]]


def _order(part: tuple[str, str]) -> tuple[int, int]:
    owner, name = part
    return _OWNERS.index(owner), _PARTS.index(name)


def shapes(model: Transformer, batch: int, length: int, source_length: int) -> list[Step]:
    """Run ``model`` (from `on_meta`) on ids [B, T] and write down what passes, in the order in which it does.

    Args:
        model: its attention runs on the naive kernel, whose tensors can be watched.
        batch: B.
        length: T.
        source_length: S, of an encoder–decoder's source.

    Raises:
        ConfigError: a size below 1, or more tokens than the model has a context for.
    """
    for name, number in (("batch", batch), ("length", length), ("source-length", source_length)):
        if number < 1:
            raise ConfigError(f"--{name} must be at least 1", value=number)
        if name != "batch" and number > model.config.context_length:
            raise ContextLengthError(
                f"the model has a context of {model.config.context_length} tokens",
                value=f"--{name} {number}",
                remedy="Choose fewer, or a larger --context_length.",
            )
    recorder = _Recorder()
    hooks = list(recorder.attach(model))
    try:
        with torch.device("meta"), torch.no_grad(), watched(model):
            source = NO_SOURCE
            if len(model.config.towers) > 1:
                source = model.encode(recorder.ids("encoder", batch, source_length), tap=recorder)
            model(recorder.ids(list(model.config.towers)[-1], batch, length), source=source, tap=recorder)
    finally:
        for hook in hooks:
            hook.remove()
    return _folded(recorder.steps)


@dataclass
class _Recorder:
    """A tap, and hooks on the modules whose output is worth knowing."""

    steps: list[Step] = field(default_factory=list)
    tower: str = ""

    def ids(self, tower: str, batch: int, length: int) -> Tensor:
        """Begin a tower: make its ids [B, T] and note them."""
        self.tower = tower
        ids = torch.zeros(batch, length, dtype=torch.int64, device="meta")
        self.note(f"{tower}.ids", "", ids)
        return ids

    def see(self, name: str, value: Tensor) -> None:
        # a tap hears "3.self.query" from a kernel, "3.input" and "output" from a stack
        layer, _, rest = name.removeprefix(f"{self.tower}.").partition(".")
        branch, _, what = rest.partition(".")
        if what:
            self.note(f"{self.tower}.{layer}.{branch}.{what}", "", value)

    def note(self, where: str, what: str, value: Tensor) -> None:
        self.steps.append(Step(where, what, tuple(value.shape)))

    def attach(self, model: Transformer) -> Iterator[RemovableHandle]:
        for path, module in model.named_modules():
            if _shown(path, module):
                yield module.register_forward_hook(partial(self._leave, _where(path)))

    def _leave(self, where: str, module: nn.Module, _inputs: object, output: Tensor) -> None:
        what = "residual stream" if isinstance(module, blocks.Step) else type(module).__name__
        self.note(f"{self.tower}.token" if where == "token" else where, what, output)


def _shown(path: str, module: nn.Module) -> bool:
    if path == "head" or isinstance(module, nn.Linear | nn.Embedding | Embeddings | blocks.Step):
        return True
    return path.rpartition(".")[2] in _NORMS and not isinstance(module, nn.Identity)


def _where(path: str) -> str:
    """``towers.encoder.stack.layers.3.steps.self.branches.self.body.query`` -> ``encoder.3.self.query``."""
    path = re.sub(r"^towers\.", "", path)
    path = re.sub(r"\.stack\.(layers\.)?", ".", path)
    path = re.sub(r"\.steps\.\w+\.branches\.", ".", path)
    return path.replace(".steps.", ".").replace(".body.", ".")


def _folded(steps: list[Step]) -> list[Step]:
    """Steps of equal layers as one, which knows how many layers have it."""
    times: dict[Step, int] = {}
    for step in steps:
        name = re.sub(r"^(\w+)\.\d+\.", r"\1.layer.", step.where)
        key = replace(step, where=name)
        times[key] = times.get(key, 0) + 1 if ".layer." in name else 1
    return [replace(step, times=number) for step, number in times.items()]
