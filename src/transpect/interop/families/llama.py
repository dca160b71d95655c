"""Llama (Touvron et al. 2023): rotary positions, RMSNorm before the branches, a gated feed-forward, grouped heads."""

from transpect.interop.families import llama_like
from transpect.interop.family import Family
from transpect.interop.options import Allowed, words
from transpect.interop.rope import RopeOptions

FAMILY = Family(
    model_type="llama",
    table=llama_like.table,
    template=llama_like.TEMPLATE,
    heads=llama_like.heads("Llama"),
    entries=llama_like.entries({}, RopeOptions("decoder.positions")),
    # a tensor-parallel split that was once simulated: the sum is the same
    void=words("pretraining_tp is_llama_config"),
    allowed=Allowed({"rope_interleaved": (False,)}),
    bare=frozenset({"LlamaModel"}),
    opens_there=llama_like.whole_heads,
)
