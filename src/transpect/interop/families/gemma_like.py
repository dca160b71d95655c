"""What the three Gemmas share: scaled embeddings, norms stored as offsets from 1, a gelu gate, tied heads."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from transpect.base.checks import LARGEST
from transpect.base.codec import Data
from transpect.base.errors import CheckpointError
from transpect.core import BlockSparse, EmbeddingConfig, Glu, RMSNorm, override
from transpect.interop.families import llama_like
from transpect.interop.options import Entry, Options, Override, at

TEMPLATE = override(
    llama_like.TEMPLATE,
    [
        ("embedding", EmbeddingConfig(scaled=True)),
        ("decoder.norm", RMSNorm(unit_offset=True)),
        ("decoder.ffn", Glu(act="gelu_tanh")),
    ],
)
DEFAULTS = {"vocab_size": 256000, "max_position_embeddings": 8192, "head_dim": 256, "tie_word_embeddings": True}


@dataclass(frozen=True)
class QueryScale(Entry):
    """``query_pre_attn_scalar`` is what our scale is 1/√ of; where it is head_dim, ours is None."""

    default: int = 256

    def defaults(self) -> Mapping[str, Any]:
        return {"query_pre_attn_scalar": self.default}

    def read(self, options: Options) -> Iterable[Override]:
        scalar = options["query_pre_attn_scalar"]
        if not isinstance(scalar, int | float) or isinstance(scalar, bool) or not 0 < scalar < LARGEST:
            raise CheckpointError("query_pre_attn_scalar must be a positive number below 2³¹", value=scalar)
        yield "decoder.attention.scale", None if scalar == options["head_dim"] else scalar**-0.5

    def write(self, ours: Data) -> Mapping[str, Any]:
        scale = at(ours, "decoder.attention.scale")
        scalar = at(ours, "decoder.attention.head_dim") if scale is None else scale**-2
        whole = round(scalar)
        return {"query_pre_attn_scalar": whole if whole > 0 and whole**-0.5 == scalar**-0.5 else scalar}


@dataclass(frozen=True)
class ScoreCap(Entry):
    """``attn_logit_softcapping``; scores that are capped need a kernel that can do so."""

    default: float | None = 50.0

    def defaults(self) -> Mapping[str, Any]:
        return {"attn_logit_softcapping": self.default}

    def read(self, options: Options) -> Iterable[Override]:
        cap = options["attn_logit_softcapping"]
        yield "decoder.attention.soft_cap", cap
        if cap is not None:
            yield "decoder.attention.kernel", BlockSparse()

    def write(self, ours: Data) -> Mapping[str, Any]:
        return {"attn_logit_softcapping": at(ours, "decoder.attention.soft_cap")}
