"""What can be built, checked once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from transpect.base.checks import at_most, within
from transpect.base.codec import apply_overrides, did_you_mean, from_data, to_data
from transpect.base.errors import ConfigError
from transpect.core.attention import AttentionConfig
from transpect.core.embeddings import EmbeddingConfig
from transpect.core.heads import CausalLM, Head
from transpect.core.initialization import Initialization, NormalInit
from transpect.core.kernels import Exact, Kernel
from transpect.core.stack_config import StackConfig

MOST_NUMBERS = 2**40
"""The most that one tensor may hold: 4 TiB in float32."""


@dataclass(frozen=True)
class ModelConfig:
    """A chain of towers over one vocabulary: an encoder, a decoder, or both.

    Attributes:
        vocab_size: V.
        d_model: D.
        context_length: the longest sequence that the model is meant for; learned positions have a row for each.
        embedding: how ids become vectors, in every tower.
        encoder: the tower that reads a source, or the only tower of an encoder.
        decoder: the tower that writes.
        head: what stands at the end of the last tower.
        init: how weights start.
        family: what others call this kind of model (``model_type``), where it came from somebody's checkpoint; it is
            saved as that again, and nothing is computed by it.
    """

    vocab_size: int
    d_model: int
    context_length: int
    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    encoder: StackConfig | None = None
    decoder: StackConfig | None = None
    head: Head = field(default_factory=CausalLM)
    init: Initialization = field(default_factory=NormalInit)
    family: str | None = None

    def __post_init__(self) -> None:
        for name in ("vocab_size", "d_model", "context_length"):
            within(name, getattr(self, name))
        if not self.towers:
            raise ConfigError("a model needs an encoder, a decoder, or both")
        for name, stack in self.towers.items():
            for kind in stack.kinds:
                kind.attention.width(self.d_model)
            if stack.cross is not None:
                stack.cross.width(self.d_model)
            if stack.first_is_global and not stack.asks_for("is_global"):
                raise ConfigError(
                    "first_is_global needs a rule or projections that know global tokens",
                    value=f"{name}.visibility={stack.visibility.kind}",
                    remedy="Add global_tokens to its visibility.",
                )
            if stack.crosses and (name, len(self.towers)) != ("decoder", 2):
                raise ConfigError(
                    "only a decoder behind an encoder can cross-attend",
                    value=f"{name}.steps={[list(step) for step in stack.steps]}",
                    remedy='Remove ("cross",) from steps, or add an encoder.',
                )
        self._check_tensors()

    def _check_tensors(self) -> None:
        """No tensor may hold absurdly many numbers, where each of its sizes is allowed by itself."""

        def check(what: str, numbers: int) -> None:
            at_most(f"the numbers of a tensor, {what},", numbers, MOST_NUMBERS)

        d, tokens, inner = self.d_model, self.embedding.width(self.d_model), self.embedding.inner_width(self.d_model)
        check("vocab_size × width of a token", self.vocab_size * tokens)
        check("width of a token × d_model", tokens * d)
        for stack in self.towers.values():
            if stack.positions.embeds:
                check("context_length × width", self.context_length * inner)
            for kind in stack.kinds:
                for attention in (kind.attention, kind.cross or kind.attention):
                    check("n_heads × head_dim × d_model", attention.n_heads * attention.width(d) * d)
                    check("a kernel's own", attention.kernel.numbers(attention.sizes(d, self.context_length)))
                check("d_ff × d_model", kind.ffn.width(d) * d)

    @property
    def towers(self) -> dict[str, StackConfig]:
        """The towers in the order in which they run."""
        both = {"encoder": self.encoder, "decoder": self.decoder}
        return {name: stack for name, stack in both.items() if stack is not None}

    @property
    def last(self) -> StackConfig:
        """The tower that the head stands on."""
        return list(self.towers.values())[-1]

    @property
    def kind(self) -> str:
        """``encoder``, ``decoder`` or ``encoder-decoder``."""
        return "-".join(self.towers)

    def with_kernel(self, kernel: Kernel | str | Mapping[str, Any]) -> ModelConfig:
        """A copy whose attention is computed by another kernel, in every layer.

        Args:
            kernel: a kernel, its name, or its name as ``kind`` and its options.

        Raises:
            ConfigError: no kernel, or one that can't do what a layer asks for.
        """
        chosen = from_data(Kernel, kernel, ("kernel",))
        return self._map_attention(lambda attention: replace(attention, kernel=chosen))

    @property
    def has_softmax(self) -> bool:
        """Whether any of its attention is softmax attention, whichever kernel computes it."""
        kinds = [kind for stack in self.towers.values() for kind in stack.kinds]
        attentions = [kind.attention for kind in kinds] + [
            kind.cross or kind.attention for kind in kinds if kind.crosses
        ]
        return any(isinstance(attention.kernel, Exact) for attention in attentions)

    def computed_by(self, kernel: Kernel | str | Mapping[str, Any]) -> ModelConfig:
        """A copy of the same function: softmax attention is computed by another kernel, wherever it is; layers whose
        kernel is another function stay as they are.

        Args:
            kernel: a kernel, its name, or its name as ``kind`` and its options.

        Raises:
            ConfigError: a kernel that can't compute it, or is no softmax attention.
        """
        chosen = from_data(Kernel, kernel, ("kernel",))
        if not isinstance(chosen, Exact):
            raise ConfigError(
                "weights are of the function that they were trained for, and this kernel is another one",
                value=chosen.kind,
                remedy="Choose it in the config of a new model.",
            )

        return self._map_attention(
            lambda attention: replace(attention, kernel=chosen) if isinstance(attention.kernel, Exact) else attention
        )

    def _map_attention(self, change: Callable[[AttentionConfig], AttentionConfig]) -> ModelConfig:
        """A copy with the attention of every layer, self and cross, changed."""

        def changed(attention: AttentionConfig | None) -> AttentionConfig | None:
            return None if attention is None else change(attention)

        stacks: dict[str, Any] = {
            name: replace(
                stack,
                attention=change(stack.attention),
                cross=changed(stack.cross),
                others=tuple(replace(other, attention=changed(other.attention)) for other in stack.others),
            )
            for name, stack in self.towers.items()
        }
        return replace(self, **stacks)

    def map_stacks(self, **changes: Any) -> ModelConfig:
        """A copy with fields of every tower replaced."""
        changed: dict[str, Any] = {name: replace(stack, **changes) for name, stack in self.towers.items()}
        return replace(self, **changed)


# Short names for what a person changes most; "*" stands for every tower.
SHORT = {
    "n_layers": "*.n_layers",
    "n_heads": "*.attention.n_heads",
    "n_kv_heads": "*.attention.n_kv_heads",
    "head_dim": "*.attention.head_dim",
    "attention": "*.attention",
    "kernel": "*.attention.kernel",
    "d_ff": "*.ffn.d_ff",
    "ffn": "*.ffn",
    "positions": "*.positions",
    "norm": "*.norm",
    "placement": "*.placement",
    "visibility": "*.visibility",
    "steps": "*.steps",
    "dropout": "*.dropout",
    "others": "*.others",
    "n_unique": "*.n_unique",
}


def expand(overrides: Iterable[tuple[str, Any]], towers: Iterable[str]) -> list[tuple[str, Any]]:
    """Write short names out: ``("n_heads", 4)`` becomes ``("decoder.attention.n_heads", 4)`` for each tower."""
    names = list(towers)
    result: list[tuple[str, Any]] = []
    for key, value in overrides:
        first, _, rest = key.partition(".")
        pattern = SHORT.get(first)
        if pattern is None:
            result.append((key, value))
            continue
        full = f"{pattern}.{rest}" if rest else pattern
        result += [(full.replace("*", name), value) for name in names]
    return result


def override(config: ModelConfig, overrides: Iterable[tuple[str, Any]]) -> ModelConfig:
    """A copy with dotted keys (short names allowed) changed and everything checked again.

    Raises:
        ConfigError: an unknown key, or a combination that can't be built.
    """
    expanded = expand(overrides, config.towers)
    known = {f.name for f in fields(ModelConfig)}
    for key, _ in expanded:
        if key.partition(".")[0] not in known:
            names = sorted(known | SHORT.keys())
            remedy = f"{did_you_mean(key, names)} Known keys: {', '.join(names)}.".strip()
            raise ConfigError(f"the model has no key {key!r}", remedy=remedy)
    return from_data(ModelConfig, apply_overrides(to_data(config), expanded))
