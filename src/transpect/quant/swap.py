"""Putting a model's weights into formats.

Axes: N out, D in, V vocabulary, W width of a token vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from torch import Tensor, nn

from transpect.base.errors import ConfigError
from transpect.core.attention import ClippedLinear
from transpect.core.heads import Projection
from transpect.core.model import Transformer
from transpect.core.moe import MoeModule
from transpect.core.positions import PositionModule
from transpect.quant.formats import Format, Stored
from transpect.quant.linear import QuantEmbedding, Quantised, QuantProjection, quant_linear
from transpect.quant.rounding import rounded

TABLE = "token"
HEAD = "head.project"


@dataclass(frozen=True)
class Plan:
    """Which weights take which format.

    Attributes:
        format: of every linear layer of the towers, routers of experts and positions apart; None leaves them.
        keep: other formats by pattern, the first that fits counts; None leaves a weight as it is. A pattern fits a
            module's whole dotted name, its end or one part of it (``down``, ``layers.0.*``, ``head``, ``token``), with
            ``*``. The head and the token table take part only where a pattern fits them, and are one where tied.
    """

    format: Format | None
    keep: Mapping[str, Format | None] = field(default_factory=dict)

    def of(self, name: str, otherwise: Format | None) -> Format | None:
        """The format of the module of a dotted name."""
        return next((format for pattern, format in self.keep.items() if fits(pattern, name)), otherwise)


def fits(pattern: str, name: str) -> bool:
    """Whether a pattern fits a dotted name: the whole, its end, or one of its parts."""
    return (
        fnmatchcase(name, pattern)
        or fnmatchcase(name, f"*.{pattern}")
        or any(fnmatchcase(part, pattern) for part in name.split("."))
    )


@dataclass(frozen=True)
class Target:
    """A module that takes a format.

    Attributes:
        name: its dotted name, the first of several.
        module: a linear layer, a projection to the vocabulary with a weight of its own, or the token table.
        format: which.
    """

    name: str
    module: nn.Module
    format: Format


def targets(model: Transformer, plan: Plan) -> list[Target]:
    """What a plan changes in a model, in the order of its modules.

    Raises:
        ConfigError: a pattern that fits nothing, a width that a format can't store, or a weight in a format already.
    """
    found, unused = [], dict(plan.keep)
    for name, module, default in _weights(model, plan.format):
        names = (name, HEAD) if name == TABLE and is_tied(model) else (name,)
        for pattern in [pattern for pattern in unused if any(fits(pattern, each) for each in names)]:
            del unused[pattern]
        format = next((plan.of(each, default) for each in names if plan.of(each, default) is not None), None)
        if format is None:
            continue
        if isinstance(module, Quantised | QuantProjection):
            raise ConfigError(
                "a weight can't be put into a format twice", value=name, remedy="Start from full weights."
            )
        format.check(_width(module), name)
        found.append(Target(name, module, format))
    if unused:
        raise ConfigError("no weight has a name that fits the pattern", value=", ".join(unused), remedy=_example(model))
    return found


def swap(model: Transformer, target: Target, stored: Stored) -> None:
    """Put packed weights where a target stands, in every place where it stands."""
    module = target.module
    put: nn.Module
    if isinstance(module, nn.Embedding):
        V, W = module.weight.shape
        put = QuantEmbedding(target.format, V, W, stored, dtype=module.weight.dtype, name=target.name)
    elif isinstance(module, Projection):
        assert module.weight is not None
        V, W = module.weight.shape
        put = QuantProjection(quant_linear(target.format, W, V, module.bias, stored, name=target.name))
    else:
        assert isinstance(module, nn.Linear)
        clip = module.clip if isinstance(module, ClippedLinear) else None
        N, D = module.weight.shape
        put = quant_linear(target.format, D, N, module.bias, stored, clip=clip, name=target.name)
    put.train(module.training)
    places = [name for name, each in model.named_modules(remove_duplicate=False) if each is module]
    for place in places:
        model.set_submodule(place, put)


def quantise_model(model: Transformer, plan: Plan) -> Transformer:
    """Round the weights that a plan names to the nearest points of the best grids, in place; gives the model.

    Raises:
        ConfigError: see `targets`.
    """
    for target in targets(model, plan):
        swap(model, target, rounded(weight_of(target.module), target.format))
    return model


def in_formats(model: Transformer) -> dict[str, Quantised]:
    """The modules that hold weights in formats, by the names that these weights have in the model in full."""
    return {
        f"{_in_full(name)}.weight": module
        for name, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, Quantised)
    }


def in_full(model: Transformer) -> dict[str, Tensor]:
    """The tensors that are in no format, by the names that they have in the model in full."""
    packed = {
        f"{name}.{key}"
        for name, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, Quantised)
        for key in module.stored()
    }
    return {_in_full(name): tensor for name, tensor in model.state_dict().items() if name not in packed}


def _in_full(name: str) -> str:
    """Without the module that a projection to the vocabulary holds its packed weight in."""
    return name.replace(f"{HEAD}.linear", HEAD)


def weight_of(module: nn.Module) -> Tensor:
    """[N, D] of a module that is still in full."""
    assert isinstance(module, nn.Linear | nn.Embedding | Projection) and module.weight is not None
    return module.weight


def _weights(model: Transformer, format: Format | None) -> Iterator[tuple[str, nn.Module, Format | None]]:
    apart = {
        inner
        for module in model.modules()
        if isinstance(module, PositionModule | MoeModule)
        for inner in ([module.router] if isinstance(module, MoeModule) else module.modules())
    }
    relations = {
        inner for name, module in model.named_modules() if name.endswith(".relation") for inner in module.modules()
    }
    for name, module in model.named_modules():
        if name == TABLE:
            yield name, module, None
        elif name.startswith("head."):
            own = isinstance(module, Projection) and module.weight is not None
            inside = name.endswith(".linear")
            if own or isinstance(module, nn.Linear | QuantProjection) or (isinstance(module, Quantised) and not inside):
                yield name, module, None
        elif isinstance(module, nn.Linear | Quantised) and module not in apart and module not in relations:
            yield name, module, format


def is_tied(model: Transformer) -> bool:
    """Whether the head multiplies by the token table."""
    return any(isinstance(module, Projection) and module.weight is None for module in model.head.modules())


def _width(module: nn.Module) -> int:
    return weight_of(module).shape[1]


def _example(model: Transformer) -> str:
    name = next((name for name, module in model.named_modules() if isinstance(module, nn.Linear)), TABLE)
    return f"Names look like `{name}`; a part such as `{name.rsplit('.', 1)[-1]}` will do."
