"""One file a family; a new one is a file with a table, and a row here."""

from transpect.interop.families import (
    bert,
    gpt2,
    llama,
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
        qwen2.FAMILY,
        qwen3.FAMILY,
    )
}
