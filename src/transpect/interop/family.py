"""A family: one kind of config.json and its tensors, both ways."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from transpect.base.codec import Data, apply_overrides, from_data, to_data
from transpect.base.errors import CheckpointError, TranspectError
from transpect.core import All, AttentionConfig, Full, Head, Kernel, ModelConfig, SameSegment, StackConfig, Visibility
from transpect.core.kernels import Exact
from transpect.interop.blank import shapes
from transpect.interop.options import COMMON_ALLOWED, COMMON_VOID, Allowed, Entry, Options, is_one_of
from transpect.interop.tensors import Link, Shapes, Table, link

__all__ = ["Family", "canonical"]


@dataclass(frozen=True)
class Family:
    """What Hugging Face calls a ``model_type``, as a table.

    Attributes:
        model_type: its name in config.json.
        template: a config of the family, of any size; entries change it.
        heads: the head of each architecture; the first is assumed where config.json names none.
        entries: the options of config.json.
        table: the tensors of a model of this family.
        allowed: options of which only some values can be built.
        void: options that say nothing about what the model computes.
        bare: architectures whose tensors go without the table's prefix.
        synonyms: other names of options, and the names in `entries`.
        flat: makes one mapping of a config.json whose options stand in parts, as those of a model of text and images.
        unnamed: its configs were published before there was a ``model_type``, so one without may be of this family.
        opens_there: False for a config that we can build and `transformers` refuses.
    """

    model_type: str
    template: ModelConfig
    heads: Mapping[str, Head]
    entries: tuple[Entry, ...]
    table: Callable[[ModelConfig], Table]
    allowed: Allowed = field(default_factory=Allowed)
    void: frozenset[str] = frozenset()
    bare: frozenset[str] = frozenset()
    synonyms: Mapping[str, str] = field(default_factory=dict)
    flat: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda data: data
    unnamed: bool = False
    opens_there: Callable[[ModelConfig], bool] = lambda config: True

    def read(self, data: Mapping[str, Any], tensors: Callable[[], Collection[str]] = tuple) -> ModelConfig:
        """Our config for a config.json.

        Args:
            data: what it says.
            tensors: gives the names in the checkpoint; called only where the config leaves something open.

        Raises:
            CheckpointError: an option that is unknown or can't be built.
            ConfigError: values that contradict each other.
        """
        head = self.heads[self.architecture(data)]
        data = self._renamed(self.flat(data))
        defaults = {name: value for entry in self.entries for name, value in entry.defaults().items()}
        allowed = Allowed({**COMMON_ALLOWED.values, **self.allowed.values})
        unknown = data.keys() - defaults.keys() - allowed.values.keys() - self.void - COMMON_VOID
        if unknown:
            raise CheckpointError(
                f"the family {self.model_type} does not know these options, which might change what is computed",
                value=", ".join(f"{name}={data[name]!r}" for name in sorted(unknown)),
                remedy="Remove them from config.json if they are void.",
            )
        allowed.check(data)
        options = Options(data, defaults, head.kind, tensors)
        overrides = [override for entry in self.entries for override in entry.read(options)]
        return from_data(
            ModelConfig, apply_overrides(to_data(replace(self.template, head=head, family=self.model_type)), overrides)
        )

    def write(self, config: ModelConfig) -> Data | None:
        """A config.json that `read` turns into an equal config (see `canonical`), or None where there is none."""
        ours, wanted = _resolved(config), canonical(config)
        for architecture, head in self.heads.items():
            if type(head) is not type(config.head) or not self.opens_there(config):
                continue
            try:
                data: Data = {"model_type": self.model_type, "architectures": [architecture]}
                data |= {name: values[0] for name, values in self.allowed.values.items()}
                for entry in self.entries:
                    data |= entry.write(ours)
                back = self.read(data, lambda: self.names(config, bare=False))
            except TranspectError:  # the family has no word for something in this config
                continue
            if canonical(back) == wanted:
                return data
        return None

    def architecture(self, data: Mapping[str, Any]) -> str:
        """Which of `heads` a config.json means.

        Raises:
            CheckpointError: none of them.
        """
        named = data.get("architectures") or [next(iter(self.heads))]
        if not isinstance(named, list) or not is_one_of(named[0], self.heads):
            raise CheckpointError(
                f"the architecture of the family {self.model_type} must be one of {', '.join(self.heads)}", value=named
            )
        return str(named[0])

    def _renamed(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """The same options without synonyms."""
        renamed = {name: value for name, value in data.items() if name not in self.synonyms}
        for other, name in self.synonyms.items():
            if other in data and renamed.setdefault(name, data[other]) != data[other]:
                raise CheckpointError(
                    f"{name} and {other} mean the same option, and differ", value=[renamed[name], data[other]]
                )
        return renamed

    def links(self, config: ModelConfig, ours: Shapes, *, bare: bool) -> list[Link]:
        """Their names for our tensors of these shapes."""
        return link(self.table(config).rows(bare=bare), ours)

    def names(self, config: ModelConfig, *, bare: bool) -> list[str]:
        """The names in a checkpoint of this config."""
        return [item.theirs for item in self.links(config, shapes(config), bare=bare)]


def canonical(config: ModelConfig) -> Data:
    """What two configs share if their models compute the same from the same weights: all but initialisation, dropout
    and which kernel computes softmax attention, with sizes spelled out layer by layer, and without the rule that keeps
    packed documents apart, which is void for a single one."""
    data: Data = {name: value for name, value in _resolved(config).items() if name not in ("init", "family")}
    for name, stack in config.towers.items():
        tower = data[name]
        kinds = [{key: kind[key] for key in PER_LAYER} for kind in (tower, *tower.pop("others"))]
        for key in PER_LAYER:
            del tower[key]
        tower["layers"] = [kinds[kind] for kind in stack.kind_of]
    computing: Data = _computing(data)
    return computing


PER_LAYER = ("attention", "ffn", "positions", "visibility")


def _computing(node: Any) -> Any:
    if isinstance(node, dict):
        void = {"dropout", *(["kernel"] if "kernel" in node and _exact(node["kernel"]) else [])}
        return {key: _computing(value) for key, value in node.items() if key not in void}
    return [_computing(item) for item in node] if isinstance(node, list) else node


def _exact(kernel: Data) -> bool:
    return issubclass(Kernel.kinds()[kernel["kind"]], Exact)


def _resolved(config: ModelConfig) -> Data:
    """As data, with every default that depends on another option spelled out and packed documents left out."""
    data: Data = to_data(config)
    for name, stack in config.towers.items():
        first, *others = (_layer(kind, config.d_model) for kind in stack.kinds)
        data[name] |= first
        data[name]["others"] = [
            {"at": list(other.at), **kind} for other, kind in zip(stack.others, others, strict=True)
        ]
        if stack.crosses:
            data[name]["cross"] = _attention(stack.cross or stack.attention, config.d_model)
        data[name]["final_norm"] = stack.ends_with_norm
        data[name]["n_unique"] = stack.n_layers if stack.n_unique is None else stack.n_unique
    return data


def _layer(kind: StackConfig, d_model: int) -> Data:
    return {
        "attention": _attention(kind.attention, d_model),
        "ffn": to_data(kind.ffn.resolved(d_model)),
        "positions": to_data(kind.positions),
        "visibility": to_data(_of_one_document(kind.visibility)),
    }


def _attention(config: AttentionConfig, d_model: int) -> Data:
    data: Data = to_data(replace(config, n_kv_heads=config.kv_heads, head_dim=config.width(d_model)))
    return data


def _of_one_document(rule: Visibility) -> Visibility:
    rules = [_of_one_document(part) for part in rule.rules] if isinstance(rule, All) else [rule]
    flat = [part for each in rules for part in (each.rules if isinstance(each, All) else (each,))]
    left = tuple(part for part in flat if part not in (SameSegment(), Full()))
    return All(left) if len(left) > 1 else (*left, Full())[0]
