"""OLMo 2 (OLMo team 2024): norms at the ends of the branches, and one over all queries and one over all keys."""

from transpect.core import BranchEnd, QkNorm, RMSNorm, override
from transpect.interop.families import llama_like
from transpect.interop.family import Family
from transpect.interop.options import Key
from transpect.interop.rope import RopeOptions

FAMILY = Family(
    model_type="olmo2",
    table=llama_like.table,
    template=override(
        llama_like.TEMPLATE,
        [
            ("decoder.placement", BranchEnd()),
            ("decoder.attention.qk_norm", QkNorm(RMSNorm(), over="all_heads")),
        ],
    ),
    heads=llama_like.heads("Olmo2", without=("Olmo2ForTokenClassification",)),
    entries=llama_like.entries(
        {"vocab_size": 50304, "rms_norm_eps": 1e-5},
        Key("rms_norm_eps", "decoder.attention.qk_norm.norm.eps", 1e-5),
        RopeOptions("decoder.positions"),
        without=("mlp_bias",),
    ),
    bare=frozenset({"Olmo2Model"}),
)
