"""One file a family; a new one is a file with a table, and a row here."""

from transpect.interop.families import (
    bart,
    bert,
    gemma,
    gemma2,
    gemma3,
    gpt2,
    gpt_neox,
    gptj,
    llama,
    m2m_100,
    marian,
    mbart,
    opt,
    pegasus,
    qwen2,
    qwen3,
    t5,
)
from transpect.interop.family import Family

FAMILIES: dict[str, Family] = {
    family.model_type: family
    for family in (
        gpt2.FAMILY,
        bert.FAMILY,
        t5.FAMILY,
        llama.FAMILY,
        gpt_neox.FAMILY,
        bart.FAMILY,
        mbart.FAMILY,
        marian.FAMILY,
        pegasus.FAMILY,
        m2m_100.FAMILY,
        gptj.FAMILY,
        qwen2.FAMILY,
        qwen3.FAMILY,
        opt.FAMILY,
        gemma.FAMILY,
        gemma2.FAMILY,
        gemma3.FAMILY,
    )
}
