"""What a decode program has kernels for; everything else is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor, nn

from transpect.core.attention import ClippedLinear, CrossAttention, NormOfAllHeads, SelfAttention
from transpect.core.blocks import Branch, Layer, Step
from transpect.core.embeddings import Embeddings, NoSegmentEmbedding, Scaled
from transpect.core.feedforward import ACTIVATIONS, GluModule, MlpModule
from transpect.core.heads import CausalLMHead, Projection, SoftCap
from transpect.core.norms import OffsetRMSNorm
from transpect.core.positions import Relation
from transpect.core.summaries import NoSummaries
from transpect.quant import BlocksLinear, Int4Linear, Int8, Int8Linear, QuantEmbedding, QuantProjection
from transpect.runtime.numeric import ACTIVATIONS as KINDS
from transpect.runtime.weights import refused

KNOWN: set[type[nn.Module]] = {
    *(Layer, Step, Branch, SelfAttention, CrossAttention, NoSummaries, MlpModule, GluModule),
    *(nn.Linear, ClippedLinear, nn.LayerNorm, nn.RMSNorm, OffsetRMSNorm, NormOfAllHeads),
    *(Int8Linear, Int4Linear, BlocksLinear, QuantProjection),
    *(CausalLMHead, Projection, Scaled, SoftCap, nn.Identity, nn.Dropout, nn.ModuleList, nn.ModuleDict),
}
"""The modules that there are kernels for. A child of one of them may compute something else."""


def check_known(parts: Iterable[nn.Module]) -> None:
    """Refuse what a program would pass over: modules that were put in place of others, and hooks.

    Raises:
        ConfigError: names the first.
    """
    for part in parts:
        # of positions a program has the numbers that the module itself gives
        skipped = {id(inner) for own in part.modules() if isinstance(own, Relation) for inner in own.modules()}
        for name, module in part.named_modules():
            if id(module) in skipped:
                continue
            if type(module) not in KNOWN:
                raise refused(f"the {type(module).__name__} in {name or 'the end of the stack'}")
            if module._forward_hooks or module._forward_pre_hooks:
                raise refused(f"the hook of the {type(module).__name__} in {name or 'the end of the stack'}")


def activation_of(act: Callable[[Tensor], Tensor]) -> int:
    """The number of an activation among `numeric.ACTIVATIONS`.

    Raises:
        ConfigError: there is none.
    """
    name = next((name for name, known in ACTIVATIONS.items() if known is act), None)
    if name is None:
        raise refused(f"the activation {act}")
    return KINDS.index(name)


def only_tokens(token: nn.Module, embeddings: Embeddings) -> bool:
    """Whether the way in is the tokens' vectors, with a factor and positions, and nothing else."""
    if type(token) is QuantEmbedding:
        known = token.format == Int8()
    else:
        known = type(token) is nn.Embedding
    plain = [embeddings.widen, embeddings.norm, embeddings.project]
    return (
        known
        and all(type(part) is nn.Identity for part in plain)
        and type(embeddings.scale) in (nn.Identity, Scaled)
        and type(embeddings.segment) is NoSegmentEmbedding
    )
